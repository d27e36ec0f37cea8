// explain: its figures and texts for a step, and that it finds a slow kernel and a leak that a test adds to a step.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <thread>

#include <gradus/benchmarks/nets.h>
#include <gradus/core/backend_interceptor.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/gradus.h>
#include <gradus/graph/recorder.h>
#include <gradus/inspect/explain/explain_parts.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/inspect/stepped_clock.h>

using namespace gradus;
using test::contains;
using test::SteppedClock;
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

/// The first call of this operator.
size_t number_of(const Explanation& explanation, const std::string& op) {
  size_t i = 0;
  while (explanation.calls.at(i).op != op) ++i;
  return i;
}

/// The saved array whose maker begins with this text.
const Explanation::Saved& saved_by(const Explanation& explanation, const std::string& made_by) {
  for (const Explanation::Saved& saved : explanation.saved)
    if (saved.made_by.starts_with(made_by)) return saved;
  throw std::out_of_range(made_by);
}

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
  const size_t mul = number_of(explanation, "mul"), conv = number_of(explanation, "conv2d");
  const size_t relu = number_of(explanation, "relu"), add = number_of(explanation, "add");
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
  CHECK(training::Roofline{0, {{10, 5}}}.seconds_at_least(20, 5000) == 4);  // nothing is known of the peak
  CHECK(training::Roofline{0, {{10, 5}}}.seconds_at_least(20, 0) == 4);
  CHECK(training::Roofline{100, {}}.seconds_at_least(20, 5000) == 50);
}

TEST_CASE("explain runs the step as often as its options say", "[explain]") {
  int steps = 0;
  explain([&] { ++steps; }, ExplainOptions().warm_up(2).steps(3).proposals(false));
  CHECK(steps == 2 + 3 + 1 + 2 * 3);  // to warm up, watched, one afterwards, and alternately with and without observers
  CHECK_THROWS_WITH(explain([] {}, ExplainOptions().steps(0)), contains("at least one step"));
  {
    const graph::Recorder recorder;
    CHECK_THROWS_WITH(explain([] {}, kFew), contains("outside of operators and recordings"));
  }
  const OpContext op("mine");
  CHECK_THROWS_WITH(explain([] {}, kFew), contains("outside of operators and recordings"));
}

TEST_CASE("explain has the times of the fastest steps, and the figures of the innermost kernels", "[explain]") {
  const Tensor x = ones({4, 3});
  const View view = x.array();
  int run = 0;
  std::optional<SteppedClock> clock;  // from the first step on, because the roofline is measured before it
  const auto step = [&] {
    if (++run == 1) clock.emplace();
    const bool is_fast = run == 8 || run == 11;  // a timed step without observers, and one with them
    {
      const EventScope composite("composite", "test", "calls_part", {});
      const EventScope part("part", "test", "sleeps", {&view, &view}, 1000, "because");
      SteppedClock::pass(is_fast ? 10 : 60);
    }
    SteppedClock::pass(5);
  };
  const Explanation explanation = explain(step, ExplainOptions().warm_up(1).steps(4).proposals(false));
  CHECK(run == 13);
  REQUIRE(explanation.kernels.size() == 1);
  const Explanation::Kernel& kernel = explanation.kernels[0];
  CHECK(kernel.name == "part");
  CHECK(kernel.implementation == "sleeps");
  CHECK(kernel.reason == "because");
  CHECK(kernel.shapes == std::vector<Shape>{{4, 3}, {4, 3}});
  CHECK(kernel.bytes == 96);
  CHECK(kernel.flops == 1000);
  CHECK(kernel.call == 0);
  CHECK(kernel.op.empty());
  CHECK(kernel.seconds == Approx(0.010));
  CHECK(kernel.roofline > 0);
  CHECK(kernel.roofline == Approx(explanation.roofline.seconds_at_least(96, 1000) / kernel.seconds));
  CHECK(explanation.step_seconds == Approx(0.015));
  CHECK(explanation.between_seconds == Approx(0.005));
  CHECK(explanation.calls.empty());
  CHECK(explanation.notes.empty());
}

