#include "op_testing.h"

#include <algorithm>

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

double tolerance_of(const OpCase& op_case, DType dtype, const Computed& expected) {
  double largest = op_case.tolerances.of(dtype);
  for (const Tensor& y : expected.y) largest = std::max(largest, op_case.tolerances.of(y.dtype()));
  return largest;
}

Scale scale_of(const OpCase& op_case) { return op_case.has_special_numbers() ? Scale::own : Scale::largest; }

// Like test::difference(), but the error of each element is relative to that element.
static std::string difference_of_elements(const Tensor& actual, const Tensor& expected, double tolerance) {
  std::string text = test::difference(actual, expected, tolerance);
  const std::vector<double> a = test::values(actual.array()), e = test::values(expected.array());
  for (size_t i = 0; text.empty() && i < e.size(); ++i) {
    const double size = test::error(std::vector{a[i]}, std::vector{e[i]});
    if (!(size <= tolerance))
      text = "element " + std::to_string(i) + " is " + std::to_string(a[i]) + " instead of " + std::to_string(e[i]);
  }
  return text;
}

std::string differences(const char* what, const TensorList& actual, const TensorList& expected, double tolerance,
                        Scale scale) {
  for (size_t i = 0; i < std::max(actual.size(), expected.size()); ++i) {
    Tensor a = i < actual.size() ? actual[i] : Tensor(), e = i < expected.size() ? expected[i] : Tensor();
    if (!a.defined() && !e.defined()) continue;
    if (!a.defined()) a = zeros_like(e);
    if (!e.defined()) e = zeros_like(a);
    const auto difference = scale == Scale::own ? difference_of_elements : test::difference;
    const std::string text = difference(a, e, e.is_floating_point() ? tolerance : 0);
    if (!text.empty()) return std::string(what) + std::to_string(i) + ": " + text;
  }
  return "";
}

std::string differences(const Computed& actual, const Computed& expected, double tolerance, Scale scale) {
  const double second = kSecondGradient * tolerance;
  std::string text = differences("result ", actual.y, expected.y, tolerance, scale);
  if (text.empty()) text = differences("gradient of input ", actual.g, expected.g, kGradient * tolerance, scale);
  if (text.empty()) text = differences("second gradient of input ", actual.h, expected.h, second, scale);
  if (text.empty()) text = differences("second gradient of dy ", actual.hdy, expected.hdy, second, scale);
  return text;
}

std::string guarded(const std::function<std::string()>& body) {
  try {
    return body();
  } catch (const std::exception& error) { return std::string("threw: ") + error.what(); }
}

}  // namespace gradus::op_testing
