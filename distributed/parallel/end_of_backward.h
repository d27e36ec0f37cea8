// Work that all ranks do at the end of a backward pass.
#pragma once

#include <functional>
#include <memory>

#include <gradus/distributed/comm/process_group.h>

namespace gradus::dist {

/// Calls `finish` at the end of the current backward pass of this thread. If an exception ends the pass earlier, or
/// finish() throws, it calls `cancel` instead and ends the group, because the other ranks would wait. It does not end
/// the group if the pass is being captured on `device`, because then no collective has run.
void at_end_of_backward(const std::shared_ptr<ProcessGroup>& group, Device device, std::function<void()> finish,
                        std::function<void()> cancel);

}  // namespace gradus::dist
