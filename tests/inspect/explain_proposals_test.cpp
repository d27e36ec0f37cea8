// The proposals of made explanations, whose figures are all known, and those that are measured.
#include <cmath>
#include <set>

#include <gradus/core/backend_interceptor.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/passes/passes.h>
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

const ExplainOptions kEstimated = ExplainOptions().proposals(false), kMeasured = ExplainOptions().steps(3);

void propose(
    Explanation& e, const ExplainOptions& options = kEstimated, const std::function<void()>& step = [] {},
    const graph::Calls& calls = {}, Backend& runs = backend("naive")) {
  training::detail::add_proposals(e, calls, runs, step, options);
}

/// "change: figure (basis)" of each proposal, with the seconds in ms.
std::vector<std::string> lines_of(const std::vector<Explanation::Proposal>& list) {
  std::vector<std::string> lines;
  for (const auto& one : list) {
    std::string& line = lines.emplace_back(one.change);
    if (one.bytes != 0) training::detail::print_to(line, ": %lld B", static_cast<long long>(one.bytes));
    if (one.seconds != 0) training::detail::print_to(line, ": %.4g ms", 1e3 * one.seconds);
    line += " (" + one.basis + ")";
  }
  return lines;
}

using Lines = std::vector<std::string>;

const Explanation::Proposal* proposal_of(const std::vector<Explanation::Proposal>& list, const std::string& part) {
  for (const auto& one : list)
    if (one.change.find(part) != std::string::npos) return &one;
  return nullptr;
}

Explanation::Call call_of(const std::string& name, const std::string& op, std::vector<size_t> inputs, double seconds,
                          bool backward = false) {
  Explanation::Call call;
  call.name = name, call.op = op, call.inputs = std::move(inputs), call.seconds = seconds, call.backward = backward;
  return call;
}

Explanation::Kernel kernel_of(const std::string& name, const std::string& implementation, double seconds,
                              double roofline) {
  Explanation::Kernel kernel;
  kernel.name = name, kernel.backend = "openmp", kernel.implementation = implementation;
  kernel.seconds = seconds, kernel.roofline = roofline;
  return kernel;
}

Explanation::Saved saved_of(const std::string& module, int64_t bytes, bool at_peak, DType dtype = DType::f32) {
  Explanation::Saved saved;
  saved.module = module, saved.bytes = bytes, saved.at_peak = at_peak, saved.dtype = dtype;
  return saved;
}

/// The backend "naive", except that a call whose first image is contiguous takes 12 ms, and one in channels-last 2 ms.
class LikesChannelsLast final : public BackendInterceptor<LikesChannelsLast> {
 public:
  std::string_view name() const override { return "likes_channels_last"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    names.insert(name);
    ++calls;
    int channels_last = 0, contiguous = 0;
    const auto count = [&](const auto& view) {
      if (view.ndim() != 4) return;
      (view.strides == channels_last_strides(view.shape) ? channels_last : contiguous) += 1;
    };
    (for_each_operand(arguments, count), ...);
    mixed = mixed || (channels_last > 0 && contiguous > 0);
    (backend("naive").*method)(arguments...);
    SteppedClock::pass(contiguous > 0 ? 12 : 2);
  }
  std::set<std::string> names;
  int calls = 0;
  bool mixed = false;
};

/// The number of kernels that ran.
struct KernelCount final : Observer {
  void on_end(const ObservedEvent& event) override { count += event.kind == ObservedEvent::Kind::kernel && event.leaf; }
  int count = 0;
};

/// The calls of work().
graph::Calls calls_of(const std::function<void()>& work) {
  graph::Calls calls;
  const auto recording = graph::call_backend(backend("naive"), [&](std::unique_ptr<graph::Call> call) {
    call->run(backend("naive"));
    calls.push_back(std::move(call));
  });
  const BackendGuard guard(*recording);
  work();
  return calls;
}

}  // namespace

