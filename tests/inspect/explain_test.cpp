// explain: its figures and texts for a step, and that it finds a slow kernel and a leak that a test adds to a step.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <regex>
#include <set>
#include <thread>

#include <gradus/benchmarks/nets.h>
#include <gradus/core/backend_interceptor.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;
using training::ExplainOptions;
using training::Explanation;

namespace {

const ExplainOptions kFew = ExplainOptions().warm_up(1).steps(1);

/// A step of a net on random numbers.
struct ExplainedNet {
  explicit ExplainedNet(const nn::Sequential& net, const Shape& shape)
      : net(net), sgd(net->parameters(), optim::SGDOptions(0.01).momentum(0.9)), x(randn(shape)),
        target(zeros({shape[0]}, kLong)) {}
  void operator()() {
    sgd.zero_grad();
    cross_entropy(net->forward(x), target).backward();
    sgd.step();
  }
  nn::Sequential net;
  optim::SGD sgd;
  Tensor x, target;
};

/// The backend "openmp", except that one kernel sleeps.
class SleepyBackend final : public BackendInterceptor<SleepyBackend> {
 public:
  std::string_view name() const override { return "sleepy"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    if (std::string_view(name) != "unary") return (backend("openmp").*method)(arguments...);
    {
      const EventScope event("relu", "sleepy", "naps", {});
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    (backend("openmp").*method)(arguments...);
  }
};

bool any_of(const std::vector<Explanation::Proposal>& list, const std::string& part) {
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& proposal) { return proposal.change.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("explain lists kernels with their reasons, and what is saved until when", "[explain]") {
  manual_seed(1);
  ExplainedNet step(benchmarks::lenet(), {4, 1, 28, 28});
  const Explanation explanation = explain([&] { step(); }, kFew);
  CHECK(explanation.notes.empty());
  CHECK(explanation.leaks.empty());
  REQUIRE(explanation.kernels.size() > 20);
  const Explanation::Kernel& first = explanation.kernels[0];
  CHECK(first.name == "conv2d_bias_relu");
  CHECK(first.backend == "openmp");
  CHECK_THAT(first.implementation, contains("direct"));
  CHECK(first.reason == "few channels, in vectors of neighbouring pixels");
  CHECK(first.op == "conv2d_relu");
  CHECK(first.module == "0");
  CHECK_FALSE(first.backward);
  CHECK(first.flops == 2 * 4 * 6 * 28 * 28 * 25);
  CHECK(first.bytes == 4 * (4 * 28 * 28 + 6 * 25 + 4 * 6 * 28 * 28));
  CHECK(first.shapes.at(2) == Shape{4, 6, 28, 28});
  CHECK(first.roofline > 0);
  for (const Explanation::Kernel& kernel : explanation.kernels) {
    CHECK(kernel.call < explanation.calls.size());
    if (kernel.name == "linear" || kernel.name == "matmul") CHECK_FALSE(kernel.reason.empty());
  }
  const auto gradient = std::find_if(explanation.kernels.begin(), explanation.kernels.end(),
                                     [](const auto& kernel) { return kernel.name == "conv2d_backward_weight"; });
  REQUIRE(gradient != explanation.kernels.end());
  CHECK(gradient->backward);
  CHECK(gradient->op == "Conv2dReLU");
  CHECK(gradient->module == "2");
  const Explanation::Kernel& last = explanation.kernels.back();
  CHECK(last.name == "sgd_step");
  CHECK(last.bytes > 3 * 4 * 61706);  // parameters, gradients and momenta

  // The second convolution reads what the first pooling wrote.
  CHECK(explanation.calls[1].inputs == std::vector<size_t>{0});
  CHECK(explanation.calls[2].inputs == std::vector<size_t>{1});

  const Explanation::Saved& saved = explanation.saved.at(0);
  CHECK(saved.bytes == 4 * 4 * 6 * 28 * 28);
  CHECK(saved.shape == Shape{4, 6, 28, 28});
  CHECK(saved.made_by == "conv2d_relu of 0");
  CHECK(saved.kept_by == std::vector<std::string>{"conv2d_relu of 0"});
  CHECK(saved.until == "Conv2dReLU of 0, backward");
  CHECK(explanation.peak_bytes > saved.bytes);
  CHECK(any_of(explanation.smaller, "recompute layer '0'"));
  CHECK(any_of(explanation.smaller, "mixed precision"));

  const std::string text = explanation.str(), page = explanation.html("LeNet & more");
  CHECK_THAT(text, contains("between kernels") && contains("few channels, in vectors") && contains("kept by"));
  CHECK_THAT(page, contains("<svg") && contains("LeNet &amp; more") && contains("0: conv2d_relu"));
  CHECK(page.find("src=") == std::string::npos);  // the page loads no other files
  CHECK(page.find("href=") == std::string::npos);
}

TEST_CASE("explain names a slow kernel", "[explain]") {
  SleepyBackend sleepy;
  const BackendGuard guard(sleepy);
  ExplainedNet step(nn::Sequential(nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 2)), {4, 8});
  const Explanation explanation = explain([&] { step(); }, ExplainOptions().warm_up(1).steps(3));
  const auto named = std::find_if(explanation.faster.begin(), explanation.faster.end(), [](const auto& proposal) {
    return proposal.change.find("relu by sleepy/naps") != std::string::npos;
  });
  REQUIRE(named != explanation.faster.end());
  CHECK_THAT(named->change, contains("of the roofline"));
  CHECK(named->seconds > 0.019);
}

TEST_CASE("explain analyses a step that cannot be recorded, and says why it cannot be recorded", "[explain]") {
  ExplainedNet step(nn::Sequential(nn::Linear(8, 2)), {4, 8});
  double loss = 0;
  const Explanation explanation = explain(
      [&] {
        step();
        const NoGradGuard no_grad;
        loss = step.net->forward(step.x).sum().item<float>();
      },
      kFew);
  CHECK(explanation.kernels.size() > 5);
  REQUIRE(explanation.notes.size() == 1);
  CHECK_THAT(explanation.notes[0], contains("cannot be a StaticStep") && contains("[item]"));
  CHECK(std::isfinite(loss));
}

TEST_CASE("explain names memory that the program keeps from step to step", "[explain]") {
  ExplainedNet step(nn::Sequential(nn::Linear(8, 2)), {4, 8});
  std::vector<Tensor> kept;
  const Explanation explanation = explain(
      [&] {
        step();
        const NoGradGuard no_grad;
        kept.push_back(step.x * 2);
      },
      kFew);
  REQUIRE(explanation.leaks.size() == 1);
  CHECK_THAT(explanation.leaks[0].made_by, contains("mul, explain_test.cpp:"));
  CHECK(explanation.leaks[0].shape == Shape{4, 8});
  CHECK(explanation.leaks[0].bytes == 128);
  CHECK(any_of(explanation.smaller, "release (4, 8) made by mul"));
  CHECK_THAT(explanation.str(), contains("kept from step to step: 128 B (4, 8), made by mul"));
  for (const Tensor& tensor : kept) CHECK(tensor.equal(step.x * 2));  // the kept tensors still have their values
}

TEST_CASE("explain draws a sum of two paths, and finds the calls whose results a call reads", "[explain]") {
  struct Block : nn::Module {
    nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)));
    Tensor forward(const Tensor& x) { return relu(conv(x)) + x; }
  };
  const auto block = std::make_shared<Block>();
  const Tensor x = randn({2, 16, 8, 8}).requires_grad_();
  const Explanation explanation = explain([&] { block->forward(x * 1).sum().backward(); }, kFew);
  const auto number_of = [&](const char* op) {
    size_t i = 0;
    while (explanation.calls.at(i).op != op) ++i;
    return i;
  };
  const size_t mul = number_of("mul"), conv = number_of("conv2d"), relu = number_of("relu"), add = number_of("add");
  CHECK(explanation.calls[conv].inputs == std::vector<size_t>{mul});
  CHECK(explanation.calls[relu].inputs == std::vector<size_t>{conv});
  CHECK(explanation.calls[add].inputs == std::vector<size_t>{relu, mul});
  CHECK_THAT(explanation.html(), contains(" C") && contains("conv: conv2d") && contains(">relu<") && contains(">add<"));
  // Lines begin below one box and end above another; curves begin and end in the middle of a side.
  const std::string page = explanation.html();
  std::set<int> tops;
  int height = 0;
  const std::regex box("<rect data-box=\"\\d+\" x=\"\\d+\" y=\"(\\d+)\" width=\"\\d+\" height=\"(\\d+)\"");
  for (std::sregex_iterator at(page.begin(), page.end(), box), end; at != end; ++at)
    tops.insert(std::stoi((*at)[1])), height = std::stoi((*at)[2]);
  CHECK(tops.size() >= 4);
  const std::regex path("<path d=\"M\\d+ (\\d+) (L|C)[^\"]*?(\\d+)\"/>");
  int paths = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), path), end; at != end; ++at, ++paths) {
    const bool line = (*at)[2] == "L";
    const int from = std::stoi((*at)[1]) - (line ? height : height / 2);
    const int to = std::stoi((*at)[3]) - (line ? 0 : height / 2);
    CHECK((tops.count(from) == 1 && tops.count(to) == 1 && from < to));
  }
  CHECK(paths >= 4);
  CHECK(explanation.notes.empty());
}

