// Starts the processes of a job on this machine and looks after them: gradus-run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/socket.h>

namespace gradus::dist {

struct LaunchOptions {
  /// On this machine; with `spares` at most kMaxRanksOfHost.
  int processes = 1;
  /// processes * nodes is at most kMaxRanks.
  int nodes = 1, node_rank = 0;
  /// Where the launcher of node 0 serves the job's store and the others find it; none: a free port of the loopback
  /// interface, for one node.
  std::optional<Address> rendezvous;
  /// Each rank's output goes to <log_directory>/rank<N>.log too, a spare's to spare<N>.log; "" for none.
  std::string log_directory;
  /// Processes beside the ranks that wait to take the place of one that dies. For jobs on one node.
  int spares = 0;
  /// The job goes on with so many ranks if there is no spare; none: `processes`.
  std::optional<int> min_processes;
  /// How long processes that are asked to end (SIGTERM) may take until they are made to (SIGKILL); not negative.
  Milliseconds grace{5000};
  /// How often all ranks are started again after one has failed; the same on all nodes.
  int max_restarts = 0;
  std::vector<std::string> command;
};

/// Options that are out of their range are a ValueError. Runs the job and returns what the launcher's exit code is to
/// be: 0 if all ranks ended well, else that of the first that did not (128 + the signal that killed it), whose last
/// lines and cause are printed; a rank that was killed comes before those that its loss ended. Signals that ask this
/// process to end are passed on. When it is killed itself, its processes are killed too. With several nodes all
/// launchers return the same, when all have ended (nodes.h).
///
/// After a failure of a rank all ranks, on all nodes, are started again, up to max_restarts times: the last attempt
/// counts. Not after a signal that asks this process to end, nor when a node has been lost.
///
/// With spares, or a minimum below the number of ranks, the loss of a worker is no failure as long as another takes its
/// place or enough ranks are left; distributed/elastic/membership.h has what workers read about that in the store.
/// Workers are numbered, the spares behind the ranks. One that dies is removed from their list at once, and one that
/// the others have removed, because it did not answer, is killed with SIGKILL within half a second. What is printed
/// says who died and who takes the place. Once the job's work is done (Membership::finish()) a loss is no failure
/// either. When the ranks have ended well, spares are asked to end. A failure that leaves too few ranks is one as
/// above, and a restart has all its spares again.
///
/// Nothing that ranks print keeps the launcher waiting. What cannot be written yet is kept up to about 1 MiB; then
/// ranks are not read, so that their own writes wait. What is left when they have ended is dropped once nobody takes
/// any of it for 5 s, and the number of bytes is printed.
///
/// When all ranks have ended, what they left behind is killed: whatever has become a child of this process since the
/// call.
///
/// The processes get torchrun's variables RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR,
/// MASTER_PORT, TORCHELASTIC_RESTART_COUNT (0 in the first attempt) and TORCHELASTIC_MAX_RESTARTS, GRADUS_STORE (where
/// the store is) and GRADUS_TOKEN_FD, and OMP_NUM_THREADS (their share of the cores, of which spares have none) unless
/// it is set. With spares or a minimum they get GRADUS_WORKER, their number, too; a spare gets GRADUS_SPARE=1 in place
/// of RANK, LOCAL_RANK and GROUP_RANK.
int launch(const LaunchOptions& options);

}  // namespace gradus::dist