TEST_CASE("a ReLU after a convolution or batch norm is proposed to be fused", "[explain]") {
  Explanation e;
  e.step_seconds = 0.1;
  e.calls = {call_of("conv2d", "conv2d", {}, 0.010),
             call_of("unary", "relu", {0}, 0.003),
             call_of("normalize", "batch_norm", {1}, 0.010),
             call_of("unary", "relu", {2}, 0.002),
             call_of("unary", "relu", {3}, 0.050),      // after another ReLU
             call_of("unary", "exp", {0}, 0.050),       // no ReLU
             call_of("binary", "relu", {0, 2}, 0.050),  // of two results
             call_of("unary_backward", "ReLU", {1}, 0.004, true),
             call_of("unary_backward", "ReLU", {4, 3}, 0.0025, true),
             call_of("binary", "Mul", {1}, 0.050, true),   // reads a ReLU's result for another reason
             call_of("unary", "relu", {0}, 0.050, true)};  // computed again in the backward pass
  propose(e);
  CHECK(lines_of(e.faster) == Lines{"fuse convolutions and their ReLU: nn::ConvReLU2d: 7 ms (time of the ReLUs)",
                                    "fuse batch norms and their ReLU: nn::BNReLU2d: 4.5 ms (time of the ReLUs)"});
  CHECK(e.smaller.empty());
  e.faster.clear(), e.step_seconds = 0.0046 / 0.02;  // a saving of less than 2 % is not worth a change
  propose(e);
  CHECK(e.faster.size() == 1);

  Explanation several;
  several.step_seconds = 0.1;
  several.calls = {call_of("conv2d", "conv2d", {}, 0.010),
                   call_of("unary", "relu", {0}, 0.003),
                   call_of("unary_backward", "ReLU", {1}, 0.004, true),  // directly after it
                   call_of("conv2d_bias", "conv2d", {1}, 0.010),
                   call_of("unary", "relu", {3}, 0.005),
                   call_of("normalize", "batch_norm", {4}, 0.010),
                   call_of("unary", "relu", {5}, 0.002),
                   call_of("normalize", "batch_norm", {6}, 0.010),
                   call_of("unary", "relu", {7}, 0.001)};
  propose(several);
  CHECK(lines_of(several.faster) == Lines{"fuse convolutions and their ReLU: nn::ConvReLU2d: 12 ms (time of the ReLUs)",
                                          "fuse batch norms and their ReLU: nn::BNReLU2d: 3 ms (time of the ReLUs)"});
}

TEST_CASE("kernels below a tenth of the roofline are named, by implementation", "[explain]") {
  Explanation e;
  e.step_seconds = 0.1;
  e.kernels = {kernel_of("matmul", "loops", 0.008, 0.05), kernel_of("matmul", "loops", 0.002, 0.02),
               kernel_of("matmul", "tiles", 0.020, 0.1), kernel_of("sort", "loops", 0.003, 0)};
  propose(e);
  CHECK(
      lines_of(e.faster) ==
      Lines{"a faster kernel for matmul by openmp/loops, at 4.4 % of the roofline: 9.56 ms (time beyond the roofline)",
            "a faster kernel for sort by openmp/loops, at 0 % of the roofline: 3 ms (time beyond the roofline)"});
}

TEST_CASE("the module that saves most memory is proposed to be computed again", "[explain]") {
  Explanation e;
  e.saved = {saved_of("block.0", 3000, true),       saved_of("block.1.conv", 2000, true),
             saved_of("head", 4000, true),          saved_of("block.1", 9000, false),
             saved_of("", 90000, true, DType::i64), saved_of("blocks", 4999, true, DType::bf16)};
  e.kernels = {kernel_of("conv2d", "loops", 0.001, 1), kernel_of("relu", "loops", 0.002, 1),
               kernel_of("relu", "loops", 0.004, 1), kernel_of("conv2d_backward", "loops", 0.008, 1)};
  e.kernels[0].module = "block.0", e.kernels[1].module = "block", e.kernels[2].module = "blocks";
  e.kernels[3].module = "block.0", e.kernels[3].backward = true;
  propose(e);
  CHECK(lines_of(e.smaller) ==
        Lines{"recompute layer 'block' in the backward pass: autograd::checkpoint, for 3 ms more: 5000 B "
              "(saved for it at the peak)",
              "mixed precision: amp::Autocast with kBFloat16: 4500 B (half of what is saved in float32 at the peak)"});
  CHECK(e.faster.empty());  // a change that saves no time is not proposed
  // Of a module and its only part, which save the same, the module is named.
  Explanation nested;
  nested.saved = {saved_of("a.b.c", 10, true)};
  propose(nested);
  CHECK_THAT(nested.smaller.at(0).change, contains("recompute layer 'a' "));
  // Of modules that save the same and have equally long names, the first is named.
  Explanation equal;
  equal.saved = {saved_of("b", 10, true, DType::i64), saved_of("a", 10, true, DType::i64),
                 saved_of("c", 10, true, DType::i64)};
  propose(equal);
  CHECK_THAT(equal.smaller.at(0).change, contains("recompute layer 'a' "));
}

