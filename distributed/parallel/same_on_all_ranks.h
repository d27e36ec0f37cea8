// What ranks that train one net have to agree on before they begin.
#pragma once

#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/distributed/comm/process_group.h>

namespace gradus::dist {

/// x becomes rank 0's, whatever its order in memory.
void broadcast_from_first(ProcessGroup& group, const Array& x);
/// Ranks whose parameters differ in name, shape, order in memory or dtype get a ValueError that names the first one.
void check_same_on_all_ranks(ProcessGroup& group, const OrderedDict<std::string, Tensor>& parameters);

}  // namespace gradus::dist
