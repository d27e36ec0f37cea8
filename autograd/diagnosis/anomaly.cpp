// Anomaly mode: finds the operator that produced the first NaN or infinity, or the input that already contained it.
#include <string>

#include <gradus/autograd/engine.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus::detail {
namespace {

bool is_anomalous(const Array& array) {
  if (!array.defined() || !is_floating(array.dtype()) || array.numel() == 0) return false;
  const Array finite = ops::unary(UnaryOp::isfinite, array);
  return !ops::item(ops::reduce(ReduceOp::all, finite, axis_mask({}, finite.ndim()), false, DType::boolean)).to_bool();
}

template <class... Parts>
std::string text_of(const Parts&... parts) {
  Message message;
  (message << ... << parts);
  return std::move(message).take();
}

// "a NaN", "an inf" or "a NaN and an inf"
const char* anomaly_in(const Array& array) {
  const auto any = [&](UnaryOp op) {
    const Array found = ops::unary(op, array);
    return ops::item(ops::reduce(ReduceOp::any, found, axis_mask({}, found.ndim()), false, DType::boolean)).to_bool();
  };
  const bool nan = any(UnaryOp::isnan), inf = any(UnaryOp::isinf);
  return nan && inf ? "a NaN and an inf" : nan ? "a NaN" : "an inf";
}

std::string place_of(const Node& node, const char* direction) {
  std::string place = std::string(direction) + " of " + node.name();
  if (!node.module_path().empty()) place += " in layer '" + node.module_path() + "'";
  return place;
}

std::string kind_of(const Tensor& input) {
  if (!input.is_leaf()) return "a result of " + std::string(input.grad_fn()->name());
  return input.requires_grad() ? "a parameter" : "a tensor without history, such as data";
}

// The anomaly found in the inputs of the last recorded node before it ran; "" if all were finite.
struct Inputs {
  uint64_t node = 0;  // its sequence number
  std::string anomaly;
};
thread_local Inputs last_inputs;

}  // namespace

void note_inputs(const Node& node, const Tensor* const* inputs, size_t count) {
  last_inputs = {node.sequence(), ""};
  for (size_t i = 0; i < count && last_inputs.anomaly.empty(); ++i) {
    const Tensor& input = *inputs[i];
    if (!input.defined() || !is_anomalous(input.array())) continue;
    last_inputs.anomaly = text_of("input ", i, " of shape ", input.sizes(), ", ", kind_of(input), ", already held ",
                                  anomaly_in(input.array()));
  }
}

void check_result(const Node& node, const Array& result) {
  if (!is_anomalous(result)) return;
  const bool from_input = last_inputs.node == node.sequence() && !last_inputs.anomaly.empty();
  GRADUS_CHECK(!from_input, AutogradError, place_of(node, "forward"), " returned ", anomaly_in(result),
               " in a tensor of shape ", result.shape(), ", but did not produce it: its ", last_inputs.anomaly);
  GRADUS_FAIL(AutogradError, place_of(node, "forward"), " made a NaN or inf in a tensor of shape ", result.shape());
}

std::string anomaly_before_backward(const Node& node, const Grads& dys, const Tensor& addend) {
  Grads arriving = dys;
  arriving.push_back(addend);
  for (const Tensor& dy : arriving)
    if (dy.defined() && is_anomalous(dy.array()))
      return text_of("the gradient of its output, of shape ", dy.sizes(), ", already held ", anomaly_in(dy.array()),
                     " (from the gradient given to backward(), a hook, or the sum of several gradients)");
  for (const Saved* saved = node.saved(); saved; saved = saved->next())
    if (is_anomalous(saved->peek()))
      return text_of("'", saved->name(), "' of shape ", saved->peek().shape(), ", which it saved in forward, ",
                     "already held ", anomaly_in(saved->peek()), ": run forward under AnomalyGuard, too");
  return "";
}

void check_gradient(const Node& node, const Array& gradient, const std::string& before) {
  if (!is_anomalous(gradient)) return;
  GRADUS_CHECK(before.empty(), AutogradError, place_of(node, "backward"), " returned ", anomaly_in(gradient),
               " in a tensor of shape ", gradient.shape(), ", but did not produce it: ", before);
  GRADUS_FAIL(AutogradError, place_of(node, "backward"), " made a NaN or inf in a tensor of shape ", gradient.shape());
}

}  // namespace gradus::detail
