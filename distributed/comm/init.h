// How a process finds out which rank of a job it is and joins the group of all ranks.
#pragma once

#include <functional>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

/// What the launcher passes to a process through environment variables.
struct JobEnvironment {
  int rank = 0, world_size = 1, local_rank = 0, local_world_size = 1;
  /// Address of the job's store, if the launcher names it.
  std::optional<Address> store;
  /// True if this process is rank 0 and has to serve the store at that address, because the launcher does not.
  bool serves = false;
  /// Number of times that gradus-run, whose store outlives the ranks, has restarted them.
  int restarts = 0;
  /// Number of this process among the workers of a job that survives the loss of a worker (gradus-run --spares,
  /// --min-nproc). Lists in the store say which workers are ranks (distributed/elastic/membership.h).
  std::optional<int> worker = std::nullopt;
  /// True if this worker is a spare, which waits to replace a rank. Its `rank` and `local_rank` are -1.
  bool spare = false;
};

/// Reads the variables of gradus-run and torchrun (RANK, WORLD_SIZE, LOCAL_RANK, …), Open MPI (OMPI_COMM_WORLD_RANK, …)
/// or Slurm (SLURM_PROCID, …), in this order. Without any of them the job has one process. Open MPI and Slurm do not
/// say where the ranks meet: set MASTER_ADDR and MASTER_PORT, unless the backend is "mpi". If LOCAL_RANK is not set, as
/// in a PyTorchJob of Kubernetes, each rank is assumed to be alone on its machine, unless the ranks meet at a loopback
/// address. Throws a ValueError that names the variable if one is missing, empty, not a number or out of range (a rank
/// must be below the number of ranks, and that number at most kMaxRanks).
JobEnvironment job_environment();

/// Sets the variables of gradus-run for a child that is about to run: the inverse of job_environment(). The child reads
/// the token from the descriptor `token`.
void set_job_environment(const JobEnvironment& job, int token);

struct InitOptions {
  /// "tcp", "shm", "nccl", "mpi" (the processes that mpirun has started; they need no meeting place) or "auto": shm if
  /// all ranks share a host, otherwise tcp.
  std::string backend = "auto";
  Milliseconds timeout = kDefaultTimeout;
  /// Where this rank listens (tcp). Empty: the loopback address if the store is at one, otherwise this machine's name.
  std::string host = "";
  bool checksum = false;
  /// Index of this rank's GPU (nccl). Default: the rank's number among the ranks of its host.
  std::optional<int> device = std::nullopt;
};

/// Returns the group of all ranks, which meet at the job's store. Throws a CommError in a spare worker. With "mpi" the
/// ranks meet through MPI, which stays initialised until the program exits (mpi/mpi_group.cpp says how it ends).
GroupPtr init_process_group(const InitOptions& options = {});

/// Returns a group of job.world_size ranks, in which this process is job.rank. The ranks meet through `store`, under
/// keys that nothing else uses. The group keeps the store alive.
std::unique_ptr<ProcessGroup> make_group(const std::shared_ptr<Store>& store, const JobEnvironment& job,
                                         const InitOptions& options);

/// Runs fn(rank) in `size` processes and returns when all have ended. They form a job as under gradus-run, so fn may
/// call init_process_group(). If a rank throws or is killed, spawn() throws a CommError that names the first rank that
/// failed. The processes end without running the atexit handlers and static destructors of this process. A process with
/// several threads cannot be copied, so call spawn() before any tensor starts the thread pool or a device. Throws a
/// ValueError if `size` is above kMaxRanksOfHost.
void spawn(const std::function<void(int rank)>& fn, int size);

struct NcclOptions {
  Milliseconds timeout = kDefaultTimeout;
  uint32_t epoch = 0;
  /// Index of this rank's GPU. No two ranks may share one.
  int device = 0;
  /// Compare each call with the calls of the other ranks before it is launched. This is slow. Without it, a mismatch is
  /// found only when the deadline passes.
  bool debug = false;
};

/// Version of NCCL in this build, for example 22807 for 2.28.7; 0 if there is none.
int nccl_version();
/// Makes a group over NCCL. Throws a CommError with the remedy if this build has no NCCL.
std::unique_ptr<ProcessGroup> make_nccl_group(std::shared_ptr<Store> store, int rank, int size,
                                              const NcclOptions& options);

/// Whether this build has MPI.
bool has_mpi();
/// Makes a group of all processes of the MPI job, which find each other without a store. Throws a CommError with the
/// remedy if this build has no MPI.
std::unique_ptr<ProcessGroup> make_mpi_group(Milliseconds timeout);

}  // namespace gradus::dist
