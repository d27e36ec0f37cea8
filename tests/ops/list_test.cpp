// Tests the list of op cases: the comparisons of each case reject wrong results, and the list can be passed to
// tests/golden/make_golden.py as JSON.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <gradus/tests/catch.h>

#include "golden.h"

using namespace gradus;
using namespace gradus::op_cases;
using namespace gradus::op_testing;

namespace {

std::string quoted(const std::string& text) {
  std::string result(1, '"');
  for (char c : text) {
    if (c == '"' || c == '\\') result.push_back('\\');
    result.push_back(c);
  }
  result.push_back('"');
  return result;
}

template <class List, class Function>
std::string joined(const List& list, Function&& text_of) {
  std::string result;
  for (const auto& item : list) result += (result.empty() ? "" : ",") + text_of(item);
  return result;
}

// A number in JSON. Python's json module also accepts NaN and Infinity.
std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";  // Python reads "-0" as the integer 0
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string json(const Tensor& x) {
  const Tensor numbers = x.to(kDouble).contiguous();
  const double* data = numbers.data_ptr<double>();
  const std::vector<double> values(data, data + numbers.numel());
  return "{\"dtype\":" + quoted(std::string(name(x.dtype()))) + ",\"shape\":[" +
         joined(x.sizes(), [](int64_t size) { return std::to_string(size); }) + "],\"values\":[" +
         joined(values, number) + "]}";
}

std::string json(const OpCase& op_case) {
  std::vector<DType> types;
  for (DType dtype : {kDouble, kLong, kInt, kByte, kBool})
    if (op_case.runs_in(dtype)) types.push_back(dtype);
  const auto inputs = [&](DType dtype) {
    return quoted(std::string(name(dtype))) + ":[" +
           joined(make_inputs(op_case, dtype), [](const Tensor& x) { return json(x); }) + "]";
  };
  return "{\"name\":" + quoted(op_case.name) + ",\"family\":" + quoted(op_case.family) +
         ",\"torch\":" + quoted(op_case.torch) + ",\"order\":" + std::to_string(op_case.order) + ",\"inputs\":{" +
         joined(types, inputs) + "}}\n";
}

/// Wrong versions of x: all zeros; all signs flipped; and x with one element replaced by NaN, or off by ten times
/// `tolerance`. Versions that equal x are left out.
TensorList mutations(const Tensor& x, double tolerance) {
  const Tensor same = x.to(x.is_floating_point() ? kDouble : kLong).contiguous();
  const std::vector<double> numbers = test::values(x.array());
  const auto finite = std::find_if(numbers.begin(), numbers.end(), [](double value) { return std::isfinite(value); });
  TensorList found;
  if (std::any_of(numbers.begin(), numbers.end(), [](double value) { return std::abs(value) > 0; }))
    found = {zeros_like(same), -same};
  if (finite == numbers.end()) return found;
  const auto copy_of_element = [&] { return found.emplace_back(same.clone()).view({-1})[finite - numbers.begin()]; };
  if (!x.is_floating_point()) {
    copy_of_element().sub_(1);
    return found;
  }
  double scale = 0;
  for (double value : numbers)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  copy_of_element().fill_(NAN);
  copy_of_element().add_(tolerance * scale > 0 ? 10 * tolerance * scale : 1);
  return found;
}

/// `right` holds the correct results and derivatives of a case. Returns the name of one for which the comparison that
/// the other tests use would accept a wrong version; "" if there is none.
std::string accepted(const OpCase& op_case, DType dtype, const Computed& right) {
  const double tolerance = tolerance_of(op_case, dtype, right);
  const double largest = tolerance * (op_case.order == 0 ? 1 : op_case.order == 1 ? kGradient : kSecondGradient);
  if (largest >= 0.25) return "a tolerance of " + std::to_string(largest);
  const auto check = [&](const char* what, TensorList Computed::*part, double factor) -> std::string {
    for (size_t i = 0; i < (right.*part).size(); ++i) {
      const Tensor& x = (right.*part)[i];
      if (!x.defined()) continue;
      for (const Tensor& mutation : mutations(x, x.is_floating_point() ? factor * tolerance : 0)) {
        Computed wrong = right;
        (wrong.*part)[i] = mutation;
        if (differences(wrong, right, tolerance, scale_of(op_case)).empty())
          return what + std::to_string(i) + " may be " + number(test::values(mutation.array())[0]) + ", …";
      }
    }
    return "";
  };
  std::string text = check("result ", &Computed::y, 1);
  if (text.empty()) text = check("gradient of input ", &Computed::g, kGradient);
  if (text.empty()) text = check("second gradient of input ", &Computed::h, kSecondGradient);
  if (text.empty()) text = check("second gradient of dy ", &Computed::hdy, kSecondGradient);
  return text;
}

}  // namespace

TEST_CASE("comparisons refuse zeros, swapped signs and errors of ten tolerances, of every op case in every type",
          "[accuracy]") {
  const OneThread one_thread;
  const BackendGuard guard("naive");
  for (const OpCase& op_case : all_cases()) {
    for (DType dtype : {kDouble, kFloat, kHalf, kBFloat16, kLong, kInt, kByte, kBool}) {
      if (!op_case.runs_in(dtype)) continue;
      const std::string where = std::string(name(dtype)) + " " + op_case.name + ": ";
      if (!op_case.torch.empty()) CHECK(where + accepted(op_case, dtype, golden_of(op_case, dtype).results) == where);
      const TensorList inputs = place(make_inputs(op_case, dtype), Layout::contiguous, Device());
      const Computed result = compute(op_case, inputs, std::min(op_case.order, 1));
      CHECK(where + accepted(op_case, dtype, result) == where);
    }
  }
}

TEST_CASE("list the op cases", "[.]") {
  const char* path = std::getenv("GRADUS_OP_CASE_LIST");
  REQUIRE(path);
  std::vector<const OpCase*> golden;
  for (const OpCase& op_case : all_cases())
    if (!op_case.torch.empty()) golden.push_back(&op_case);
  std::ofstream(path) << "[" << joined(golden, [](const OpCase* op_case) { return json(*op_case); }) << "]";
}
