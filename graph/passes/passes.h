// Passes: functions that change a recorded step so that it needs less time or memory. All except fuse_relu() keep the
// bits of the results.
#pragma once

#include <gradus/graph/graph.h>

namespace gradus::graph {

/// Removes calls whose results are not used: no remaining call reads them, no array holds them, and they are in no
/// external buffer.
void remove_dead_code(Graph& graph);

/// Reorders the calls so that the arena (with the workspace of kernels) is smaller. Tries several greedy orders and
/// keeps the one with the smallest arena. A greedy order picks, among the calls whose operands are ready, the call that
/// raises the peak least or adds least memory. Therefore the gradients of large weights, which only the optimizer
/// reads, are computed after activations have been freed. If no order saves a twentieth of the arena, the graph stays
/// as it is.
void order_for_memory(Graph& graph);

/// Moves optimizer updates to the first point where the gradients are complete and no later call reads the old
/// parameters. An optimizer updates all parameters in one call. If large gradients make up at least a twentieth of the
/// memory peak, this call is split, and the parameter of each such gradient is updated by a separate call; the memory
/// of the gradient is then free before the backward pass ends.
void update_early(Graph& graph);

/// Makes element-wise calls write their result into the buffer of an operand that has the same layout and is not used
/// later.
void work_in_place(Graph& graph);

/// Merges consecutive element-wise calls that share large operands into one call with the name "chain", which runs all
/// of them on one block of elements after the other. Intermediate results that no other call reads need no memory.
void join_chains(Graph& graph);

/// Merges a convolution or normalisation with the ReLU after it if only the ReLU reads the intermediate result. In the
/// backward pass, merges the gradient of the ReLU with the gradient of the convolution or normalisation. The merged
/// call may run another kernel, so the results may be rounded differently.
void fuse_relu(Graph& graph);

/// Runs all these passes, join_chains() only on a CPU and fuse_relu() only if `fuse` is true.
void run_passes(Graph& graph, bool fuse = false);

}  // namespace gradus::graph