TEST_CASE("explain says that steps differ, and has the times of a watched one", "[explain]") {
  for (const bool by_name : {true, false}) {
    int run = 0;
    std::optional<SteppedClock> clock;
    const auto step = [&] {
      if (run == 0) clock.emplace();
      {
        const EventScope kernel(by_name && run % 2 == 0 ? "even" : "odd", "test", "sleeps", {});
        SteppedClock::pass(run > 4 ? 20 : 2);
      }
      if (!by_name && run % 2 == 0) const EventScope second("second", "test", "none", {});
      ++run;
    };
    const Explanation explanation = explain(step, ExplainOptions().warm_up(1).steps(2).proposals(false));
    REQUIRE(explanation.notes.size() == 1);
    CHECK(explanation.notes[0] == "steps differ: the times of kernels are those of one step");
    CHECK(explanation.kernels.at(0).name == "odd");
    CHECK(explanation.kernels[0].seconds == Approx(0.002));
  }
}

TEST_CASE("explain adds the times of kernels up by call", "[explain]") {
  const Tensor x = randn({64, 32}), w = randn({32, 16});
  const Explanation explanation = explain(
      [&] {
        const NoGradGuard no_grad;
        const Tensor y = matmul(x, w);
        y.exp();
        const EventScope after("after", "test", "none", {});
      },
      kFew);
  REQUIRE(explanation.calls.size() == 2);
  CHECK(explanation.calls[0].result == Shape{64, 16});
  CHECK(explanation.calls[0].inputs.empty());
  CHECK(explanation.calls[1].inputs == std::vector<size_t>{0});
  CHECK(explanation.kernels.back().name == "after");
  CHECK(explanation.kernels.back().call == 1);
  double seconds[2] = {};
  for (const Explanation::Kernel& kernel : explanation.kernels) {
    CHECK(kernel.seconds >= 0);
    seconds[kernel.call] += kernel.seconds;
  }
  for (size_t i = 0; i < 2; ++i) CHECK(explanation.calls[i].seconds == Approx(seconds[i]));
  CHECK(explanation.saved.empty());
}

TEST_CASE("explain counts what an optimizer's step reads and writes", "[explain]") {
  Tensor w = ones({5, 3}).requires_grad_();
  w.mutable_grad() = ones({5, 3});
  optim::SGD sgd({w}, optim::SGDOptions(0.1).momentum(0.9));
  const Explanation explanation = explain([&] { sgd.step(); }, kFew);
  const auto& operands = explanation.kernels.back();
  CHECK(operands.op == "optimizer_step");
  CHECK(operands.bytes >= 3 * 60);       // the parameter, its gradient and its momentum
  CHECK(operands.bytes < 3 * 60 + 200);  // and the block of the optimizer's numbers
}