TEST_CASE("the three largest savings are proposed, and leaks are proposed to be released", "[explain]") {
  Explanation e;
  e.step_seconds = 0.1;
  for (const int ms : {4, 6, 3, 5}) e.kernels.push_back(kernel_of("k" + std::to_string(ms), "loops", 1e-3 * ms, 0));
  e.leaks = {{"mul", {2}, 8}, {"add", {3, 5}, 60}, {"exp", {}, 4}, {"nothing", {0}, 0}, {"log", {4}, 16}};
  propose(e);
  REQUIRE(e.faster.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(e.faster[i].seconds == Approx(0.006 - 0.001 * static_cast<double>(i)));
  CHECK(lines_of(e.smaller) ==
        Lines{"release (3, 5) made by add, which the program keeps from step to step: 60 B (per step)",
              "release (4,) made by log, which the program keeps from step to step: 16 B (per step)",
              "release (2,) made by mul, which the program keeps from step to step: 8 B (per step)"});
  CHECK(e.notes.empty());
  Explanation flag;
  flag.leaks = {{"eq", {1}, 1}};
  propose(flag);
  CHECK(lines_of(flag.smaller) ==
        Lines{"release (1,) made by eq, which the program keeps from step to step: 1 B (per step)"});
  propose(e, kMeasured);
  CHECK(e.notes == Lines{"a step whose tensors are kept cannot be a StaticStep"});
}

TEST_CASE("channels-last is proposed where the operations on images are faster in it", "[explain]") {
  const Tensor x = randn({2, 3, 6, 6}), w = randn({4, 3, 3, 3}), one_channel = randn({2, 1, 6, 6});
  const Tensor one_pixel = randn({2, 3, 1, 1}), rows = randn({6, 6});
  optim::SGD sgd({x}, 0.1);
  x.mutable_grad() = ones_like(x);
  const SteppedClock clock;
  const auto proposed = [](const std::function<void()>& work, LikesChannelsLast& runs) {
    Explanation e;
    e.step_seconds = 0.1;
    propose(
        e, kMeasured, [] {}, calls_of(work), runs);
    const Explanation::Proposal* const found =
        proposal_of(e.faster, "channels-last: net->to(MemoryFormat::channels_last)");
    return found ? found->seconds : 0;
  };
  LikesChannelsLast runs;
  const double seconds = proposed(
      [&] {
        sgd.step();
        conv2d(x, w);
        x.exp();
        one_channel.exp(), one_pixel.exp(), rows.exp();  // these have the same elements in the same order
      },
      runs);
  CHECK(seconds == Approx(0.020));
  CHECK(runs.calls == 2 * 2 * 4);  // two calls in two layouts: once to warm up and three times for the shortest time
  CHECK_FALSE(runs.mixed);
  CHECK_FALSE(runs.names.contains("optimizer_step"));

  const Explanation explained = [&] {
    LikesChannelsLast current;
    const BackendGuard guard(current);
    return training::explain([&] { x.exp(); }, ExplainOptions().warm_up(1).steps(2));
  }();
  CHECK(proposal_of(explained.faster, "channels-last"));  // explain() measures the calls of the step

  for (const Shape& shape : {Shape{2, 3, 1, 2}, Shape{2, 3, 2, 1}, Shape{2, 2, 1, 6}, Shape{2, 3, 6, 1},
                             Shape{2, 3, 1, 1}, Shape{2, 1, 6, 6}}) {
    CAPTURE(to_string(shape));
    const Tensor image = randn(shape);
    LikesChannelsLast row;
    proposed([&] { image.exp(); }, row);
    CHECK(row.calls == (shape[1] > 1 && shape[2] * shape[3] > 1 ? 2 * 4 : 0));
  }

  Tensor result;
  const graph::Calls calls = calls_of([&] { result = x.exp(); });
  result.fill_(7);
  Explanation e;
  propose(
      e, kMeasured, [] {}, calls);
  CHECK(result.equal(full({2, 3, 6, 6}, 7.0f)));  // the measured calls have memory of their own

  LikesChannelsLast unused;
  const Tensor converted = x.contiguous(MemoryFormat::channels_last);
  CHECK(proposed([&] { converted.exp(); }, unused) == 0);  // the images are channels-last already
  CHECK(unused.calls == 2 * 4);
}

TEST_CASE("one thread is proposed where it is faster, and the number of threads stays", "[explain]") {
  const int before = num_threads();
  const SteppedClock clock;
  int on_one = 0;  // number of steps on one thread
  const auto proposed = [&](int threads) {
    set_num_threads(threads);
    Explanation e;
    e.step_seconds = INFINITY;
    const auto step = [&] {
      on_one += num_threads() == 1;
      SteppedClock::pass(num_threads() > 1 ? 20 : 1);
    };
    CHECK((propose(e, kMeasured, step), e.faster.empty()));  // nothing is worthwhile beside an endless step
    e.step_seconds = 0.050;
    propose(e, kMeasured, step);
    CHECK(num_threads() == threads);
    const Explanation::Proposal* const found = proposal_of(e.faster, "a small step: set_num_threads(1)");
    if (found) CHECK(found->basis == "measured");
    return found ? found->seconds : 0;
  };
  CHECK(proposed(1) == 0);
  on_one = 0;
  const double seconds = proposed(2);
  CHECK(on_one > 0);
  set_num_threads(before);
  CHECK(seconds == Approx(0.019));
}

TEST_CASE("the shortest times of both ways are compared", "[explain]") {
  const int before = num_threads();
  set_num_threads(2);
  const SteppedClock clock;
  int runs[2] = {};  // with two threads, and with one
  Explanation e;
  e.step_seconds = 0.500;
  propose(e, kMeasured, [&] {  // two rounds; each time is that of the second of two steps
    const bool on_one = num_threads() == 1;
    const int round = runs[on_one]++ / 2;
    if (round == 0) SteppedClock::pass(on_one ? 1 : 20);
    if (round == 1) SteppedClock::pass(on_one ? 18 : 80);
  });
  set_num_threads(before);
  const Explanation::Proposal* const found = proposal_of(e.faster, "a small step: set_num_threads(1)");
  REQUIRE(found);
  CHECK(found->seconds == Approx(0.019));
}

TEST_CASE("a static step is proposed with what its memory plan saves, and gradients keep their values", "[explain]") {
  const Tensor x = randn({256}).requires_grad_(), factor = full({256}, 3.0);
  const Tensor image = ones({1, 1, 40, 40}), filter = ones({4, 1, 3, 3});
  const auto step = [&] {
    x.mutable_grad() = Tensor();
    const Tensor a = x * factor, b = a + 1, c = b * factor, d = c + 1;  // all are alive until the end
    const Tensor e = relu(conv2d(image, filter));
    d.sum().backward();
  };
  step();
  const auto savings = [&](bool passes) {
    graph::Recorder recorder;
    step();
    graph::Graph graph = recorder.finish();
    if (passes) graph::run_passes(graph);
    const int64_t eager = graph.eager_peak();
    const graph::Executor executor(std::move(graph));
    return eager - static_cast<int64_t>(executor.plan().bytes);
  };
  const int64_t saved = savings(true);
  REQUIRE((saved > 0 && saved != savings(false)));
  step();  // the recording left gradients without values

  const SteppedClock clock;
  Explanation e;
  e.step_seconds = 0.1;
  int steps = 0;
  propose(e, kMeasured, [&] {
    step();
    // The recording leaves this out, and the static step as well.
    if (!gradus::detail::recorded_memory) SteppedClock::pass(10);
    ++steps;
  });
  const Explanation::Proposal* const smaller = proposal_of(e.smaller, "planned memory: training::StaticStep");
  REQUIRE(smaller);
  CHECK(smaller->bytes == saved);
  const Explanation::Proposal* const faster = proposal_of(e.faster, "no work between kernels: training::StaticStep");
  REQUIRE(faster);
  CHECK(faster->seconds == Approx(0.010));
  CHECK(e.notes.empty());
  CHECK(x.grad().equal(full({256}, 9.0)));
}

TEST_CASE("a static step is timed beside half as many eager steps as the other figures, and one more", "[explain]") {
  const int before = num_threads();
  set_num_threads(1);  // so that a number of threads is not measured
  const Tensor x = ones({4});
  for (const int steps : {1, 2, 5}) {
    Explanation e;
    int eager = 0, recorded = 0;
    Tensor y;
    KernelCount kernels;
    add_observer(&kernels);
    propose(e, ExplainOptions().steps(steps), [&] {
      (gradus::detail::recorded_memory ? recorded : eager) += 1;
      y = x.exp();
    });
    remove_observer(&kernels);
    CHECK(recorded == 1);
    CHECK(kernels.count == eager + 2 * (steps / 2 + 1));  // the static step runs as often as the eager one
    // Each time is that of the second of two steps. The last step replaces what the recording left.
    CHECK(eager == 2 * (steps / 2 + 1) + 1);
  }
  set_num_threads(before);
}

TEST_CASE("of a step that cannot be a static step, the reason is noted, and gradients keep their values", "[explain]") {
  const Tensor x = ones({4}).requires_grad_();
  Explanation e;
  propose(e, kMeasured, [&] {
    x.mutable_grad() = Tensor();
    const Tensor sum = (x * 3).sum();
    sum.backward();
    (void)sum.item<float>();
  });
  REQUIRE(e.notes.size() == 1);
  CHECK_THAT(e.notes[0], contains("the step cannot be a StaticStep: ") && contains("[item]"));
  CHECK(x.grad().equal(full({4}, 3.0f)));
}
