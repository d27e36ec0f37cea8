// Renders the recorded graph.
#pragma once

#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus {
namespace autograd {

/// Returns Graphviz source of the graph that ends in `root`: nodes with their layers, edges with shapes, and the
/// tensors each node saved with their sizes in bytes. Tensors of at most eight elements are shown with their values,
/// and leaves with their gradients if they have any (after backward with retain_graph). Draw it with `dot -Tsvg`.
std::string graph_to_dot(const Tensor& root);
/// Total size in bytes of the distinct storages that the graph of `root` keeps alive for backward.
int64_t saved_bytes(const Tensor& root);
/// The leaves in the graph of `root` that require gradients, each once. Leaves used only inside a checkpointed part are
/// not found.
std::vector<Tensor> leaves_behind(const Tensor& root);

}  // namespace autograd
}  // namespace gradus
