// Tools that find errors in gradients: gradcheck compares them with central differences, and graph_to_dot draws the
// recorded graph. A third tool, AnomalyGuard, is declared in engine.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::autograd {

using GradcheckFunction = std::function<TensorList(const TensorList&)>;

/// Returns true if the gradients of all floating results of `f` with respect to the float64 inputs that require them
/// agree with (f(x + eps) - f(x - eps)) / (2 eps) within atol + rtol * |numeric|. Otherwise throws an AutogradError
/// that names the input, the element and both values, or returns false with raise = false. What is differentiated is
/// the sum of all elements of the results, each weighted with a random number. The gradient of a result that does not
/// require gradients counts as 0, so `f` must not return results that depend on the inputs but are not meant to be
/// differentiated (PyTorch's gradcheck ignores them unless there is no other result). Undefined and integral results
/// are ignored. Throws a ValueError if no result is floating or no input requires gradients.
bool gradcheck(const GradcheckFunction& f, const TensorList& inputs, double eps = 1e-6, double atol = 1e-5,
               double rtol = 1e-3, bool raise = true);
/// Checks second derivatives: applies gradcheck to the function that returns the gradients of `f`, computed with
/// create_graph. An undefined gradient counts as zeros and a gradient without history as a constant. A backward that
/// wrongly detaches one of its factors is therefore detected.
bool gradgradcheck(const GradcheckFunction& f, const TensorList& inputs, double eps = 1e-6, double atol = 1e-5,
                   double rtol = 1e-3, bool raise = true);

/// Returns Graphviz source of the graph that ends in `root`: nodes with their layers, edges with shapes, and the
/// tensors each node saved with their sizes in bytes. Tensors of at most eight elements are shown with their values,
/// and leaves with their gradients if backward has computed them. That backward must retain the graph, or the saved
/// tensors are missing. Draw it with `dot -Tsvg`.
std::string graph_to_dot(const Tensor& root);
/// Total size in bytes of the distinct storages that the graph of `root` keeps alive for backward.
int64_t saved_bytes(const Tensor& root);
/// The leaves in the graph of `root` that require gradients, each once.
TensorList leaves_behind(const Tensor& root);

}  // namespace gradus::autograd
