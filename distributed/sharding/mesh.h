// Ranks in a grid, for two kinds of parallelism at once: tensor parallelism along one dimension and data parallelism
// along the other (torch.distributed.device_mesh.init_device_mesh).
//
//   const auto mesh = dist::make_mesh(group, {2, 4});      // ranks 0 1 2 3   one net, cut in four
//   nn::ColumnParallelLinear layer(options, mesh[1]);      //       4 5 6 7   another copy, with other samples
//   dist::DistributedDataParallel ddp(net, mesh[0]);       // averages between 0 and 4, 1 and 5, …
#pragma once

#include <memory>
#include <vector>

#include <gradus/distributed/comm/process_group.h>

namespace gradus::dist {

/// Arranges the ranks of `group` in row-major order in a grid of these sizes. Group d of the result has the sizes[d]
/// ranks that differ from this one only in coordinate d. The dimension with the most communication should be the last,
/// whose ranks are neighbours. All ranks must call this with the same sizes. Throws a ValueError if their product is
/// not the number of ranks.
std::vector<std::shared_ptr<ProcessGroup>> make_mesh(const std::shared_ptr<ProcessGroup>& group, const Shape& sizes);

}  // namespace gradus::dist
