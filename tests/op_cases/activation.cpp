// Activation functions.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

using NamedCall = std::tuple<const char*, Tensor (*)(X), const char*>;

// The kinks of hardswish are excluded: PyTorch's derivative there depends on the size of the tensor.
static void add_elements(CaseList& cases) {
  const auto add = [&](const char* name, const Shape& shape, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, {Input(shape, Fill::any)}, run, torch).keeps_layout();
  };
  add("leaky_relu", {3, 5}, [](X x) { return leaky_relu(x[0]); }, "F.leaky_relu(x[0])");
  add("leaky_relu.slope", {3, 5}, [](X x) { return leaky_relu(x[0], 0.3); }, "F.leaky_relu(x[0], 0.3)");
  add("elu", {3, 5}, [](X x) { return elu(x[0]); }, "F.elu(x[0])");
  add("elu.alpha", {3, 5}, [](X x) { return elu(x[0], 0.5); }, "F.elu(x[0], 0.5)");
  add("elu.scales", {3, 5}, [](X x) { return elu(x[0], 0.5, 1.5, 2); }, "torch.ops.aten.elu(x[0], 0.5, 1.5, 2)");
  add("selu", {3, 5}, [](X x) { return selu(x[0]); }, "F.selu(x[0])");
  add("celu", {3, 5}, [](X x) { return celu(x[0]); }, "F.celu(x[0])");
  add("celu.alpha", {3, 5}, [](X x) { return celu(x[0], 0.5); }, "F.celu(x[0], 0.5)");
  add("gelu", {3, 5}, [](X x) { return gelu(x[0]); }, "F.gelu(x[0])");
  add("gelu.tanh", {3, 5}, [](X x) { return gelu(x[0], "tanh"); }, "F.gelu(x[0], approximate='tanh')");
  add("silu", {3, 5}, [](X x) { return silu(x[0]); }, "F.silu(x[0])");
  add("silu.image", {2, 3, 4, 5}, [](X x) { return silu(x[0]); }, "F.silu(x[0])");
  add("silu.tail", {2, 3, 11}, [](X x) { return silu(x[0]); }, "F.silu(x[0])");
  add("softplus", {3, 5}, [](X x) { return softplus(x[0]); }, "F.softplus(x[0])");
  add("softplus.beta", {3, 5}, [](X x) { return softplus(x[0], 3, 2); }, "F.softplus(x[0], 3, 2)");
  add("mish", {3, 5}, [](X x) { return mish(x[0]); }, "F.mish(x[0])");
  add("log_sigmoid", {3, 5}, [](X x) { return log_sigmoid(x[0]); }, "F.logsigmoid(x[0])");
  add("softsign", {3, 5}, [](X x) { return softsign(x[0]); }, "F.softsign(x[0])");
  add("hardtanh", {3, 5}, [](X x) { return hardtanh(x[0]); }, "F.hardtanh(x[0])");
  add("hardtanh.bounds", {3, 5}, [](X x) { return hardtanh(x[0], -0.5, 1.5); }, "F.hardtanh(x[0], -0.5, 1.5)");
  add("relu6", {3, 5}, [](X x) { return relu6(4 * x[0]); }, "F.relu6(4 * x[0])");
  // A composition, because PyTorch's own derivative uses 1 / 6 as a float and can be taken only once.
  add("hardsigmoid", {3, 5}, [](X x) { return hardsigmoid(3 * x[0]); }, "F.relu6(3 * x[0] + 3) / 6");
  add("hardswish", {3, 5}, [](X x) { return hardswish(3 * x[0]); }, "F.hardswish(3 * x[0])");
  add("softshrink", {3, 5}, [](X x) { return softshrink(x[0]); }, "F.softshrink(x[0])");
  add("hardshrink", {3, 5}, [](X x) { return hardshrink(x[0], 0.7); }, "F.hardshrink(x[0], 0.7)");
  add("tanhshrink", {3, 5}, [](X x) { return tanhshrink(x[0]); }, "F.tanhshrink(x[0])");
  add("threshold", {3, 5}, [](X x) { return threshold(x[0], 0.25, -3); }, "F.threshold(x[0], 0.25, -3)");
  add("rrelu", {3, 5}, [](X x) { return rrelu(x[0]); }, "F.rrelu(x[0])");

  for (auto [name, run, torch] : std::initializer_list<NamedCall>{
           {"leaky_relu.at_kinks", [](X x) { return leaky_relu(x[0]); }, "F.leaky_relu(x[0])"},
           {"elu.at_kinks", [](X x) { return elu(x[0]); }, "F.elu(x[0])"},
           {"hardtanh.at_kinks", [](X x) { return hardtanh(x[0]); }, "F.hardtanh(x[0])"},
           {"relu6.at_kinks", [](X x) { return relu6(6 * x[0]); }, "F.relu6(6 * x[0])"},
           {"hardsigmoid.at_kinks", [](X x) { return hardsigmoid(3 * x[0]); }, "F.relu6(3 * x[0] + 3) / 6"},
           {"softshrink.at_kinks", [](X x) { return softshrink(x[0], 1); }, "F.softshrink(x[0], 1)"},
           {"hardshrink.at_kinks", [](X x) { return hardshrink(x[0], 1); }, "F.hardshrink(x[0], 1)"},
           {"threshold.at_kinks", [](X x) { return threshold(x[0], 0, 2); }, "F.threshold(x[0], 0, 2)"}})
    cases.add(name, {ties({12})}, run, torch).differentiable(1);
  for (auto [name, run, torch] : std::initializer_list<NamedCall>{
           {"leaky_relu.special", [](X x) { return leaky_relu(x[0]); }, "F.leaky_relu(x[0])"},
           {"elu.special", [](X x) { return elu(x[0]); }, "F.elu(x[0])"},
           {"gelu.special", [](X x) { return gelu(x[0]); }, "F.gelu(x[0])"},
           {"silu.special", [](X x) { return silu(x[0]); }, "F.silu(x[0])"},
           {"softplus.special", [](X x) { return softplus(x[0]); }, "F.softplus(x[0])"},
           {"mish.special", [](X x) { return mish(x[0]); }, "F.mish(x[0])"},
           {"log_sigmoid.special", [](X x) { return log_sigmoid(x[0]); }, "F.logsigmoid(x[0])"},
           {"hardtanh.special", [](X x) { return hardtanh(x[0]); }, "F.hardtanh(x[0])"},
           {"hardshrink.special", [](X x) { return hardshrink(x[0]); }, "F.hardshrink(x[0])"},
           {"threshold.special", [](X x) { return threshold(x[0], 0, 2); }, "F.threshold(x[0], 0, 2)"},
           {"selu.special", [](X x) { return selu(x[0]); }, "F.selu(x[0])"}})
    cases.add(name, {special({11})}, run, torch).differentiable(0);

  for (auto [name, run] : std::initializer_list<std::tuple<const char*, Tensor (*)(X)>>{
           {"silu.large", [](X x) { return silu(x[0]); }},
           {"gelu.large", [](X x) { return gelu(x[0], "tanh"); }},
           {"elu.large", [](X x) { return elu(40 * x[0]); }}})
    cases.add(name, {{37, 1021}}, run);
}

