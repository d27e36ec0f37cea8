// The libraries with which the benchmark compares gradus. If CMake does not find Gloo or Open MPI, it compiles
// no_gloo.cpp or no_open_mpi.cpp instead of gloo.cpp or open_mpi.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace gradus::benchmarks {

/// Sums `count` floats of all ranks in place.
using AllReduce = std::function<void(float* x, int64_t count)>;

/// Connects to the other ranks by files in a directory that all ranks share. Returns null without Gloo.
AllReduce gloo_all_reduce(int rank, int size, const std::string& directory);

/// The job of a process that mpirun started.
struct OpenMpi {
  /// Also false without Open MPI.
  static bool has_started_this_process();
  /// The transport that was chosen by --mca btl, such as "tcp".
  static std::string transport();

  OpenMpi();
  ~OpenMpi();
  /// Returns rank 0's value on all ranks.
  int64_t broadcast(int64_t value) const;

  int rank = 0, size = 0;
  std::string name;  // "Open MPI, tcp"
  AllReduce all_reduce;
};

}  // namespace gradus::benchmarks
