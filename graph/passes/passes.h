// Passes over a recorded step: each leaves a graph that computes the same bits, but for fuse_relu.
#pragma once

#include <gradus/graph/passes/order_for_memory.h>

namespace gradus::graph {

/// Takes out calls whose results nothing reads and nobody has an array of.
void remove_dead_code(Graph& graph);

/// Updates, which optimizers make in one call for all parameters, come as early as the gradients are complete and
/// nothing reads the old parameters any more. Large gradients that live at the peak, if they are a twentieth of it, get
/// calls of their own: they do not wait for the end of the backward pass beside each other.
void update_early(Graph& graph);

/// Results of element-wise calls take the buffer of an operand that is not used later and has their layout.
void work_in_place(Graph& graph);

/// Element-wise calls in a row that use the same large operands run block by block, as one call "chain"; what nothing
/// else reads takes no memory.
void join_chains(Graph& graph);

/// A convolution or normalisation and the ReLU behind it become one call where nothing else reads what is between them,
/// and so does its gradient with the mask before it. Kernels, and with them roundings, may be others.
void fuse_relu(Graph& graph);

/// All of these and order_for_memory, in the order in which they help each other; fuse_relu if asked.
void run_passes(Graph& graph, bool fuse = false);

}  // namespace gradus::graph
