// Work of all ranks that belongs to the end of a backward pass.
#pragma once

#include <functional>
#include <memory>

#include <gradus/distributed/comm/process_group.h>

namespace gradus::dist {

/// Calls `finish` at the end of the backward pass that this thread is in. If an exception ends the pass before, or
/// finish() throws, it calls `cancel` instead and ends the group: the other ranks would wait. Not where the pass is
/// captured on `device`: then nothing has run.
void at_end_of_backward(const std::shared_ptr<ProcessGroup>& group, Device device, std::function<void()> finish,
                        std::function<void()> cancel);

}  // namespace gradus::dist