void add_activation(CaseList& cases) {
  add_elements(cases);
  cases.add("prelu", {{3, 5}, {1}}, [](X x) { return prelu(x[0], x[1]); }, "F.prelu(x[0], x[1])").keeps_layout();
  cases.add("prelu.channels", {{2, 3, 4, 2}, {3}}, [](X x) { return prelu(x[0], x[1]); }, "F.prelu(x[0], x[1])")
      .keeps_layout();
  cases.add("prelu.vector", {{7}, {1}}, [](X x) { return prelu(x[0], x[1]); }, "F.prelu(x[0], x[1])");
  cases.add("rrelu.training", {{4, 5}}, [](X x) { return rrelu(x[0], 0.1, 0.4, true); });
  cases.add("glu", {{3, 6}}, [](X x) { return glu(x[0]); }, "F.glu(x[0])");
  cases.add("glu.dim", {{2, 4, 3}}, [](X x) { return glu(x[0], 1); }, "F.glu(x[0], 1)");
  cases.add("glu.empty", {{0, 4}}, [](X x) { return glu(x[0]); }, "F.glu(x[0])");
  cases.add("softmin", {{3, 5}}, [](X x) { return softmin(x[0], 1); }, "F.softmin(x[0], 1)");
}

}  // namespace gradus::op_cases
