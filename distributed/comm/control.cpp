#include <gradus/distributed/comm/control.h>

#include <gradus/distributed/comm/frame.h>

namespace gradus::dist {

io::Bytes encode(const CommStatus& failure) {
  return PayloadWriter()
      .number(static_cast<uint64_t>(failure.failure))
      .number(static_cast<uint64_t>(failure.rank))
      .string(std::string_view(failure.message).substr(0, 2048))
      .take();
}

CommStatus decode_failure(io::ByteSpan bytes) {
  PayloadReader payload(bytes);
  const uint64_t failure = payload.number(), rank = payload.number();
  const std::string message(payload.string());
  return {
      failure <= static_cast<uint64_t>(CommFailure::aborted) ? static_cast<CommFailure>(failure) : CommFailure::aborted,
      static_cast<int>(static_cast<int64_t>(rank)), message};
}

}  // namespace gradus::dist
