// The program gradus-run: runs attempts of a job on this machine until one succeeds. Worker (job.h) starts the
// processes of an attempt.
#pragma once

#include <vector>

#include <gradus/distributed/comm/tcp/socket.h>

namespace gradus::dist {

struct LaunchOptions {
  /// Number of ranks on this machine; with `spares` at most kMaxRanksOfHost.
  int processes = 1;
  /// Number of machines, and the number of this one. processes * nodes is at most kMaxRanks.
  int nodes = 1, node_rank = 0;
  /// Where the launcher of node 0 serves the job's store. Default, for one node only: a free port of the loopback
  /// interface.
  std::optional<Address> rendezvous;
  /// Each rank's output is also written to <log_directory>/rank<N>.log, a spare's to spare<N>.log; "" for no logs.
  std::string log_directory;
  /// Number of additional processes that wait to replace a rank that dies. For jobs on one node.
  int spares = 0;
  /// The smallest number of ranks with which the job continues if there is no spare. Default: `processes`.
  std::optional<int> min_processes;
  /// How long processes may take to end after SIGTERM before they get SIGKILL; not negative.
  Milliseconds grace{5000};
  /// How often all ranks are restarted after a failure; the same on all nodes.
  int max_restarts = 0;
  std::vector<std::string> command;
};

/// Runs the job and returns the exit code for the launcher: 0 if all ranks succeeded, otherwise that of the first rank
/// that failed (128 + the signal if it was killed), whose cause and last lines are printed. A rank that was killed
/// takes precedence over ranks that failed because of its loss. Signals that ask this process to end are passed on to
/// the ranks. If this process is killed, its processes are killed too. With several nodes all launchers return the same
/// code, once the ranks of all nodes have ended (nodes.h). Throws a ValueError if an option is out of range.
///
/// After a failure of a rank all ranks on all nodes are restarted, up to max_restarts times, and the last attempt
/// counts. There is no restart after a signal that asks this process to end, or when a node has been lost.
///
/// With spares, or with a minimum below the number of ranks, the loss of a worker is no failure as long as a spare
/// takes its place or enough ranks are left. Workers read the lists of workers in the store
/// (distributed/elastic/membership.h). They are numbered, the ranks first and then the spares. A worker that dies is
/// removed from the list at once. A worker that other workers have removed, because it did not answer, is killed with
/// SIGKILL within half a second. The launcher prints which worker died and which one takes its place. Once the job's
/// work is done (Membership::finish()), a loss is no failure either. When the ranks have succeeded, spares are asked to
/// end. A loss that leaves too few ranks is a failure as above, and a restart begins with all spares again.
///
/// Output of ranks never blocks the launcher. What cannot be written yet is kept, up to about 1 MiB; beyond that the
/// launcher stops reading from ranks, so that their own writes block. When the ranks have ended and no output could be
/// written for 5 s, the output that is not written yet is dropped, and the number of dropped bytes is printed.
///
/// When all ranks have ended, the processes that they left behind are killed. These are all processes that have become
/// children of this process since the call.
///
/// The processes get torchrun's variables RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR,
/// MASTER_PORT, TORCHELASTIC_RESTART_COUNT (0 in the first attempt) and TORCHELASTIC_MAX_RESTARTS, GRADUS_STORE (the
/// address of the store) and GRADUS_TOKEN_FD, and, unless it is set, OMP_NUM_THREADS (their share of the cores, without
/// counting spares). With spares or a minimum, every worker also gets its number in GRADUS_WORKER, and a spare gets
/// GRADUS_SPARE=1 instead of RANK, LOCAL_RANK and GROUP_RANK.
int launch(const LaunchOptions& options);

}  // namespace gradus::dist
