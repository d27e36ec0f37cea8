// What bounds an all-reduce: the part of its work that no algorithm can leave out, alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/tcp/socket.h>

namespace gradus::benchmarks {

/// The bytes that two ranks have to send each other over TCP, through plain sockets: no headers, and nothing is added.
class SocketsAlone {
 public:
  /// Both ranks at the same time; `group` tells them where to meet.
  explicit SocketsAlone(dist::ProcessGroup& group);
  /// For a vector of `count` floats: a half each way as they are, then a half each way as sums.
  void exchange(float* x, int64_t count);

 private:
  int rank_;
  dist::Connection out_, in_;
  std::vector<std::byte> arrived_;
};

/// Reads `count` floats, a multiple of 32: as many as each rank has to of the vectors of all that share memory.
void read_alone(const float* x, int64_t count);

}  // namespace gradus::benchmarks
