// Lockstep of two backends: the nets' operations agree, and one that is wrong is named.
#include <gradus/benchmarks/nets.h>
#include <gradus/core/graph/lockstep.h>
#include <gradus/core/graph/recorder.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;

namespace {

/// naive, but for relu, which is off where it is positive.
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

class Elsewhere final : public BackendInterceptor<Elsewhere> {
 public:
  std::string_view name() const override { return "elsewhere"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  void call(const char*, auto&&...) {}
};

}  // namespace

TEST_CASE("lockstep is for backends of the cpu", "[lockstep]") {
  graph::Recorder recorder;
  ones({2});
  graph::Executor executor(recorder.finish());
  Elsewhere elsewhere;
  CHECK_THROWS_WITH(graph::lockstep(executor, backend("naive"), elsewhere), contains("'elsewhere' is not"));
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
    if (workload.name != "lenet" && workload.name != "pure_linear") continue;  // with a ReLU apart from convolutions
    REQUIRE(found);
    CHECK_THAT(found->str(), contains("unary (relu of ") && contains("(2, ") && contains("allowed: 1e-05"));
    CHECK(found->error > 0.001);
    CHECK(found->inputs.size() == 2);
  }
}
