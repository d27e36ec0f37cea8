// How a process learns which rank of a job it is, and its first group.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/socket.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

/// What the launcher says in the environment.
struct JobEnvironment {
  int rank = 0, world_size = 1, local_rank = 0, local_world_size = 1;
  /// Where the job's store is, if the launcher says so. `serves`: rank 0 has to serve it there itself.
  std::optional<Address> store;
  bool serves = false;
  /// How often gradus-run, whose store outlives the ranks, has started them again.
  int restarts = 0;
  /// In a job that goes on when a worker dies (gradus-run --spares, --min-nproc): this process's number among its
  /// workers. Which of them are ranks is then told by the lists in the store, distributed/elastic/membership.h.
  std::optional<int> worker = std::nullopt;
  /// A worker that waits for a rank's place. Until it has one, rank and local_rank are -1.
  bool spare = false;
};

/// From the variables of gradus-run and torchrun (RANK, WORLD_SIZE, LOCAL_RANK, …), Open MPI (OMPI_COMM_WORLD_RANK, …)
/// or Slurm (SLURM_PROCID, …), in this order; one process where there are none. The latter two name no meeting place:
/// set MASTER_ADDR and MASTER_PORT, unless the backend is "mpi". Without LOCAL_RANK, as in a PyTorchJob of Kubernetes,
/// each rank is alone on its machine if they meet at another address than the loopback one. A variable that is missing,
/// empty, no number or out of its range (ranks below the number of ranks, which is kMaxRanks at most) is a ValueError
/// that names it.
JobEnvironment job_environment();

/// The other way round, for a child that is about to run: sets the variables of gradus-run. `token` is the descriptor
/// that it reads the token from.
void set_job_environment(const JobEnvironment& job, int token);

struct InitOptions {
  /// "tcp", "shm", "nccl", "mpi" (of the processes that mpirun has started; it needs no meeting place), or "auto": shm
  /// where all ranks share a host, else tcp.
  std::string backend = "auto";
  Milliseconds timeout = kDefaultTimeout;
  /// Where this rank listens (tcp). none: the loopback address where the store is there too, else this machine's name.
  std::string host = "";
  bool checksum = false;
  /// Index of this rank's GPU (nccl). none: its number among the ranks of its host.
  std::optional<int> device = std::nullopt;
};

/// The group of all ranks, which meet at the job's store; a spare worker gets a CommError. ("mpi": by way of MPI, which
/// stays initialised until the program exits; mpi/mpi_job.h says how it ends.)
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});

/// A group of job.world_size ranks, of which this is job.rank. They meet by way of `store`, which must outlive it,
/// under keys that nobody else uses.
std::unique_ptr<ProcessGroup> make_group(const std::shared_ptr<Store>& store, const JobEnvironment& job,
                                         const InitOptions& options);

/// Runs fn(rank) in `size` processes and returns when all have ended. They form a job as under gradus-run, so fn may
/// call init_process_group(). What a rank throws, or how it died, is a CommError here that names the first that failed.
/// Ranks end without the atexit handlers and static objects of this process. A process with several threads cannot be
/// copied: call it before any tensor has started the thread pool or a device. Sizes above kMaxRanksOfHost are a
/// ValueError.
void spawn(const std::function<void(int rank)>& fn, int size);

}  // namespace gradus::dist
