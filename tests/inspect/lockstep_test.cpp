// lockstep(): the operations of nets agree on two backends, and a wrong operation is found.
#include <numeric>

#include <gradus/benchmarks/nets.h>
#include <gradus/gradus.h>
#include <gradus/graph/recorder.h>
#include <gradus/inspect/lockstep.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;

namespace {

/// The backend "naive", except that relu is wrong for positive results.
class WrongRelu final : public BackendInterceptor<WrongRelu> {
 public:
  std::string_view name() const override { return "wrong_relu"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    (backend("naive").*method)(arguments...);
    if (std::string_view(name) != "unary") return;
    const auto falsify = [](const auto& view) {
      if constexpr (std::is_same_v<decltype(view), const MutableView&>) view.template as<float>()[0] += 0.1f;
    };
    (for_each_operand(arguments, falsify), ...);
  }
};

/// The backend "naive", except that all results of one operation are wrong by 0.1.
class WrongCall final : public BackendInterceptor<WrongCall> {
 public:
  explicit WrongCall(std::string wrong) : wrong_(std::move(wrong)) {}
  std::string_view name() const override { return "wrong_call"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    (backend("naive").*method)(arguments...);
    if (name != wrong_) return;
    const auto falsify = [](const auto& view) {
      if constexpr (std::is_same_v<decltype(view), const MutableView&>)
        if (view.data && view.dtype == DType::f32) view.template as<float>()[0] += 0.1f;
    };
    (for_each_operand(arguments, falsify), ...);
  }

 private:
  std::string wrong_;
};

/// The backend "openmp", except that the first element of products of half types is wrong.
class WrongHalf final : public BackendInterceptor<WrongHalf> {
 public:
  std::string_view name() const override { return "wrong_half"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    (backend("openmp").*method)(arguments...);
    const auto falsify = [](const auto& view) {
      if constexpr (std::is_same_v<decltype(view), const MutableView&>)
        if (view.dtype == DType::bf16) view.template as<BFloat16>()[0] = BFloat16(1e3f);
    };
    if (std::string_view(name) == "linear") (for_each_operand(arguments, falsify), ...);
  }
};

class Elsewhere final : public BackendInterceptor<Elsewhere> {
 public:
  std::string_view name() const override { return "elsewhere"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  void call(const char*, auto&&...) {}
};

}  // namespace

TEST_CASE("lockstep starts on the device of the recording", "[lockstep]") {
  graph::Recorder recorder;
  ones({2});
  graph::Executor executor(recorder.finish());
  Elsewhere elsewhere;
  CHECK_THROWS_WITH(graph::lockstep(executor, elsewhere, backend("naive")),
                    contains("on cpu") && contains("'elsewhere' is not"));
}

TEST_CASE("lockstep compares a recorded step with the eager one, and finds a wrong order", "[lockstep]") {
  manual_seed(4);
  nn::Sequential net(nn::Linear(8, 16), nn::ReLU(), nn::Dropout(0.5), nn::Linear(16, 10));
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  const Tensor x = randn({4, 8}), target = randint(0, 10, {4}, kLong);
  const auto step = [&] {
    optimizer.zero_grad();
    cross_entropy(net->forward(x), target).backward();
    optimizer.step();
  };
  const auto recorded = [&](bool in_order) {
    graph::Recorder recorder;
    step();
    graph::Graph graph = recorder.finish();
    optimizer.zero_grad();
    if (in_order) return graph;
    std::vector<size_t> order(graph.calls().size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[1], order[2]);  // moves dropout before the ReLU whose result it reads
    graph.reorder(order);
    return graph;
  };
  step();
  graph::Executor right(recorded(true)), wrong(recorded(false));
  for (int i = 0; i < 2; ++i) {
    const auto agreed = graph::lockstep(right, step);
    CHECK((agreed ? agreed->str() : "") == "");
  }
  const auto found = graph::lockstep(wrong, step);
  REQUIRE(found);
  CHECK_THAT(found->str(), contains("call 1, dropout (dropout of 2)") && contains("allowed: 0"));
}

TEST_CASE("lockstep compares the gradients and the loss after the step", "[lockstep]") {
  manual_seed(4);
  const Tensor x = randn({3, 2, 5, 5}), w = randn({4, 2, 3, 3}).requires_grad_();
  for (const std::string wrong : {"conv2d_bias_relu_backward", "reduce", "nothing"}) {
    INFO(wrong);
    graph::Recorder recorder;
    Tensor loss = conv2d(x, w).sum();
    loss.backward();
    graph::Executor executor(recorder.finish());
    w.mutable_grad() = Tensor(), loss = Tensor();
    WrongCall other(wrong);
    const auto found = graph::lockstep(executor, backend("naive"), other);
    CHECK(found.has_value() == (wrong != "nothing"));
    if (found) CHECK_THAT(found->str(), contains(wrong));
  }
}

TEST_CASE("lockstep finds the operation that two backends disagree on", "[lockstep]") {
  for (const benchmarks::Workload& workload : benchmarks::workloads()) {
    if (workload.name == "resnet18" || workload.name == "stl10_net" || workload.name == "conv10_c32") continue;  // slow
    INFO(workload.name);
    manual_seed(4);
    const nn::AnyModule net = workload.make();
    const Tensor x = randn(workload.input(2)), target = randint(0, 10, {2}, kLong);
    graph::Recorder recorder;
    cross_entropy(net.forward(x), target).backward();
    graph::Executor executor(recorder.finish());
    net.ptr()->zero_grad();
    const auto agreed = graph::lockstep(executor, backend("openmp"), backend("naive"));
    CHECK((agreed ? agreed->str() : "") == "");
    WrongRelu wrong;
    const auto found = graph::lockstep(executor, backend("naive"), wrong);
    if (workload.name != "lenet" && workload.name != "pure_linear") continue;  // the others call no separate ReLU
    REQUIRE(found);
    CHECK_THAT(found->str(), contains("unary (relu of ") && contains("(2, ") && contains("allowed: 1e-05"));
    CHECK(found->error > 0.001);
    CHECK(found->inputs.size() == 2);
  }
}

TEST_CASE("lockstep compares half types with float32 and finds the operation that is less accurate", "[lockstep]") {
  for (const benchmarks::Workload& workload : benchmarks::workloads()) {
    if (workload.name == "resnet18" || workload.name == "conv10_c32") continue;  // slow
    for (const DType half : {kBFloat16, kHalf}) {
      INFO(workload.name << " " << name(half));
      manual_seed(4);
      const nn::AnyModule net = workload.make();
      const Tensor x = randn(workload.input(2)), target = randint(0, 10, {2}, kLong);
      graph::Recorder recorder;
      {
        const amp::Autocast autocast(DeviceType::cpu, half);
        cross_entropy(net.forward(x), target).backward();
      }
      graph::Executor executor(recorder.finish());
      net.ptr()->zero_grad();
      const auto agreed = graph::lockstep_in_float32(executor, backend("openmp"));
      CHECK((agreed ? agreed->str() : "") == "");
      if (workload.name != "lenet" || half != kBFloat16) continue;
      WrongHalf wrong;
      const auto found = graph::lockstep_in_float32(executor, wrong);
      REQUIRE(found);
      CHECK_THAT(found->str(), contains("linear (linear of ") && contains("allowed: 0.02"));
    }
  }
}
