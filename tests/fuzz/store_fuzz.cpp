// What processes of a job read from each other before they can trust it: frames from strangers, the requests in them, a
// store's answers, and the headers of messages between ranks.
#include <algorithm>
#include <array>

#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>
#include <gradus/distributed/comm/descriptor.h>
#include <gradus/distributed/comm/store/store.h>

using namespace gradus;

namespace {

void read_frames(io::ByteSpan bytes) {
  dist::FrameReader reader(1 << 16);
  for (size_t piece = 0; piece < bytes.size(); piece += 100) {
    reader.append(bytes.subspan(piece, std::min<size_t>(100, bytes.size() - piece)));
    while (reader.next()) {}
  }
}

/// A header with the right magic and checksum, which noise does not meet. What is taken for one comes through again.
void read_header(io::ByteSpan bytes) {
  std::array<std::byte, dist::MessageHeader::kBytes> header = {};
  std::copy_n(bytes.begin(), std::min(bytes.size(), header.size()), header.begin());
  io::write_big_endian(uint32_t{0x47524443}, header.data());  // "GRDC"
  constexpr size_t kChecksumAt = dist::MessageHeader::kBytes - 4;
  io::write_big_endian(io::crc32c(io::ByteSpan(header).first(kChecksumAt)), &header[kChecksumAt]);
  const dist::MessageHeader read = dist::MessageHeader::decode(header);
  const dist::MessageHeader again = dist::MessageHeader::decode(read.encode());
  if (again.descriptor != read.descriptor || again.body_bytes != read.body_bytes || read.descriptor.str().empty())
    __builtin_trap();
}

template <class F>
void expect_error(F&& parse) {
  try {
    parse();
  } catch (const CommError&) {}
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const io::ByteSpan bytes = std::as_bytes(std::span(data, size));
  expect_error([&] { read_frames(bytes); });
  expect_error([&] { read_header(bytes); });
  if (size == 0) return 0;
  const dist::Frame frame{data[0], 1, {bytes.begin() + 1, bytes.end()}};
  expect_error([&] { dist::StoreRequest::decode(frame); });
  expect_error([&] { dist::StoreAnswer::decode(frame); });
  return 0;
}
