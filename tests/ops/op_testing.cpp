#include "op_testing.h"

#include <algorithm>
#include <cmath>

namespace gradus::op_testing {

Device device_of(const std::string& backend_name) { return settled(backend(backend_name).device_type()); }

TensorList place(const TensorList& inputs, Layout layout, Device device) {
  TensorList placed;
  for (const Tensor& x : inputs) placed.push_back(op_cases::lay_out(x.to(device), layout));
  return placed;
}

static Tensor direction(const TensorList& given, size_t i, const Tensor& like, const std::string& key) {
  if (i < given.size() && given[i].defined())
    return Tensor(given[i].to(like.device(), like.dtype(), false, true).array());
  return op_cases::make_like(like, key + std::to_string(i));
}

Computed compute(const OpCase& op_case, const TensorList& inputs, int order, const Directions& directions) {
  Computed found;
  TensorList wanted;
  std::vector<size_t> wanted_index, tracked_index;
  for (size_t i = 0; i < inputs.size() && order > 0; ++i) {
    if (!inputs[i].is_floating_point()) continue;
    inputs[i].set_requires_grad(true);
    wanted.push_back(inputs[i]);
    wanted_index.push_back(i);
  }
  manual_seed(20);
  found.y = op_case.run(inputs);
  TensorList tracked, dy;
  for (size_t i = 0; i < found.y.size(); ++i) {
    if (!found.y[i].requires_grad()) continue;
    tracked.push_back(found.y[i]);
    tracked_index.push_back(i);
    dy.push_back(direction(directions.dy, i, found.y[i], op_case.name + "/dy"));
    dy.back().set_requires_grad(order > 1);
  }
  if (tracked.empty()) return found;

  found.g.resize(inputs.size());
  const TensorList g = autograd::grad(tracked, wanted, dy, order > 1, order > 1, true);
  for (size_t i = 0; i < g.size(); ++i) found.g[wanted_index[i]] = g[i];
  if (order < 2) return found;

  TensorList differentiable, v;
  for (size_t i = 0; i < g.size(); ++i) {
    if (!g[i].defined() || !g[i].requires_grad()) continue;
    differentiable.push_back(g[i]);
    v.push_back(direction(directions.v, wanted_index[i], g[i], op_case.name + "/v"));
  }
  found.h.resize(inputs.size());
  found.hdy.resize(found.y.size());
  if (differentiable.empty()) return found;
  TensorList both = wanted;
  both.insert(both.end(), dy.begin(), dy.end());
  const TensorList h = autograd::grad(differentiable, both, v, false, false, true);
  for (size_t i = 0; i < wanted.size(); ++i) found.h[wanted_index[i]] = h[i];
  for (size_t i = 0; i < dy.size(); ++i) found.hdy[tracked_index[i]] = h[wanted.size() + i];
  return found;
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-11;
    case DType::f32: return 4e-6;
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    default: return 0;
  }
}

static std::vector<double> numbers(const Tensor& x) {
  const Tensor flat = x.detach().cpu().to(kDouble).contiguous();
  return std::vector<double>(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
}

std::string difference(const Tensor& actual, const Tensor& expected, double tolerance) {
  if (!(actual.sizes() == expected.sizes()))
    return "shape " + to_string(actual.sizes()) + " instead of " + to_string(expected.sizes());
  const std::vector<double> a = numbers(actual), e = numbers(expected);
  double scale = 0.1;
  for (double value : e)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same_kind = std::isnan(a[i]) == std::isnan(e[i]) && std::isinf(a[i]) == std::isinf(e[i]);
    const bool close =
        std::isfinite(e[i]) ? std::abs(a[i] - e[i]) <= tolerance * scale : std::isnan(e[i]) || a[i] == e[i];
    if (!same_kind || !close)
      return "element " + std::to_string(i) + " is " + std::to_string(a[i]) + " instead of " + std::to_string(e[i]) +
             " (off by " + std::to_string(std::abs(a[i] - e[i]) / scale / std::max(tolerance, 1e-300)) + " tolerances)";
  }
  return "";
}

std::string differences(const char* what, const TensorList& actual, const TensorList& expected, double tolerance) {
  for (size_t i = 0; i < std::max(actual.size(), expected.size()); ++i) {
    Tensor a = i < actual.size() ? actual[i] : Tensor(), e = i < expected.size() ? expected[i] : Tensor();
    if (!a.defined() && !e.defined()) continue;
    if (!a.defined()) a = zeros_like(e);
    if (!e.defined()) e = zeros_like(a);
    const std::string text = difference(a, e, tolerance);
    if (!text.empty()) return std::string(what) + std::to_string(i) + ": " + text;
  }
  return "";
}

std::string differences(const Computed& actual, const Computed& expected, double tolerance) {
  std::string text = differences("result ", actual.y, expected.y, tolerance);
  if (text.empty()) text = differences("gradient of input ", actual.g, expected.g, 3 * tolerance);
  if (text.empty()) text = differences("second gradient of input ", actual.h, expected.h, 10 * tolerance);
  if (text.empty()) text = differences("second gradient of dy ", actual.hdy, expected.hdy, 10 * tolerance);
  return text;
}

std::string guarded(const std::function<std::string()>& body) {
  try {
    return body();
  } catch (const std::exception& error) { return std::string("threw: ") + error.what(); }
}

}  // namespace gradus::op_testing
