// Operators save and compute only what the required gradients need. The gradient of an operand does not depend on which
// other operands require gradients, nor on whether it will be differentiated.
#include <cmath>
#include <string>

#include <gradus/core/ops/ops.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/decisions.h>

#include "op_testing.h"

namespace needed_gradients_test {

using namespace gradus;
using namespace gradus::op_testing;

/// A bit for each floating input.
uint32_t floating_inputs(const TensorList& inputs) {
  uint32_t floating = 0;
  for (size_t k = 0; k < inputs.size(); ++k) floating |= inputs[k].is_floating_point() ? 1u << k : 0;
  return floating;
}

/// The number of elements of all inputs.
int64_t elements_of(const TensorList& inputs) {
  int64_t elements = 0;
  for (const Tensor& x : inputs) elements += x.numel();
  return elements;
}

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
      const uint32_t all = floating_inputs(numbers), without_first = all & (all - 1);
      if (without_first == 0 || elements_of(numbers) > 2000) continue;  // less than two operands with gradients
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

/// The operands (as digits) and the result (y) whose change in place after the call makes the backward pass an error,
/// where the operands in `required` require gradients.
std::string saved_of(const OpCase& op_case, const TensorList& numbers, uint32_t required) {
  std::string saved;
  for (size_t changed = 0; changed <= numbers.size(); ++changed) {
    TensorList inputs;
    for (size_t k = 0; k < numbers.size(); ++k)
      inputs.push_back(
          Tensor(ops::clone(numbers[k].array()), numbers[k].is_floating_point() && (required >> k & 1u) != 0));
    manual_seed(20);
    const TensorList results = op_case.run(inputs);
    TensorList tracked, dy, wanted;
    for (const Tensor& y : results) {
      if (!y.requires_grad()) continue;
      tracked.push_back(y), dy.push_back(ones_like(y.detach()));
    }
    if (tracked.empty()) return "-";
    for (const Tensor& x : inputs)
      if (x.requires_grad()) wanted.push_back(x);
    (changed < inputs.size() ? inputs[changed] : results[0]).array().bump_version();
    try {
      autograd::grad(tracked, wanted, dy, {}, false, true);
    } catch (const AutogradError&) { saved += changed < inputs.size() ? std::to_string(changed) : "y"; }
  }
  return saved.empty() ? "nothing" : saved;
}

TEST_CASE("operators save the operands that are listed for them, and no more") {
  const OneThread one_thread;
  const BackendGuard guard("naive");
  std::string text;
  for (const OpCase& op_case : op_cases::all_cases()) {
    if (op_case.order == 0 || !op_case.runs_in(kDouble)) continue;
    const TensorList numbers = op_cases::make_inputs(op_case, kDouble);
    const uint32_t all = floating_inputs(numbers);
    if (elements_of(numbers) > 2000) continue;
    text += op_case.name + ": " + saved_of(op_case, numbers, all);
    for (size_t k = 0; k < numbers.size() && (all & (all - 1)) != 0; ++k)
      if ((all >> k & 1u) != 0) text += ", " + std::to_string(k) + " alone: " + saved_of(op_case, numbers, 1u << k);
    text += "\n";
  }
  test::check_decisions("ops/saved_operands.txt", text);
}

/// The second gradients of the result in a direction, as a number, of inputs moved by `step` along another direction.
Tensor second_derivative(const OpCase& op_case, const TensorList& inputs) {
  manual_seed(20);
  TensorList tracked, dy, wanted;
  const TensorList results = op_case.run(inputs);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].requires_grad()) continue;
    tracked.push_back(results[i] + results[i].square()),  // so that the first gradients depend on the results
        dy.push_back(op_cases::make_like(results[i], op_case.name + "/dy" + std::to_string(i)));
  }
  for (const Tensor& x : inputs)
    if (x.requires_grad()) wanted.push_back(x);
  Tensor sum = zeros({}, kDouble);
  if (tracked.empty()) return sum;
  for (int order = 1; order <= 2; ++order) {
    TensorList next, directions;
    const TensorList gradients = autograd::grad(tracked, wanted, dy, true, true, true);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const Tensor v =
          op_cases::make_like(gradients[i], op_case.name + "/v" + std::to_string(10 * static_cast<size_t>(order) + i));
      if (order == 2) sum = sum + (gradients[i] * v).sum();
      else if (gradients[i].requires_grad())  // squares, so that what arrives at the nodes of the gradients varies
        next.push_back(gradients[i] + gradients[i].square()), directions.push_back(v);
    }
    if (next.empty()) break;
    tracked = next, dy = directions;
  }
  return sum;
}

TEST_CASE("third derivatives along a line agree with differences of second derivatives") {
  const OneThread one_thread;
  const BackendGuard guard("naive");
  int checked = 0;
  for (const OpCase& op_case : op_cases::all_cases()) {
    if (op_case.order < 2 || !op_case.smooth() || !op_case.runs_in(kDouble)) continue;
    if (op_case.result_dtype.value_or(kDouble) != kDouble) continue;
    const TensorList numbers = op_cases::make_inputs(op_case, kDouble);
    if (elements_of(numbers) > 500) continue;
    const auto moved = [&](double step) {
      TensorList inputs;
      for (size_t k = 0; k < numbers.size(); ++k) {
        const Tensor& x = numbers[k];
        const bool is_moved = x.is_floating_point();
        inputs.push_back(
            Tensor((is_moved ? x + op_cases::make_like(x, op_case.name + "/d" + std::to_string(k)) * step : x).array(),
                   is_moved));
      }
      return inputs;
    };
    INFO(op_case.name);
    try {
      const TensorList inputs = moved(0);
      const Tensor second = second_derivative(op_case, inputs);
      double analytic = 0;
      if (second.requires_grad()) {
        TensorList wanted, directions;
        for (size_t k = 0; k < inputs.size(); ++k) {
          if (!inputs[k].requires_grad()) continue;
          wanted.push_back(inputs[k]),
              directions.push_back(op_cases::make_like(inputs[k], op_case.name + "/d" + std::to_string(k)));
        }
        const TensorList third = autograd::grad({second}, wanted, {}, {}, false, true);
        for (size_t k = 0; k < third.size(); ++k)
          if (third[k].defined()) analytic += (third[k] * directions[k]).sum().item<double>();
      }
      constexpr double kStep = 1e-5;
      const double above = second_derivative(op_case, moved(kStep)).item<double>();
      const double below = second_derivative(op_case, moved(-kStep)).item<double>();
      const double numeric = (above - below) / (2 * kStep), size = std::abs(second.item<double>()) + std::abs(numeric);
      CHECK(analytic == Approx(numeric).margin(1e-5 * size + 1e-7).epsilon(1e-4));
      ++checked;
    } catch (const AutogradError& error) { CHECK_THAT(std::string(error.what()), test::contains("has no derivative")); }
  }
  CHECK(checked > 300);
}

}  // namespace needed_gradients_test
