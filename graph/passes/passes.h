// Passes over a recorded step. After each of them except fuse_relu, the graph still computes the same bits.
#pragma once

#include <gradus/graph/graph.h>

namespace gradus::graph {

/// Removes calls whose results no other call reads and no array uses.
void remove_dead_code(Graph& graph);

/// Reorders calls to need less memory. Tries several greedy orders and keeps the one with the smallest arena, workspace
/// of kernels included. Each order picks, among the calls whose operands are ready, the one that raises the peak least
/// or adds least memory. Gradients of large weights, which only the optimizer reads, then wait until activations are
/// freed. If no order saves a twentieth of the arena, the graph stays as it is. Each call computes the same as before.
void order_for_memory(Graph& graph);

/// Moves optimizer updates to the first point where the gradients are complete and no later call reads the old
/// parameters. An optimizer updates all parameters in one call; if large gradients make up a twentieth of the peak of
/// memory or more, each of them gets an update of its own, so that their memory is free before the backward pass ends.
void update_early(Graph& graph);

/// Lets element-wise calls write into the buffer of an operand that has the result's layout and is not used later.
void work_in_place(Graph& graph);

/// Merges consecutive element-wise calls that share large operands into one call "chain", which runs all of them block
/// by block. Intermediate results that no other call reads need no memory.
void join_chains(Graph& graph);

/// Merges a convolution or normalisation with the ReLU after it if nothing else reads the intermediate result, and, in
/// the backward pass, the mask of the ReLU with the gradient after it. Other kernels may run, so that roundings may
/// differ.
void fuse_relu(Graph& graph);

/// Runs all of these and order_for_memory() in an order in which each helps the next; fuse_relu() only if `fuse` is
/// set.
void run_passes(Graph& graph, bool fuse = false);

}  // namespace gradus::graph
