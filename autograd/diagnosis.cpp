#include <gradus/autograd/diagnosis.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <gradus/autograd/engine.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace autograd {

// ---- gradcheck ----

namespace {

// Returns the floating results of f, with or without a history.
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
    // Perturbs each element, in row-major order, through a view `element` of the input.
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
    const TensorList xs(arguments.begin(), arguments.begin() + std::ssize(inputs));
    const TensorList dys(arguments.begin() + std::ssize(inputs), arguments.end());
    TensorList wanted;
    for (const Tensor& x : xs)
      if (x.defined() && x.requires_grad()) wanted.push_back(x);
    return gradients_of(results_of(f, xs), wanted, dys, true);
  };
  return gradcheck(gradients, all, eps, atol, rtol, raise);
}

// ---- Drawing the graph ----

namespace {

// Returns every node in the graph of `root` once.
std::vector<Ref<Node>> nodes_behind(const Tensor& root) {
  std::vector<Ref<Node>> found;
  std::set<Node*> seen;
  const auto visit = [&](const Edge& edge) {
    if (edge.node && seen.insert(edge.node.get()).second) found.push_back(edge.node);
  };
  visit(gradient_edge(root));
  for (size_t i = 0; i < found.size(); ++i) std::ranges::for_each(found[i]->edges(), visit);
  return found;
}

std::string describe(const Array& array) { return std::string(gradus::name(array.dtype())) + to_string(array.shape()); }

// Formats the elements of a small tensor in row-major order with `before` as a prefix; "" for larger tensors.
std::string numbers(const char* before, const Tensor& x) {
  constexpr int64_t kMost = 8;
  if (!x.defined() || x.numel() == 0 || x.numel() > kMost) return "";
  const Tensor flat = x.detach().to(kCPU).to(kDouble).reshape(-1);
  std::ostringstream text;
  text << std::setprecision(4) << before;
  for (int64_t i = 0; i < flat.numel(); ++i) text << (i > 0 ? ", " : "") << flat[i].item<double>();
  return text.str();
}

}  // namespace

std::string graph_to_dot(const Tensor& root) {
  const std::vector<Ref<Node>> nodes = nodes_behind(root);
  std::map<const Node*, int> number;
  for (const Ref<Node>& node : nodes) number.emplace(node.get(), static_cast<int>(number.size()));

  std::string dot = "digraph autograd {\n  rankdir=BT;\n  node [shape=box, fontname=\"monospace\"];\n";
  for (const Ref<Node>& node : nodes) {
    std::string label = node->name();
    if (!node->module_path().empty()) label += "\\n" + node->module_path();
    if (node->is_accumulator()) {
      const Tensor& leaf = static_cast<const AccumulateGrad&>(*node).leaf();
      label += "\\n" + describe(leaf.array()) + numbers("\\n", leaf) + numbers("\\ngradient ", leaf.grad());
    }
    int64_t bytes = 0;
    for (const Saved* saved = node->saved(); saved; saved = saved->next()) {
      if (!saved->peek().defined()) continue;
      const int64_t size = static_cast<int64_t>(saved->peek().nbytes());
      bytes += size;
      label += "\\nsaved " + std::string(saved->name()) + ": " + describe(saved->peek()) + ", " + std::to_string(size) +
               " B" + numbers("\\n", Tensor(saved->peek()));
    }
    if (bytes > 0) label += "\\n" + std::to_string(bytes) + " B saved";
    dot += "  n" + std::to_string(number[node.get()]) + " [label=\"" + label + "\"" +
           (node->is_accumulator() ? ", style=filled, fillcolor=lightblue" : "") + "];\n";
  }
  for (const Ref<Node>& node : nodes)
    for (const Edge& edge : node->edges()) {
      if (!edge.node) continue;
      dot += "  n" + std::to_string(number[edge.node.get()]) + " -> n" + std::to_string(number[node.get()]);
      if (edge.input < edge.node->outputs().size())
        dot += " [label=\"" + to_string(edge.node->outputs()[edge.input].shape) + "\"]";
      dot += ";\n";
    }
  return dot + "}\n";
}

int64_t saved_bytes(const Tensor& root) {
  std::map<const void*, int64_t> storages;  // keyed by the address of the first byte
  for (const Ref<Node>& node : nodes_behind(root))
    for (const Saved* saved = node->saved(); saved; saved = saved->next())
      if (saved->peek().defined())
        storages[saved->peek().storage().data()] = static_cast<int64_t>(saved->peek().storage().bytes());
  int64_t bytes = 0;
  for (const auto& [data, size] : storages) bytes += size;
  return bytes;
}

TensorList leaves_behind(const Tensor& root) {
  TensorList leaves;
  for (const Ref<Node>& node : nodes_behind(root))
    if (node->is_accumulator()) leaves.push_back(static_cast<const AccumulateGrad&>(*node).leaf());
  return leaves;
}

}  // namespace autograd

// ---- Anomaly mode ----

namespace detail {
namespace {

bool is_anomalous(const Array& array) {
  if (!array.defined() || !is_floating(array.dtype()) || array.numel() == 0) return false;
  return !ops::all_true(ops::unary(UnaryOp::isfinite, array));
}

// Returns "a NaN", "an inf" or "a NaN and an inf", depending on what `array` contains.
const char* anomaly_in(const Array& array) {
  const auto any = [&](UnaryOp op) {
    const Array found = ops::unary(op, array);
    return ops::item(ops::reduce(ReduceOp::any, found, axis_mask({}, found.ndim()), false, DType::boolean)).to_bool();
  };
  const bool nan = any(UnaryOp::isnan), inf = any(UnaryOp::isinf);
  return nan && inf ? "a NaN and an inf" : nan ? "a NaN" : "an inf";
}

// Throws if `array`, a result of the node's forward or backward, is anomalous. `before` describes an anomaly that was
// there before; "" if there was none.
void check_made(const Node& node, const char* direction, const Array& array, const std::string& before) {
  if (!is_anomalous(array)) return;
  std::string place = text_of(direction, " of ", node.name());
  if (!node.module_path().empty()) place += " in layer '" + node.module_path() + "'";
  GRADUS_CHECK(before.empty(), AutogradError, place, " returned ", anomaly_in(array), " in a tensor of shape ",
               array.shape(), ", but did not produce it: ", before);
  GRADUS_FAIL(AutogradError, place, " made a NaN or inf in a tensor of shape ", array.shape());
}

std::string kind_of(const Tensor& input) {
  if (!input.is_leaf()) return "a result of " + std::string(input.grad_fn()->name());
  return input.requires_grad() ? "a parameter" : "a tensor without history, such as data";
}

// The anomaly found in the inputs of the last recorded node before it ran; "" if all were finite.
struct Inputs {
  uint64_t node = 0;  // sequence number of that node
  std::string anomaly;
};
thread_local Inputs last_inputs;

}  // namespace

void note_inputs(const Node& node, TensorPointers inputs) {
  last_inputs = {node.sequence(), ""};
  for (size_t i = 0; i < inputs.size() && last_inputs.anomaly.empty(); ++i) {
    const Tensor& input = *inputs[i];
    if (!input.defined() || !is_anomalous(input.array())) continue;
    last_inputs.anomaly = text_of("its input ", i, " of shape ", input.sizes(), ", ", kind_of(input), ", already held ",
                                  anomaly_in(input.array()));
  }
}

void check_result(const Node& node, const Array& result) {
  check_made(node, "forward", result, last_inputs.node == node.sequence() ? last_inputs.anomaly : "");
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
  check_made(node, "backward", gradient, before);
}

}  // namespace detail
}  // namespace gradus
