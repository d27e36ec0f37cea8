// Runs every op case on every backend and compares the results with those of naive. Cases without golden values are
// included. Results of random operators must be bit-identical.
#include <algorithm>

#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

bool is_random(const OpCase& op_case) {
  const char* names[] = {"rand",     "randn",   "rand_like",  "randn_like",  "randint",      "randperm", "bernoulli",
                         "uniform_", "normal_", "bernoulli_", "multinomial", "randint_like", "normal"};
  return std::any_of(std::begin(names), std::end(names), [&](const char* name) { return op_case.op() == name; });
}

Computed run_on(const std::string& backend_name, const OpCase& op_case, const TensorList& inputs, Layout layout,
                int order) {
  const BackendGuard guard(backend_name);
  return compute(op_case, place(inputs, layout, device_of(backend_name)), order);
}

std::string compare(const std::string& backend_name, const OpCase& op_case, DType dtype, Layout layout) {
  const TensorList inputs = op_cases::make_inputs(op_case, dtype);
  const int order = std::min(op_case.order, 1);
  const Computed expected = run_on("naive", op_case, inputs, layout, order);
  const Computed actual = run_on(backend_name, op_case, inputs, layout, order);
  if (actual.y.size() != expected.y.size())
    return std::to_string(actual.y.size()) + " results, naive has " + std::to_string(expected.y.size());
  for (size_t i = 0; i < expected.y.size(); ++i)
    if (!(actual.y[i].strides() == expected.y[i].strides()))
      return "strides " + to_string(actual.y[i].strides()) + ", naive's are " + to_string(expected.y[i].strides());
  if (is_random(op_case)) return differences("result ", actual.y, expected.y, 0);
  return differences(actual, expected, tolerance_of(op_case, dtype, expected), scale_of(op_case));
}

}  // namespace

TEST_CASE("every backend agrees with naive") {
  for (const std::string& backend_name : backend_names()) {
    if (backend_name == "naive") continue;
    for (const OpCase& op_case : op_cases::all_cases()) {
      for (DType dtype : {kDouble, kFloat, kHalf, kBFloat16}) {
        if (!op_case.runs_in(dtype)) continue;
        for (Layout layout : {Layout::contiguous, Layout::strided, Layout::channels_last}) {
          if (op_case.contiguous_only && layout != Layout::contiguous) continue;
          const std::string where = backend_name + " " + std::string(name(dtype)) + " " + op_cases::name(layout) + " ";
          const std::string problem = guarded([&] { return compare(backend_name, op_case, dtype, layout); });
          CHECK(where + op_case.name + ": " + problem == where + op_case.name + ": ");
        }
      }
    }
  }
}

TEST_CASE("every backend gives the same bits run after run") {
  for (const std::string& backend_name : backend_names()) {
    for (const OpCase& op_case : op_cases::all_cases()) {
      if (!op_case.runs_in(kFloat)) continue;
      const TensorList inputs = op_cases::make_inputs(op_case, kFloat);
      const std::string problem = guarded([&] {
        const int order = std::min(op_case.order, 1);
        const Computed first = run_on(backend_name, op_case, inputs, Layout::contiguous, order);
        return differences(run_on(backend_name, op_case, inputs, Layout::contiguous, order), first, 0);
      });
      CHECK(backend_name + " " + op_case.name + ": " + problem == backend_name + " " + op_case.name + ": ");
    }
  }
}
