// The reductions of `strict` collectives on the device.
#pragma once

#include <gradus/core/runtime/runtime.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

/// y[i] = the sum, maximum, … (`kind`) of x[i], x[count + i], x[2 count + i], … of all ranks, combined in this order.
/// The bits are those of reduce_in_order(). Queued on the stream.
void reduce_in_order_on(const Stream& stream, DType dtype, ReduceKind kind, const void* x, int ranks, void* y,
                        size_t count);

}  // namespace gradus::dist