TEST_CASE("explain follows saved arrays from call to call, and finds those at the peak", "[explain]") {
  const Tensor x = randn({1000}).requires_grad_();
  Tensor last;
  const auto step = [&] {
    x.mutable_grad() = Tensor();
    x.slice(0, 0, 10).exp().sum().backward();  // its memory is free again before the peak
    x.sin().tanh().sum().backward();
    last = x.exp().sum();  // its graph is kept until the next step
  };
  const Explanation explanation = explain(step, kFew);
  const Explanation::Saved& tanh = saved_by(explanation, "tanh");
  CHECK(tanh.bytes == 4000);
  CHECK(tanh.shape == Shape{1000});
  CHECK(tanh.dtype == DType::f32);
  CHECK(tanh.kept_by.size() == 1);
  CHECK(tanh.kept_by[0].starts_with("tanh, explain_test.cpp:"));
  CHECK(tanh.until == "the program released it");  // after the backward pass, with the last temporary tensor
  CHECK_THAT(explanation.str(), contains("; until the program released it"));
  CHECK(tanh.module.empty());
  CHECK(tanh.at_peak);
  CHECK(tanh.from_call == number_of(explanation, "tanh"));
  CHECK(tanh.from_call < tanh.to_call);
  CHECK(tanh.to_call < explanation.calls.size());
  CHECK(explanation.peak_call >= tanh.from_call);
  CHECK(explanation.peak_call < explanation.calls.size());
  REQUIRE(explanation.saved.size() == 3);
  const Explanation::Saved& small = explanation.saved[2];
  CHECK(small.bytes == 40);
  CHECK_FALSE(small.at_peak);
  CHECK(small.to_call <= tanh.from_call);
  const auto kept = std::find_if(explanation.saved.begin(), explanation.saved.end(),
                                 [](const auto& one) { return one.until == "the end of the step"; });
  REQUIRE(kept != explanation.saved.end());
  CHECK(kept->to_call == explanation.calls.size());
  CHECK(kept->bytes == 4000);
  CHECK(explanation.leaks.empty());

  // The runtime counts the same peak.
  DeviceRuntime& system = runtime(DeviceType::cpu);
  system.reset_peak_memory_stats(0);
  const int64_t before = system.memory_stats(0).allocated;
  step();
  CHECK(explanation.peak_bytes == system.memory_stats(0).peak_allocated - before);
}

TEST_CASE("what a backward pass saves, to be differentiated itself, is not listed", "[explain]") {
  const Tensor x = randn({1000}).requires_grad_();
  for (const bool create_graph : {false, true}) {
    const Explanation explanation = explain([&] { autograd::grad({x.exp().sum()}, {x}, {}, {}, create_graph); },
                                            ExplainOptions().warm_up(1).steps(1).proposals(false));
    REQUIRE(explanation.saved.size() == 1);
    CHECK(explanation.saved[0].kept_by.size() == 1);
  }
}

TEST_CASE("an array whose allocation reaches the peak is saved at the peak", "[explain]") {
  const Tensor x = randn({1000}).requires_grad_();
  std::vector<Tensor> kept;
  const Explanation explanation =
      explain([&] { kept.push_back(x.exp()); }, ExplainOptions().warm_up(1).steps(1).proposals(false));
  REQUIRE(explanation.saved.size() == 1);
  CHECK(explanation.saved[0].at_peak);
  CHECK(explanation.peak_call == 0);
}

TEST_CASE("saved arrays belong to the innermost module that makes and keeps them", "[explain]") {
  const auto net =
      nn::Sequential(nn::Sequential(nn::Linear(4, 5), nn::Tanh(), nn::Linear(5, 6)), nn::Tanh(), nn::Linear(6, 2));
  const Tensor x = randn({3, 4});
  const Explanation explanation = explain([&] { net->forward(x).sum().backward(); }, kFew);
  const Explanation::Saved& inner = saved_by(explanation, "tanh of 0.1");
  CHECK(inner.kept_by == std::vector<std::string>{"tanh of 0.1", "linear of 0.2"});
  CHECK(inner.module == "0");
  const Explanation::Saved& outer = saved_by(explanation, "tanh of 1");
  CHECK(outer.kept_by == std::vector<std::string>{"tanh of 1", "linear of 2"});
  CHECK(outer.module.empty());
}

TEST_CASE("memory that the first watched step alone makes and that stays is a leak, that of a later step is not",
          "[explain]") {
  const Tensor x = ones({6});
  const auto leaks_of = [&](int keeping) {
    int number = 0;
    Tensor kept;
    const training::Explanation explanation = training::explain(
        [&] {
          const Tensor y = x * 2;
          if (number++ == keeping) kept = y;
        },
        training::ExplainOptions().warm_up(1).steps(1).proposals(false));
    return explanation.leaks.size();
  };
  CHECK(leaks_of(1) == 1);  // step 0 warms up
  CHECK(leaks_of(2) == 0);
}

