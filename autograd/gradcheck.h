// Analytic gradients against central differences.
#pragma once

#include <functional>

#include <gradus/autograd/tensor.h>

namespace gradus {
namespace autograd {

using GradcheckFunction = std::function<TensorList(const TensorList&)>;

/// True if the gradients of all floating results of `f` with respect to the float64 inputs that require them agree with
/// (f(x + eps) - f(x - eps)) / (2 eps) within atol + rtol * |numeric|; otherwise throws an AutogradError that names the
/// input, the element and both values (or returns false with raise = false). Random directions weigh the results.
/// The gradient of a result that does not require gradients is 0, so `f` must leave out results that depend on the
/// inputs but are not meant to be differentiated (PyTorch's gradcheck ignores them unless there is no other result).
/// Undefined and integral results are ignored. ValueError if no result is floating or no input requires gradients.
bool gradcheck(const GradcheckFunction& f, const TensorList& inputs, double eps = 1e-6, double atol = 1e-5,
               double rtol = 1e-3, bool raise = true);
/// gradcheck of the gradients themselves: second derivatives through create_graph. An undefined gradient counts as
/// zeros, and a gradient without a history as a constant, so a factor that backward detaches is found.
bool gradgradcheck(const GradcheckFunction& f, const TensorList& inputs, double eps = 1e-6, double atol = 1e-5,
                   double rtol = 1e-3, bool raise = true);

}  // namespace autograd
}  // namespace gradus
