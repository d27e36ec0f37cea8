// A pass over a recorded step: its calls in an order that needs less memory.
#pragma once

#include <gradus/core/graph/graph.h>

namespace gradus::graph {

/// Of the calls whose operands are ready the first comes next that does not raise the peak, kernels' own memory
/// included, or else the one that raises it least: gradients of large weights, which nothing reads before the
/// optimizer, wait until activations are gone. The order stays as it was where that would save less than a twentieth
/// of what lives at a time. Each call computes what it did before.
void order_for_memory(Graph& graph);

}  // namespace gradus::graph