TEST_CASE("explain lists leaks by their size", "[explain]") {
  std::vector<Tensor> kept;
  const Explanation explanation = explain(
      [&] {
        const NoGradGuard no_grad;
        kept.push_back(zeros({2}));
        kept.push_back(zeros({3, 3}));
        kept.push_back(zeros({4}));
      },
      ExplainOptions().warm_up(1).steps(1).proposals(false));
  std::vector<int64_t> bytes;
  for (const Explanation::Leak& leak : explanation.leaks) bytes.push_back(leak.bytes);
  CHECK(bytes == std::vector<int64_t>{36, 16, 8});
  CHECK(explanation.peak_bytes == 60);
}

TEST_CASE("times of captured kernels lose the time between events, and are scaled to the step", "[explain]") {
  Explanation explanation;
  explanation.step_seconds = 0.010;
  explanation.kernels.resize(3);
  for (Explanation::Kernel& kernel : explanation.kernels) kernel.seconds = 9;
  const auto seconds = [&](size_t i) { return explanation.kernels[i].seconds; };
  training::detail::set_captured_times(explanation, {0.003, 0.005, 0.0005}, 0.001);
  CHECK(seconds(0) == Approx(0.002));
  CHECK(seconds(1) == Approx(0.004));
  CHECK(seconds(2) == 0);  // not less than nothing
  CHECK(explanation.between_seconds == Approx(0.004));
  CHECK(explanation.notes.empty());

  training::detail::set_captured_times(explanation, {0.009, 0.001, 0.013}, 0.001);
  CHECK(seconds(0) == Approx(0.004));
  CHECK(seconds(1) == 0);
  CHECK(seconds(2) == Approx(0.006));
  CHECK(explanation.between_seconds == Approx(0).margin(1e-9));
  REQUIRE(explanation.notes.size() == 1);
  CHECK(explanation.notes[0] == "kernels take 200 % of the step with events around them: scaled to it");
}

TEST_CASE("the measured roofline is as fast as the fastest kernels of its sizes", "[explain]") {
  struct Fastest : Observer {
    void on_end(const ObservedEvent& event) override {
      if (event.kind != ObservedEvent::Kind::kernel || event.shape_count == 0) return;
      const std::string name = event.name;
      double& seconds = least
                            .try_emplace({name == "matmul" ? "matmul"
                                          : name == "fill" ? "fill"
                                                           : "sweep",
                                          numel_of(event.shapes[0])},
                                         INFINITY)
                            .first->second;
      seconds = std::min(seconds, event.seconds);
    }
    double of(const std::string& kind, int64_t numel) const { return least.at({kind, numel}); }
    std::map<std::pair<std::string, int64_t>, double> least;
  } fastest;
  add_observer(&fastest);
  const training::Roofline roofline = training::measure_roofline();
  remove_observer(&fastest);
  const double peak = 2.0 * 384 * 384 * 384 / fastest.of("matmul", 384 * 384);
  CHECK(roofline.peak <= 1.001 * peak);
  CHECK(roofline.peak >= 0.5 * peak);
  REQUIRE(roofline.levels.size() == 4);
  constexpr int64_t kSizes[] = {1 << 18, 2 << 20, 16 << 20, 64 << 20};
  for (size_t i = 0; i < 4; ++i) {
    INFO(i);
    CHECK(roofline.levels[i].bytes == kSizes[i]);
    const auto bytes = static_cast<double>(kSizes[i]);
    const double bandwidth = bytes / std::min(fastest.of("sweep", kSizes[i] / 4), fastest.of("sweep", kSizes[i] / 12));
    CHECK(roofline.levels[i].bandwidth <= 1.001 * bandwidth);
    // What surrounds a kernel takes a part of the time that is negligible for the largest arrays alone.
    CHECK(roofline.levels[i].bandwidth >= (i == 3 ? 0.97 : 0.2) * bandwidth);
  }
}
