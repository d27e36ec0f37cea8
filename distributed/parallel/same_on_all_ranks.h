// What ranks that train one net have to agree on before they begin.
#pragma once

#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/layers/module.h>

namespace gradus::dist {

/// x becomes rank 0's, whatever its order in memory.
void broadcast_from_first(ProcessGroup& group, const Array& x);
/// A ValueError on all ranks, which names both sides, if the nets of two ranks differ in the number of parameters or
/// buffers, or in the name, shape, order in memory or dtype of one, or if it is frozen on one rank alone. A net without
/// parameters is a ValueError too, and ends the group: the other ranks would wait.
void check_same_on_all_ranks(ProcessGroup& group, const nn::Module& module);

}  // namespace gradus::dist
