// A pass over a recorded step: its calls in an order that needs less memory.
#pragma once

#include <gradus/graph/graph.h>

namespace gradus::graph {

/// The order that needs the smallest arena of those in which, of the calls whose operands are ready, the next is the
/// first that does not raise the peak, or the one that adds least: gradients of large weights, which nothing reads
/// before the optimizer, wait until activations are gone. Kernels' own memory counts. The order stays as it was where
/// that would save less than a twentieth. Each call computes what it did before.
void order_for_memory(Graph& graph);

}  // namespace gradus::graph
