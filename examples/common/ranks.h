// Ranks: the processes of a job (gradus-run, mpirun, torchrun, --spawn) that train a net together, or a single process.
#pragma once

#include <gradus/data/data.h>
#include <gradus/distributed/distributed.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

struct Ranks {
  int rank = 0, size = 1;
  std::shared_ptr<gradus::dist::ProcessGroup> host;       ///< for numbers on the host; null in a single process
  std::shared_ptr<gradus::dist::ProcessGroup> gradients;  ///< the same group, or one over NCCL

  /// True for rank 0, which prints and writes files.
  bool is_first() const { return rank == 0; }
  /// The backend that sends gradients: "tcp", "shm", "nccl", …; "none" in a single process.
  std::string comm() const { return gradients ? std::string(gradients->backend()) : "none"; }
  /// Options of a loader that returns this rank's part of batches of `batch_size` images.
  gradus::data::DataLoaderOptions loader_options(int batch_size) const;
  /// Number of steps after which the ranks ask each other whether to stop. With NCCL they ask less often, because a
  /// step makes only the device wait for the other ranks, but asking makes the host wait, too.
  int64_t steps_between_questions() const { return gradients == host ? 1 : 16; }

  // Collectives, which all ranks must call in the same order. In a single process they return their argument.

  /// Returns the sum of each number over all ranks.
  std::vector<double> sum(std::vector<double> numbers) const;
  /// Returns the maximum of each number over all ranks.
  std::vector<double> max(std::vector<double> numbers) const;
  /// Returns when all ranks have called it.
  void barrier() const;
};

/// Joins the job of which this process is a rank. `comm` is "auto" or the name of a backend; on cuda, "auto" means nccl
/// if this build has it and there is a GPU for each rank. A `device` "cuda" is changed to the GPU of this rank, which
/// becomes the current device. If there are fewer GPUs than ranks, ranks share GPUs; with nccl this is a DeviceError.
Ranks join_ranks(const std::string& comm, gradus::Device& device);
/// Starts `size` processes as the ranks of a job, calls `run` in each of them, and returns the result of the first
/// process. An exception in one of them is a CommError here. Call it before this process uses any tensor.
int spawn_ranks(const std::function<int()>& run, int size);
