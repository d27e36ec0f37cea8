// A pass over a recorded step that reorders its calls to need less memory.
#pragma once

#include <gradus/graph/graph.h>

namespace gradus::graph {

/// Tries several greedy orders and keeps the one with the smallest arena, workspace of kernels included. Each order
/// picks, among the calls whose operands are ready, the one that raises the peak least or adds least memory. Gradients
/// of large weights, which only the optimizer reads, then wait until activations are freed. If no order saves a
/// twentieth of the arena, the graph stays as it is. Each call computes the same as before.
void order_for_memory(Graph& graph);

}  // namespace gradus::graph