TEST_CASE("explain passes errors of the step on and leaves nothing behind", "[explain]") {
  Backend* const before = &current_backend(DeviceType::cpu);
  int calls = 0;
  const auto fails_at = [&](int number) {
    calls = 0;
    CHECK_THROWS_AS(explain(
                        [&] {
                          const Tensor y = ones({2}) + 1;
                          GRADUS_CHECK(++calls < number, ValueError, "enough");
                        },
                        kFew),
                    ValueError);
    CHECK(calls == number);
    CHECK_FALSE(observing());
    CHECK_FALSE(gradus::detail::recorded_memory);
    CHECK(&current_backend(DeviceType::cpu) == before);
  };
  for (int number : {1, 3, 7}) fails_at(number);
  CHECK_THROWS_WITH(explain([] {}, ExplainOptions().warm_up(0)), contains("at least one step"));
}

TEST_CASE("a roofline is the larger of two bounds", "[explain]") {
  const training::Roofline roofline{100, {{10, 5}, {1000, 2}}};
  CHECK(roofline.seconds_at_least(10, 0) == 2);
  CHECK(roofline.seconds_at_least(20, 100) == 10);
  CHECK(roofline.seconds_at_least(4000, 100) == 2000);
  CHECK(roofline.seconds_at_least(20, 5000) == 50);
}
