// Compares the gradients of every op case, and the gradients of these gradients, with finite differences in float64.
#include <string_view>

#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

// True if there are few elements. Finite differences run the case twice for every element, so large inputs take too
// long.
bool is_small(const TensorList& inputs) {
  int64_t elements = 0;
  for (const Tensor& x : inputs) elements += x.numel();
  return elements <= 256;
}

// Checks the cases whose name contains `part`.
void check_all(int order, Layout layout, std::string_view part = "") {
  const OneThread one_thread;
  for (const std::string& backend_name : backend_names()) {
    const BackendGuard guard(backend_name);
    for (const OpCase& op_case : op_cases::all_cases()) {
      // Finite differences need float64 from inputs to results, because float32 would round away their small steps.
      if (op_case.order < order || !op_case.smooth() || !op_case.runs_in(kDouble)) continue;
      if (op_case.result_dtype.value_or(kDouble) != kDouble) continue;
      if (op_case.contiguous_only && layout != Layout::contiguous) continue;
      if (op_case.name.find(part) == std::string::npos) continue;
      const TensorList inputs = place(op_cases::make_inputs(op_case, kDouble), layout, device_of(backend_name));
      if (!is_small(inputs)) continue;
      for (const Tensor& x : inputs)
        if (x.is_floating_point()) x.set_requires_grad(true);
      // A random operator must draw the same numbers in every evaluation.
      const auto run = [&](const TensorList& x) {
        manual_seed(20);
        TensorList tracked;
        for (const Tensor& y : op_case.run(x))
          if (y.is_floating_point() && (y.requires_grad() || !op_case.has_states)) tracked.push_back(y);
        return tracked;
      };
      const std::string problem = guarded([&] {
        const auto check = order == 1 ? autograd::gradcheck : autograd::gradgradcheck;
        return check(run, inputs, 1e-6, 1e-5, 1e-3, true) ? "" : "failed";
      });
      const std::string where = backend_name + " " + op_cases::name(layout) + " " + op_case.name + ": ";
      CHECK(where + problem == where);
    }
  }
}

}  // namespace

TEST_CASE("gradients agree with finite differences") { check_all(1, Layout::contiguous); }
TEST_CASE("gradients of strided inputs agree with finite differences") { check_all(1, Layout::strided); }
TEST_CASE("gradients of channels-last inputs agree with finite differences") { check_all(1, Layout::channels_last); }
TEST_CASE("second gradients of channels-last normalisation agree with finite differences") {
  check_all(2, Layout::channels_last, "_norm");
}
TEST_CASE("second gradients agree with finite differences") { check_all(2, Layout::contiguous); }
