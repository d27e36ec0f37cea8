#include <gradus/core/io/gzip.h>

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <gradus/core/io/byte_order.h>

namespace gradus::io {

bool is_gzip(ByteSpan bytes) { return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b}; }

GzipReader::GzipReader(ByteSpan bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)), stream_(new z_stream{}, [](z_stream* stream) {
        inflateEnd(stream);
        delete stream;
      }) {
  GRADUS_CHECK(is_gzip(bytes), IoError, "'", name_, "' is not a gzip file");
  constexpr int kGzipOnly = 16;  // added to the window size, it makes zlib accept only gzip
  GRADUS_CHECK(inflateInit2(stream_.get(), MAX_WBITS + kGzipOnly) == Z_OK, IoError, "cannot set up zlib for '", name_,
               "'");
}

size_t GzipReader::read(void* to, size_t bytes) {
  size_t filled = 0;
  while (filled < bytes && !ended_) {
    constexpr size_t kMost = size_t{1} << 30;  // zlib's counters have 32 bits
    stream_->next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes_.data() + consumed_));
    stream_->avail_in = static_cast<uInt>(std::min(bytes_.size() - consumed_, kMost));
    stream_->next_out = static_cast<Bytef*>(to) + filled;
    stream_->avail_out = static_cast<uInt>(std::min(bytes - filled, kMost));
    const uInt in = stream_->avail_in, room = stream_->avail_out;
    const int status = inflate(stream_.get(), Z_NO_FLUSH);
    consumed_ += in - stream_->avail_in;
    filled += room - stream_->avail_out;
    if (status == Z_STREAM_END) {
      ended_ = consumed_ == bytes_.size();
      // Another member may follow; its header is checked like the first one's.
      GRADUS_CHECK(ended_ || (is_gzip(bytes_.subspan(consumed_)) && inflateReset(stream_.get()) == Z_OK), IoError, "'",
                   name_, "' has ", bytes_.size() - consumed_, " bytes after its gzip data");
      continue;
    }
    const bool going_on = status == Z_OK || status == Z_BUF_ERROR;
    GRADUS_CHECK(!going_on || consumed_ < bytes_.size() || stream_->avail_out == 0, IoError, "'", name_,
                 "' is truncated: its gzip data does not end");
    GRADUS_CHECK(going_on, IoError, "'", name_, "' has bad gzip data: ", stream_->msg ? stream_->msg : "zlib error");
  }
  return filled;
}

std::optional<uint32_t> GzipReader::size_in_trailer() const {
  constexpr size_t kHeader = 10, kTrailer = 8;
  if (bytes_.size() < kHeader + kTrailer) return std::nullopt;
  // Each member begins with two magic bytes, the method 8, and flags whose highest three bits are 0 (RFC 1952, 2.3).
  for (size_t at = kHeader; at + 4 <= bytes_.size(); ++at)
    if (std::memcmp(&bytes_[at], "\x1f\x8b\x08", 3) == 0 && (bytes_[at + 3] & std::byte{0xe0}) == std::byte{0})
      return std::nullopt;
  return read_little_endian<uint32_t>(&bytes_[bytes_.size() - 4]);
}

}  // namespace gradus::io
