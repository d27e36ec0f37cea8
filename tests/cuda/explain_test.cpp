// The output of explain() for steps on a GPU.
#include <cmath>
#include <set>

#include <gradus/benchmarks/nets.h>
#include <gradus/core/backend_interceptor.h>
#include <gradus/core/kernel_choice.h>
#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

/// The backend "cuda", except that it computes the result of unary operators three hundred times.
class SlowReluOnGpu final : public BackendInterceptor<SlowReluOnGpu> {
 public:
  std::string_view name() const override { return "planted"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    if (std::string_view(name) != "unary") return (backend("cuda").*method)(arguments...);
    const View absent;
    EventScope event("unary", "planted", "three_hundred_times", {&absent});
    const SkipChunksGuard no_events;
    for (int i = 0; i < 300; ++i) (backend("cuda").*method)(arguments...);
  }
};

}  // namespace

TEST_CASE("explain on a GPU has the times of a captured step, and names a slow kernel", "[explain]") {
  if (no_cuda_device()) return;
  const Device device = cuda_device();
  const auto explained = [&](Backend& backend, const char* net_name) {
    const BackendGuard guard(backend);
    for (const benchmarks::Workload& workload : benchmarks::workloads()) {
      if (workload.name != net_name) continue;
      const nn::AnyModule net = workload.make();
      net.ptr()->to(device);
      optim::AdamW optimizer(net.ptr()->parameters(), optim::AdamWOptions(1e-3));
      const Tensor x = randn(workload.input(8)).to(device), target = randint(0, 10, {8}, kLong).to(device);
      const training::Explanation explanation = explain(
          [&] {
            optimizer.zero_grad();
            cross_entropy(net.forward(x), target).backward();
            optimizer.step();
          },
          training::ExplainOptions().device(device));
      INFO(explanation.str());
      const double sum = explanation.kernel_seconds() + explanation.between_seconds;
      CHECK(std::abs(sum - explanation.step_seconds) <= 0.05 * explanation.step_seconds);
      CHECK(explanation.between_seconds >= 0);
      CHECK(explanation.peak_bytes > 0);
      CHECK_FALSE(explanation.saved.empty());
      CHECK(explanation.leaks.empty());
      return explanation;
    }
    throw ValueError("no such net");
  };
  for (const char* name : {"cuda", "cudnn"})
    if (has_backend(name)) {
      const training::Explanation explanation = explained(backend(name), "lenet");
      bool has_reason = false;
      for (const auto& kernel : explanation.kernels) {
        CHECK_FALSE(kernel.implementation.empty());
        has_reason = has_reason || !kernel.reason.empty();
      }
      CHECK(has_reason);
    }
  SlowReluOnGpu slow;
  const training::Explanation explanation = explained(slow, "pure_linear");
  REQUIRE_FALSE(explanation.faster.empty());
  bool named = false;
  for (const auto& proposal : explanation.faster)
    named = named || proposal.change.find("unary by planted/three_hundred_times") != std::string::npos;
  CHECK(named);
}

TEST_CASE("explain on a GPU names memory that the program keeps from step to step", "[explain]") {
  if (no_cuda_device()) return;
  const Device device = cuda_device();
  const nn::Linear net(8, 2);
  net->to(device);
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.01));
  const Tensor x = randn({4, 8}).to(device), target = zeros({4}, kLong).to(device);
  std::vector<Tensor> kept;
  const training::Explanation explanation = explain(
      [&] {
        sgd.zero_grad();
        cross_entropy(net->forward(x), target).backward();
        sgd.step();
        const NoGradGuard no_grad;
        kept.push_back(x * 2);
      },
      training::ExplainOptions().device(device).warm_up(1).steps(1));
  INFO(explanation.str());
  REQUIRE(explanation.leaks.size() == 1);
  CHECK_THAT(explanation.leaks[0].made_by, contains("mul, explain_test.cpp:"));
  CHECK(explanation.leaks[0].shape == Shape{4, 8});
  const auto named = std::find_if(explanation.smaller.begin(), explanation.smaller.end(), [](const auto& proposal) {
    return proposal.change.find("release (4, 8) made by mul") != std::string::npos;
  });
  CHECK(named != explanation.smaller.end());
  for (const Tensor& tensor : kept) CHECK(tensor.equal(x * 2));  // also those that a captured step made
}

TEST_CASE("explain on a GPU names the kernels of recurrent layers", "[explain]") {
  if (no_cuda_device()) return;
  const Device device = cuda_device();
  const BackendGuard guard("cuda");
  const auto names = [&](auto layer) {
    layer->to(device);
    const Tensor x = randn({6, 3, 8}).to(device);
    const training::Explanation explanation =
        explain([&] { std::get<0>(layer->forward(x)).sum().backward(); }, training::ExplainOptions().device(device));
    std::set<std::string> names;
    for (const training::Explanation::Kernel& kernel : explanation.kernels)
      if (kernel.name.starts_with("recurrent")) names.insert(kernel.name + " " + kernel.implementation);
    return names;
  };
  using Names = std::set<std::string>;
  const Names clusters = {"recurrent_sequence clusters", "recurrent_sequence_backward clusters"};
  const auto steps = [](const std::string& cell) {
    return Names{"recurrent_cell " + cell, "recurrent_cell_backward " + cell};
  };
  for (const bool can_cluster : {false, cuda_capability() >= 90}) {
    const ForcedAlgorithm forced(can_cluster ? "clusters" : "steps");
    CHECK(names(nn::GRU(8, 8)) == (can_cluster ? clusters : steps("gru")));
    CHECK(names(nn::RNN(8, 8)) == (can_cluster ? clusters : steps("rnn_tanh")));
    CHECK(names(nn::LSTM(8, 8)) == (can_cluster ? clusters : steps("lstm")));
    CHECK(names(nn::LSTM(nn::LSTMOptions(8, 8).proj_size(4))) == steps("lstm"));
  }
}
