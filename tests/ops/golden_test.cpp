// Compares every op case with PyTorch (tests/golden/op_cases/FAMILY.safetensors): results, gradients and second
// gradients, on every backend, in every element type and layout. Half types are compared with the float64 values, with
// a tolerance of their own.
#include <algorithm>

#include <gradus/tests/catch.h>

#include "golden.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

std::vector<Layout> layouts_of(const OpCase& op_case) {
  if (op_case.contiguous_only) return {Layout::contiguous};
  return {Layout::contiguous, Layout::transposed, Layout::strided, Layout::channels_last};
}

std::string check_dtypes(const OpCase& op_case, const TensorList& y, const TensorList& expected, DType dtype) {
  for (size_t i = 0; i < y.size(); ++i) {
    const DType golden = expected[i].dtype();
    const DType wanted = op_case.result_dtype                        ? *op_case.result_dtype
                         : is_floating(dtype) && is_floating(golden) ? dtype
                                                                     : golden;
    if (y[i].dtype() != wanted)
      return "result " + std::to_string(i) + " is " + std::string(name(y[i].dtype())) + " instead of " +
             std::string(name(wanted));
  }
  return "";
}

std::string check_case(const OpCase& op_case, DType dtype, Layout layout, Device device) {
  const Golden golden = golden_of(op_case, dtype);
  const Computed& expected = golden.results;
  const size_t outputs = expected.y.size();
  const Computed actual = compute(op_case, place(golden.inputs, layout, device), op_case.order, golden.directions);
  if (actual.y.size() != outputs)
    return std::to_string(actual.y.size()) + " results instead of " + std::to_string(outputs);
  for (size_t i = 0; i < outputs; ++i) {
    if (op_case.order > 0 && actual.y[i].requires_grad() != golden.directions.dy[i].defined())
      return "result " + std::to_string(i) + (actual.y[i].requires_grad() ? " requires" : " does not require") +
             " a gradient";
    if (!(actual.y[i].device() == device))
      return "result " + std::to_string(i) + " is on " + actual.y[i].device().str();
  }
  const std::string wrong = check_dtypes(op_case, actual.y, expected.y, dtype);
  if (!wrong.empty()) return wrong;
  return differences(actual, expected, tolerance_of(op_case, dtype, expected), scale_of(op_case));
}

void check_all(DType dtype) {
  const OneThread one_thread;
  for (const std::string& backend_name : backend_names()) {
    const BackendGuard guard(backend_name);
    for (const OpCase& op_case : op_cases::all_cases()) {
      if (op_case.torch.empty() || !op_case.runs_in(dtype)) continue;
      for (Layout layout : layouts_of(op_case)) {
        const std::string where = backend_name + " " + std::string(name(dtype)) + " " + op_cases::name(layout) + " ";
        const std::string problem =
            guarded([&] { return check_case(op_case, dtype, layout, device_of(backend_name)); });
        CHECK(where + op_case.name + ": " + problem == where + op_case.name + ": ");
      }
    }
  }
}

// Returns the name of a derivative that is missing in the golden file, because the file was made from an older list of
// cases; "" if none is missing. The comparison itself would treat a missing derivative as zeros.
std::string missing_derivatives(const OpCase& op_case, const Golden& golden) {
  const auto is_tracked = [](const Tensor& dy) { return dy.defined(); };
  if (op_case.order == 0 || std::none_of(golden.directions.dy.begin(), golden.directions.dy.end(), is_tracked))
    return "";
  for (size_t i = 0; i < golden.inputs.size(); ++i) {
    if (!golden.inputs[i].is_floating_point()) continue;
    if (!golden.results.g[i].defined()) return "gradient of input " + std::to_string(i);
    if (op_case.order > 1 && !golden.results.h[i].defined()) return "second gradient of input " + std::to_string(i);
  }
  for (size_t i = 0; i < golden.directions.dy.size() && op_case.order > 1; ++i)
    if (golden.directions.dy[i].defined() && !golden.results.hdy[i].defined())
      return "second gradient of dy " + std::to_string(i);
  return "";
}

}  // namespace

TEST_CASE("golden values belong to the op cases of this tree") {
  for (const OpCase& op_case : op_cases::all_cases()) {
    INFO(op_case.name << ": run tests/golden/make_golden.py");
    CHECK(golden_call(op_case) == op_case.torch);
    if (op_case.torch.empty() || !op_case.runs_in(kDouble)) continue;
    const TensorList inputs = op_cases::make_inputs(op_case, kDouble);
    const Golden golden = golden_of(op_case, kDouble);
    CHECK(differences("input ", golden.inputs, inputs, 0) == "");
    for (size_t i = 0; i < inputs.size(); ++i) {  // compares the signs of zeros
      if (!inputs[i].is_floating_point() || inputs[i].numel() == 0) continue;
      const Tensor signs = where(inputs[i] == 0, reciprocal(inputs[i]), 0.0);
      CHECK(differences("sign of zeros of input ", {where(golden.inputs[i] == 0, reciprocal(golden.inputs[i]), 0.0)},
                        {signs}, 0) == "");
    }
    CHECK(missing_derivatives(op_case, golden) == "");
  }
}

TEST_CASE("operators give PyTorch's values: float64") { check_all(kDouble); }
TEST_CASE("operators give PyTorch's values: float32") { check_all(kFloat); }
TEST_CASE("operators give PyTorch's values: float16") { check_all(kHalf); }
TEST_CASE("operators give PyTorch's values: bfloat16") { check_all(kBFloat16); }
TEST_CASE("operators give PyTorch's values: int64") { check_all(kLong); }
TEST_CASE("operators give PyTorch's values: int32") { check_all(kInt); }
TEST_CASE("operators give PyTorch's values: uint8") { check_all(kByte); }
TEST_CASE("operators give PyTorch's values: bool") { check_all(kBool); }
