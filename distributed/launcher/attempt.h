// One run of all ranks of a job on this machine.
#pragma once

#include <gradus/distributed/launcher/job.h>
#include <gradus/distributed/launcher/nodes.h>

namespace gradus::dist {

/// Starts the ranks for attempt number `number`, counted from 0, unless somebody has asked the job to end by then,
/// looks after them until all have ended, and cleans up. Returns how the attempt ended, on all nodes: `restart` if the
/// next one is to be run. After the last one all that can be written has been.
Outcome run_attempt(Job& job, int number);

}  // namespace gradus::dist
