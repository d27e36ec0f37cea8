// The processes that train a net together: those of a job (gradus-run, mpirun, torchrun, --spawn), or this one alone.
#pragma once

#include <gradus/data/data.h>
#include <gradus/distributed/distributed.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

struct Ranks {
  int rank = 0, size = 1;
  std::shared_ptr<gradus::dist::ProcessGroup> host;       ///< for numbers of the host; null in one process
  std::shared_ptr<gradus::dist::ProcessGroup> gradients;  ///< the same group, or one over NCCL

  /// This is the one that prints and writes files.
  bool is_first() const { return rank == 0; }
  /// What gradients are sent by: "tcp", "shm", "nccl", …; "none" in one process.
  std::string comm() const { return gradients ? std::string(gradients->backend()) : "none"; }
  /// Options of a loader that gives this rank its part of batches of `batch_size` images.
  gradus::data::DataLoaderOptions loader_options(int batch_size) const;
  /// Steps between two at which ranks ask each other whether to stop. Over NCCL only the device waits for the other
  /// ranks in a step, and asking would make the host wait too.
  int64_t steps_between_questions() const { return gradients == host ? 1 : 16; }

  // Collectives, which all ranks call in the same order. In one process they return what they are given.

  /// Sums over the ranks.
  std::vector<double> sum(std::vector<double> numbers) const;
  /// The greatest of the ranks'.
  std::vector<double> max(std::vector<double> numbers) const;
  /// Returns when all ranks have called it.
  void barrier() const;
};

/// The ranks of the job that this process is part of. `comm` is "auto" or the name of a backend; "auto" on cuda is nccl
/// where this build has it and each rank a GPU of its own. Then a `device` "cuda" becomes that of this rank, and the
/// current one. Ranks share GPUs where there are fewer, but over nccl that is a DeviceError.
Ranks join_ranks(const std::string& comm, gradus::Device& device);
/// Calls `run` in so many new processes, the ranks of a job, and returns what it returned in the first one. An
/// exception in one of them is a CommError here. Nothing may have used tensors before.
int spawn_ranks(const std::function<int()>& run, int size);
