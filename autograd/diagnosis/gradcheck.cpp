#include <gradus/autograd/diagnosis/gradcheck.h>

#include <cmath>

#include <gradus/autograd/engine.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/ops/ops.h>

namespace gradus::autograd {
namespace {

// Returns the floating results of f, including those without a history.
TensorList results_of(const GradcheckFunction& f, const TensorList& inputs) {
  TensorList all = f(inputs), kept;
  for (Tensor& result : all)
    if (result.defined() && is_floating(result.dtype())) kept.push_back(std::move(result));
  return kept;
}

// Returns the gradients of the results, weighted by `weights`, with respect to `wanted`. Results without a history, and
// inputs that no result depends on, contribute zeros.
TensorList gradients_of(const TensorList& results, const TensorList& wanted, const TensorList& weights,
                        bool create_graph) {
  TensorList tracked, tracked_weights, gradients(wanted.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].requires_grad()) continue;
    tracked.push_back(results[i]);
    tracked_weights.push_back(weights[i]);
  }
  if (!tracked.empty()) gradients = grad(tracked, wanted, tracked_weights, create_graph, create_graph, true);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!gradients[i].defined()) gradients[i] = zeros_like(wanted[i]);
  return gradients;
}

// Fixed weights in [0.5, 1.5). Because they differ, an error that permutes elements changes the weighted sum.
Tensor weights_like(const Tensor& y, uint64_t draw) {
  Tensor weights = empty({y.numel()}, TensorOptions(kDouble));
  double* data = weights.data_ptr<double>();
  for (int64_t i = 0; i < y.numel(); ++i)
    data[i] = 0.5 + random_uniform<double>(20260101, draw, static_cast<uint64_t>(i), 0, 1);
  return weights.view(y.sizes()).to(y.device(), y.dtype());
}

double weighted_sum(const GradcheckFunction& f, const TensorList& inputs, const TensorList& weights) {
  // Recording stays enabled, because the function may itself compute gradients.
  const TensorList results = results_of(f, inputs);
  GRADUS_CHECK(results.size() == weights.size(), AutogradError, "gradcheck: the function returns ", weights.size(),
               " floating results, but ", results.size(), " after an input changed");
  double sum = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    GRADUS_CHECK(results[i].sizes() == weights[i].sizes(), AutogradError, "gradcheck: result ", i, " has shape ",
                 weights[i].sizes(), ", but ", results[i].sizes(), " after an input changed");
    if (results[i].numel() > 0) sum += (results[i].detach() * weights[i]).sum().item<double>();
  }
  return sum;
}

}  // namespace

bool gradcheck(const GradcheckFunction& f, const TensorList& inputs, double eps, double atol, double rtol, bool raise) {
  TensorList wanted;
  std::vector<size_t> position;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    GRADUS_CHECK(inputs[i].dtype() == DType::f64, DTypeError, "gradcheck needs float64 inputs, input ", i, " is ",
                 inputs[i].dtype());
    wanted.push_back(inputs[i]);
    position.push_back(i);
  }
  GRADUS_CHECK(!wanted.empty(), ValueError, "gradcheck needs an input that requires gradients");
  const TensorList results = results_of(f, inputs);
  GRADUS_CHECK(!results.empty(), ValueError, "gradcheck needs a floating result");
  TensorList weights;
  for (size_t i = 0; i < results.size(); ++i) weights.push_back(weights_like(results[i], i));
  const TensorList analytic = gradients_of(results, wanted, weights, false);

  for (size_t k = 0; k < wanted.size(); ++k) {
    const Tensor gradient = analytic[k].cpu().contiguous();
    // Perturbs each element, in logical order, through an array that shares the input's storage.
    const Array& numbers = wanted[k].array();
    for (int64_t i = 0; i < numbers.numel(); ++i) {
      Array element = numbers;
      for (int64_t rest = i; element.ndim() > 0;) {
        const int last = element.ndim() - 1;
        const int64_t size = element.shape()[last];
        element = element.select(last, rest % size);
        rest /= size;
      }
      const double x = ops::item(element).to_double();
      auto value_at = [&](double moved) {
        ops::copy_into(element, tensor(moved, kDouble).array());
        return weighted_sum(f, inputs, weights);
      };
      const double above = value_at(x + eps), below = value_at(x - eps);
      ops::copy_into(element, tensor(x, kDouble).array());
      const double numeric = (above - below) / (2 * eps), ours = gradient.data_ptr<double>()[i];
      if (std::abs(numeric - ours) <= atol + rtol * std::abs(numeric)) continue;
      if (!raise) return false;
      GRADUS_FAIL(AutogradError, "gradcheck: input ", position[k], " of shape ", wanted[k].sizes(), ", element ", i,
                  ": analytic gradient ", ours, ", numeric ", numeric);
    }
  }
  return true;
}

bool gradgradcheck(const GradcheckFunction& f, const TensorList& inputs, double eps, double atol, double rtol,
                   bool raise) {
  const TensorList results = results_of(f, inputs);
  TensorList all = inputs;
  for (size_t i = 0; i < results.size(); ++i) {  // second derivatives are also taken with respect to dy
    all.push_back(weights_like(results[i], 100 + i));
    if (results[i].requires_grad()) all.back().set_requires_grad(true);
  }
  auto gradients = [&](const TensorList& arguments) {
    const TensorList xs(arguments.begin(), arguments.begin() + static_cast<int64_t>(inputs.size()));
    const TensorList dys(arguments.begin() + static_cast<int64_t>(inputs.size()), arguments.end());
    TensorList wanted;
    for (const Tensor& x : xs)
      if (x.defined() && x.requires_grad()) wanted.push_back(x);
    return gradients_of(results_of(f, xs), wanted, dys, true);
  };
  return gradcheck(gradients, all, eps, atol, rtol, raise);
}

}  // namespace gradus::autograd
