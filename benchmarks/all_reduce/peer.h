// The libraries to compare with. gloo.cpp and open_mpi.cpp or, where CMake does not find one, no_gloo.cpp and
// no_open_mpi.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace gradus::benchmarks {

/// Sums `count` floats of all ranks in place.
using AllReduce = std::function<void(float* x, int64_t count)>;

/// Meets the other ranks in a directory that all see. Null where there is no Gloo.
AllReduce gloo_all_reduce(int rank, int size, const std::string& directory);

/// The job of a process that mpirun has started.
struct OpenMpi {
  /// False where there is no Open MPI, too.
  static bool has_started_this_process();
  /// With what it sends, as told by --mca btl: "tcp".
  static std::string transport();

  OpenMpi();
  ~OpenMpi();
  /// The other ranks get rank 0's.
  int64_t broadcast(int64_t value) const;

  int rank = 0, size = 0;
  std::string name;  // "Open MPI, tcp"
  AllReduce all_reduce;
};

}  // namespace gradus::benchmarks
