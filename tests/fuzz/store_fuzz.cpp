// The frames that a store's server reads from strangers, and the requests in them.
#include <gradus/distributed/comm/store_protocol.h>

using namespace gradus;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const io::ByteSpan bytes = std::as_bytes(std::span(data, size));
  dist::FrameReader reader(1 << 16);
  try {
    for (size_t piece = 0; piece < bytes.size(); piece += 100) {
      reader.append(bytes.subspan(piece, std::min<size_t>(100, bytes.size() - piece)));
      while (reader.next()) {}
    }
  } catch (const CommError&) {}
  if (size == 0) return 0;
  try {  // past the checksum, which noise does not meet
    const dist::Frame frame{data[0], 1, {bytes.begin() + 1, bytes.end()}};
    dist::StoreRequest::decode(frame);
  } catch (const CommError&) {}
  return 0;
}
