// Lower limits for the time of an all-reduce: only the work that every algorithm must do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/tcp/socket.h>

namespace gradus::benchmarks {

/// Sends the bytes that two ranks must send each other over TCP, through plain sockets, without headers and without
/// adding.
class SocketsAlone {
 public:
  /// Both ranks must construct it at the same time. They exchange their addresses by `group`.
  explicit SocketsAlone(dist::ProcessGroup& group);
  /// Sends what an all-reduce of `count` floats sends: each rank sends one half of its vector, and then one half of the
  /// sums.
  void exchange(float* x, int64_t count);

 private:
  int rank_;
  dist::Connection out_, in_;
  std::vector<std::byte> arrived_;
};

/// Reads `count` floats, a multiple of 32. In shared memory, each rank must read this many floats of the vectors of all
/// ranks.
void read_alone(const float* x, int64_t count);

}  // namespace gradus::benchmarks
