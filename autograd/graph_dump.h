// The recorded graph as a picture.
#pragma once

#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus {
namespace autograd {

/// Graphviz source of the graph behind `root`: nodes with their layer, edges with shapes, what each node saved with its
/// bytes, and the numbers of tensors of at most eight elements, with the gradients of leaves where there are some
/// (after backward with retain_graph). `dot -Tsvg` draws it.
std::string graph_to_dot(const Tensor& root);
/// Bytes of distinct storages that the graph behind `root` keeps alive for backward.
int64_t saved_bytes(const Tensor& root);
/// The leaves behind `root` that require gradients, each once. Those of a part that backward recomputes are not seen.
std::vector<Tensor> leaves_behind(const Tensor& root);

}  // namespace autograd
}  // namespace gradus
