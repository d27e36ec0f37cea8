// Starts the processes of a job on this machine and looks after them: gradus-run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/socket.h>

namespace gradus::dist {

struct LaunchOptions {
  int processes = 1;  // on this machine
  int nodes = 1, node_rank = 0;
  /// Where the launcher of node 0 serves the job's store and the others find it; none: a free port of the loopback
  /// interface, for one node.
  std::optional<Address> rendezvous;
  /// Each rank's output goes to <log_directory>/rank<N>.log too; "" for none.
  std::string log_directory;
  /// How long processes that are asked to end (SIGTERM) may take until they are made to (SIGKILL).
  Milliseconds grace{5000};
  /// How often all ranks are started again after one has failed; the same on all nodes.
  int max_restarts = 0;
  std::vector<std::string> command;
};

/// Runs the job and returns what the launcher's exit code is to be: 0 if all ranks ended well, else that of the first
/// that did not (128 + the signal that killed it), whose last lines and cause are printed; a rank that was killed comes
/// before those that its loss ended. Signals that ask this process to end are passed on. When it is killed itself, its
/// processes are killed too. With several nodes all launchers return the same, when all have ended (nodes.h).
///
/// After a failure of a rank all ranks, on all nodes, are started again, up to max_restarts times: the last attempt
/// counts. Not after a signal that asks this process to end, nor when a node has been lost.
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
/// the store is) and GRADUS_TOKEN_FD, and OMP_NUM_THREADS (their share of the cores) unless it is set.
int launch(const LaunchOptions& options);

}  // namespace gradus::dist
