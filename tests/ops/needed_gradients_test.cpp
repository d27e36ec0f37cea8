// Operators save and compute only what the required gradients need. The gradient of an operand does not depend on which
// other operands require gradients, nor on whether it will be differentiated.
#include <gradus/tests/catch.h>

#include "op_testing.h"

namespace needed_gradients_test {

using namespace gradus;
using namespace gradus::op_testing;

/// First and second derivatives with respect to input `i`.
struct Derivatives {
  Tensor g;  ///< of sum(y * dy)
  Tensor h;  ///< of sum(g * v), if `twice`
};

/// Computes the derivatives with respect to input `i`, where the inputs in `required` require gradients.
Derivatives derivatives(const OpCase& op_case, const TensorList& numbers, uint32_t required, size_t i, bool twice) {
  TensorList inputs;
  for (size_t k = 0; k < numbers.size(); ++k)
    inputs.push_back(Tensor(numbers[k].array(), numbers[k].is_floating_point() && (required >> k & 1u) != 0));
  manual_seed(20);
  TensorList tracked, dy;
  const TensorList results = op_case.run(inputs);
  for (size_t k = 0; k < results.size(); ++k) {
    if (!results[k].requires_grad()) continue;
    dy.push_back(op_cases::make_like(results[k], op_case.name + "/dy" + std::to_string(k)));
    tracked.push_back(results[k]);
  }
  Derivatives found;
  if (tracked.empty()) return found;
  found.g = autograd::grad(tracked, {inputs[i]}, dy, twice, twice, true)[0];
  if (!twice || !found.g.defined() || !found.g.requires_grad()) return found;
  const Tensor v = op_cases::make_like(found.g, op_case.name + "/v");
  found.h = autograd::grad({found.g}, {inputs[i]}, {v}, false, false, true)[0];
  return found;
}

TEST_CASE("the gradient of an operand does not depend on which other operands require gradients") {
  const OneThread one_thread;
  for (const std::string& backend_name : backend_names()) {
    if (!device_of(backend_name).is_cpu()) continue;
    const BackendGuard guard(backend_name);
    for (const OpCase& op_case : op_cases::all_cases()) {
      if (op_case.order == 0 || !op_case.runs_in(kDouble)) continue;
      const TensorList numbers = op_cases::make_inputs(op_case, kDouble);
      uint32_t all = 0;
      int64_t elements = 0;
      for (size_t k = 0; k < numbers.size(); ++k) {
        all |= numbers[k].is_floating_point() ? 1u << k : 0;
        elements += numbers[k].numel();
      }
      const uint32_t without_first = all & (all - 1);
      if (without_first == 0 || elements > 2000) continue;  // less than two operands with gradients
      for (size_t i = 0; i < numbers.size(); ++i) {
        if ((all >> i & 1u) == 0) continue;
        const std::string where = backend_name + " " + op_case.name + ", operand " + std::to_string(i) + ": ";
        const std::string problem = guarded([&] {
          const bool twice = op_case.order > 1;
          const Derivatives wanted = derivatives(op_case, numbers, all, i, twice);
          std::string found;
          for (const uint32_t required : {all, 1u << i, without_first | 1u << i})
            for (const bool again : {false, true}) {
              if (again && !twice) continue;
              const Derivatives derived = derivatives(op_case, numbers, required, i, again);
              if (derived.g.defined() != wanted.g.defined()) found += "has a gradient in some calls alone ";
              found += differences("gradient ", {derived.g}, {wanted.g}, 1e-9, scale_of(op_case));
              if (again) found += differences("second gradient ", {derived.h}, {wanted.h}, 1e-9, scale_of(op_case));
            }
          return found;
        });
        CHECK(where + problem == where);
      }
    }
  }
}

}  // namespace needed_gradients_test
