// One attempt of a job: a run of all its ranks on this machine.
#pragma once

#include <gradus/distributed/launcher/job.h>
#include <gradus/distributed/launcher/nodes.h>

namespace gradus::dist {

/// Starts the ranks for attempt `number`, counted from 0, unless the job was asked to end before. Supervises them until
/// all have ended, and cleans up. Returns how the attempt ended on all nodes; `restart` is true if there must be
/// another attempt. After the last attempt all output that can be written has been written.
Outcome run_attempt(Job& job, int number);

}  // namespace gradus::dist
