#include <gradus/benchmarks/all_reduce/limits.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

#include <gradus/core/array/array.h>

namespace gradus::benchmarks {
namespace {

using namespace dist;

/// The same segment size as in all_reduce of a tcp group: six packets of the loopback interface.
constexpr size_t kSegmentBytes = 384 * 1024 - 512;

void swap(const Connection& out, io::ByteSpan sent, const Connection& in, std::span<std::byte> received) {
  while (!sent.empty() || !received.empty()) {
    const size_t gone = sent.empty() ? 0 : out.send_some(sent).value();
    const size_t come = received.empty() ? 0 : in.receive_some(received).value();
    sent = sent.subspan(gone);
    received = received.subspan(come);
    if (gone + come > 0) continue;
    pollfd entries[] = {{sent.empty() ? -1 : out.descriptor(), POLLOUT, 0},
                        {received.empty() ? -1 : in.descriptor(), POLLIN, 0}};
    poll(entries, 2, -1);
  }
}

}  // namespace

SocketsAlone::SocketsAlone(ProcessGroup& group) : rank_(group.rank()), arrived_(kSegmentBytes) {
  const Deadline deadline(group.timeout());
  const Array port = Array::empty({1}, DType::i64);
  const Listener listener({"127.0.0.1", 0});
  *port.data<int64_t>() = listener.port();
  group.broadcast(port, 0);
  const auto meet = [&] {
    return rank_ == 0 ? listener.accept(deadline).value()
                      : Connection::open({"127.0.0.1", static_cast<uint16_t>(*port.data<int64_t>())}, deadline);
  };
  Connection first = meet(), second = meet();
  out_ = std::move(rank_ == 0 ? first : second);
  in_ = std::move(rank_ == 0 ? second : first);
  setsockopt(out_.descriptor(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
}

void SocketsAlone::exchange(float* x, int64_t count) {
  std::byte* bytes = reinterpret_cast<std::byte*>(x);
  const size_t end = static_cast<size_t>(count) * sizeof(float);
  for (size_t begin = 0; begin < end; begin += 2 * kSegmentBytes) {
    const size_t half = std::min(kSegmentBytes, (end - begin) / 2);
    const std::span<std::byte> mine(bytes + begin + static_cast<size_t>(rank_) * half, half),
        theirs(bytes + begin + static_cast<size_t>(1 - rank_) * half, half);
    swap(out_, theirs, in_, std::span(arrived_).first(half));
    swap(out_, mine, in_, theirs);
  }
}

void read_alone(const float* x, int64_t count) {
  constexpr int64_t kAtOnce = 32;  // number of independent sums, so that no addition waits for another
  uint32_t sums[kAtOnce] = {};
  for (int64_t i = 0; i < count; i += kAtOnce)
    for (int64_t k = 0; k < kAtOnce; ++k) sums[k] += std::bit_cast<uint32_t>(x[i + k]);
  [[maybe_unused]] static volatile uint32_t kept;
  kept = std::accumulate(std::begin(sums), std::end(sums), 0u);
}

}  // namespace gradus::benchmarks
