// One run of all ranks of a job on this machine.
#pragma once

#include <gradus/distributed/launcher/job.h>
#include <gradus/distributed/launcher/nodes.h>

namespace gradus::dist {

/// Starts the ranks, looks after them until all have ended, cleans up, and writes all that can be written. Returns how
/// the job ended, on all nodes.
Outcome run_attempt(Job& job);

}  // namespace gradus::dist
