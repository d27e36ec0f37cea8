// Checks what ranks that train one net must agree on before they begin.
#pragma once

#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/layers/module/module.h>

namespace gradus::dist {

/// Copies the x of rank 0 to all ranks, whatever its strides.
void broadcast_from_first(ProcessGroup& group, const Array& x);
/// Throws a ValueError on all ranks, which describes both sides, if the nets of two ranks differ in the number of
/// parameters or buffers, in the name, shape, strides or dtype of one, or in whether it is frozen. A net without
/// parameters is a ValueError too and ends the group, because the other ranks would wait.
void check_same_on_all_ranks(ProcessGroup& group, const nn::Module& module);

}  // namespace gradus::dist
