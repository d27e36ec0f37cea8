// Compares memory reports with what the allocator measures, to the byte.
#include <algorithm>
#include <map>
#include <sstream>

#include <gradus/benchmarks/nets.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;

namespace {

enum class ReportedRule : uint8_t { sgd, adamw };

std::unique_ptr<optim::Optimizer> reported_optimizer(ReportedRule rule, const std::vector<Tensor>& parameters) {
  if (rule == ReportedRule::sgd) return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.01).momentum(0.9));
  return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(1e-3));
}

int batch_axis_of(const benchmarks::Workload& workload) { return workload.input(7)[0] == 7 ? 0 : 1; }

int64_t allocated() { return runtime(DeviceType::cpu).memory_stats(0).allocated; }

/// Returns the allocator's peak during f, including memory that was in use before.
template <class F>
int64_t peak_of(const F& f) {
  runtime(DeviceType::cpu).reset_peak_memory_stats(0);
  f();
  return runtime(DeviceType::cpu).memory_stats(0).peak_allocated;
}

/// Compares the report of a step of the net with the step itself, run eagerly and, if `runs_static`, as a StaticStep.
void check_report(const benchmarks::Workload& workload, int64_t batch, ReportedRule rule, bool runs_static) {
  INFO(workload.name << " " << batch << " " << static_cast<int>(rule) << " on "
                     << current_backend(DeviceType::cpu).name());
  manual_seed(3);
  const int64_t before = allocated();
  const nn::AnyModule net = workload.make();
  const auto optimizer = reported_optimizer(rule, net.ptr()->parameters());
  const MemoryReport report =
      plan(net, workload.input(batch), *optimizer, PlanOptions().batch_axis(batch_axis_of(workload)));
  CHECK(report.peak - report.at_peak[static_cast<int>(MemoryKind::parameters)] > 0);
  {
    const Tensor x = rand(workload.input(batch)), target = randint(0, 10, {batch}, kLong);
    const auto step = [&] {
      optimizer->zero_grad();
      const Tensor loss = cross_entropy(net.forward(x), target);
      loss.backward();
      optimizer->step();
    };
    step();
    CHECK(peak_of(step) - before == report.peak);
  }
  if (!runs_static) return;
  training::StaticStep step(kCPU, {optimizer.get()}, [&](const TensorList& tensors) -> TensorList {
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(net.forward(tensors[0]), tensors[1]);
    loss.backward();
    optimizer->step();
    return {loss};
  });
  const TensorList tensors = {rand(workload.input(batch)), randint(0, 10, {batch}, kLong)};
  step(tensors), step(tensors);
  REQUIRE(step.executor());
  CHECK(static_cast<int64_t>(step.executor()->plan().bytes) == report.static_arena);
  CHECK(static_cast<int64_t>(step.executor()->plan().lower_bound) == report.static_lower_bound);
  CHECK(peak_of([&] { step(tensors); }) - before == report.static_peak + report.inputs);
}

}  // namespace

TEST_CASE("a step's reported memory equals the allocator's peak, to the byte, with openmp", "[plan][accuracy]") {
  for (const benchmarks::Workload& workload : benchmarks::workloads())
    for (ReportedRule rule : {ReportedRule::sgd, ReportedRule::adamw})
      for (int64_t batch : {1, 2, 5}) check_report(workload, batch, rule, batch == 2);
}

TEST_CASE("a step's reported memory equals the allocator's peak, to the byte, with naive", "[plan]") {
  const BackendGuard guard("naive");
  for (const benchmarks::Workload& workload : benchmarks::workloads())
    for (int64_t batch : {1, 2, 3})
      if (workload.name == "lenet" || workload.name == "pure_linear" || (workload.name == "attention" && batch == 1))
        check_report(workload, batch, ReportedRule::adamw, batch == 1);
}

namespace {

/// Runs the forward and backward pass of a step. Returns the loss, the gradients and the buffers.
std::vector<Tensor> results_of_step(const nn::AnyModule& net, optim::Optimizer& optimizer, const Tensor& x,
                                    const Tensor& target) {
  std::vector<Tensor> results;
  manual_seed(5);
  optimizer.zero_grad();
  {
    const Tensor loss = cross_entropy(net.forward(x), target);
    loss.backward();
    results.push_back(loss.detach().clone());
  }
  for (const Tensor& parameter : net.ptr()->parameters()) results.push_back(parameter.grad().clone());
  for (const Tensor& buffer : net.ptr()->buffers()) results.push_back(buffer.clone());
  return results;
}

}  // namespace

TEST_CASE("recomputation gives identical results and needs the reported memory", "[plan][accuracy]") {
  for (const benchmarks::Workload& workload : benchmarks::workloads()) {
    INFO(workload.name);
    const int64_t batch = workload.name == "resnet18" ? 2 : 4;
    manual_seed(3);
    const nn::AnyModule net = workload.make();
    const auto optimizer = reported_optimizer(ReportedRule::sgd, net.ptr()->parameters());
    const PlanOptions options = PlanOptions().batch_axis(batch_axis_of(workload));
    const Shape shape = workload.input(batch);
    const Tensor x = rand(shape), target = randint(0, 10, {batch}, kLong);
    const nn::StateDict start = [&] {
      nn::StateDict copy("numbers");
      for (const auto& entry : net.ptr()->state_dict()) copy.append(entry.key(), entry->clone());
      return copy;
    }();
    const auto fresh = [&] {
      net.ptr()->load_state_dict(start);
      return results_of_step(net, *optimizer, x, target);
    };
    const std::vector<Tensor> expected = fresh();
    const MemoryReport kept = plan(net, shape, *optimizer, options);
    const auto check_recomputed = [&](const std::vector<RecomputedPart>& parts) {
      REQUIRE_FALSE(parts.empty());
      INFO(parts[0].str() << " and " << parts.size() - 1);
      const std::vector<Tensor> results = fresh();
      REQUIRE(results.size() == expected.size());
      for (size_t i = 0; i < results.size(); ++i) CHECK(results[i].equal(expected[i]));
    };
    check_recomputed(recompute_all(net, shape, *optimizer, options));
    const MemoryReport full = plan(net, shape, *optimizer, options);
    CHECK(full.activations < kept.activations);
    CHECK(full.recomputed_flops > 0);
    CHECK(kept.recomputed_flops == 0);
    CHECK(full.forward_flops == kept.forward_flops);
    if (full.peak < kept.peak) {
      const int64_t budget = (full.peak + kept.peak) / 2;
      check_recomputed(recompute_within(net, shape, *optimizer, budget, options));
      CHECK(plan(net, shape, *optimizer, options).peak < kept.peak);
    }
    CHECK(recompute_within(net, shape, *optimizer, kept.peak, options).empty());
    keep_all(net);
    CHECK(plan(net, shape, *optimizer, options).peak == kept.peak);
  }
}

TEST_CASE("the reported memory of a recorded step includes the constants that it keeps", "[plan]") {
  const auto scale = [](const Tensor& x) { return x * tensor({1.0f, 2.0f, 3.0f, 4.0f}); };
  benchmarks::Workload workload;
  workload.name = "constant";
  workload.input = [](int64_t batch) { return Shape{batch, 6}; };
  workload.make = [&] {
    return nn::AnyModule(nn::Sequential(nn::Linear(6, 4), nn::Functional(scale), nn::Linear(4, 10)));
  };
  check_report(workload, 3, ReportedRule::adamw, true);
}

TEST_CASE("recomputed steps need the reported memory, to the byte, eager and static", "[plan][accuracy]") {
  for (const char* name : {"lenet", "stl10_net", "resnet18", "lstm", "attention"})
    for (bool full : {false, true}) {
      std::vector<benchmarks::Workload> works = benchmarks::workloads();
      benchmarks::Workload workload =
          *std::find_if(works.begin(), works.end(), [&](const auto& work) { return work.name == name; });
      const ReportedRule rule = full ? ReportedRule::adamw : ReportedRule::sgd;
      const auto make = workload.make;
      workload.make = [&, make] {
        nn::AnyModule net = make();
        const auto optimizer = reported_optimizer(rule, net.ptr()->parameters());
        const PlanOptions options = PlanOptions().batch_axis(batch_axis_of(workload));
        const int64_t peak = plan(net, workload.input(4), *optimizer, options).peak;
        if (full) recompute_all(net, workload.input(4), *optimizer, options);
        else recompute_within(net, workload.input(4), *optimizer, peak * 9 / 10, options);
        return net;
      };
      check_report(workload, 4, rule, true);
    }
}

TEST_CASE("a memory report lists each gradient under the name of its parameter", "[plan]") {
  for (const benchmarks::Workload& workload : benchmarks::workloads()) {
    if (workload.name != "lenet") continue;
    const nn::AnyModule net = workload.make();
    const auto optimizer = reported_optimizer(ReportedRule::sgd, net.ptr()->parameters());
    const MemoryReport report = plan(net, workload.input(2), *optimizer, PlanOptions());
    std::map<std::string, int64_t> planned, wanted;
    for (const MemorySpan& span : report.timeline)
      if (span.kind == MemoryKind::gradients) planned[span.op] += span.bytes;
    int64_t sum = 0;
    for (const auto& item : net.ptr()->named_parameters()) sum += wanted[item.key()] = 4 * item.value().numel();
    for (const auto& [name, bytes] : wanted) {
      INFO(name);
      CHECK(planned.count(name) == 1);
      CHECK(planned[name] >= bytes);
    }
    CHECK(planned.size() == wanted.size());
    CHECK(report.gradients >= sum);
  }
}

TEST_CASE("only parts that leave less memory for the backward pass are recomputed", "[plan]") {
  struct BlockImpl : nn::Module {
    nn::Linear first = register_module("first", nn::Linear(8, 8)), second = register_module("second", nn::Linear(8, 8));
    Tensor forward(const Tensor& x) {
      const auto frame = enter();
      return second(first(x).tanh());
    }
  };
  struct NetImpl : nn::Module {
    nn::Linear head = register_module("head", nn::Linear(6, 8));
    nn::ModuleHolder<BlockImpl> block = register_module("block", nn::ModuleHolder<BlockImpl>());
    Tensor forward(const Tensor& x) { return block(head(x)); }
  };
  const nn::ModuleHolder<NetImpl> net;
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  const std::vector<RecomputedPart> parts = recompute_all(net, {3, 6}, optimizer);
  REQUIRE(parts.size() == 1);  // a linear layer alone keeps its input in any case
  CHECK(parts[0].str() == "block");
  CHECK(parts[0].saved == 3 * 8 * 4);  // the result of tanh
}

TEST_CASE("recomputed parts are named by their module and the range in it", "[plan]") {
  RecomputedPart part;
  part.module = "body";
  CHECK(part.str() == "body");
  part.begin = 2, part.end = 5;
  CHECK(part.str() == "body[2, 5)");
}

TEST_CASE("memory reports of inference, of mixed precision, and the largest batch", "[plan]") {
  manual_seed(3);
  const int64_t before = allocated();
  nn::Sequential net = benchmarks::lenet();
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.01).momentum(0.9));
  const int64_t at_net = allocated() - before;
  const Tensor x = rand({8, 1, 28, 28}), target = randint(0, 10, {8}, kLong);
  {
    const MemoryReport report = plan(net, {8, 1, 28, 28});
    const int64_t peak = peak_of([&] {
      const NoGradGuard no_grad;
      net->forward(x);
    });
    CHECK(peak - before - static_cast<int64_t>(target.array().nbytes()) == report.peak);
    CHECK(report.parameters == at_net);
    CHECK(report.gradients == 0);
    CHECK(report.activations == 8 * 10 * 4);
  }
  {
    const MemoryReport report = plan(net, {8, 1, 28, 28}, optimizer, PlanOptions().autocast(kBFloat16));
    const auto step = [&] {
      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::Autocast autocast(kCPU, kBFloat16);
        loss = cross_entropy(net->forward(x), target);
      }
      loss.backward();
      optimizer.step();
    };
    step();
    CHECK(peak_of(step) - before == report.peak);
    // The half-precision copies of parameters are kept from step to step, like the optimizer's state.
    CHECK(report.optimizer_state > plan(net, {8, 1, 28, 28}, optimizer).optimizer_state);
  }
  {
    // Autocast reads half-precision copies of the linear layer's parameters, but not of the normalisation's.
    const nn::Sequential normalised(nn::Linear(5, 7), nn::BatchNorm1d(7));
    optim::SGD other(normalised->parameters(), optim::SGDOptions(0.01));
    const int64_t state = plan(normalised, {3, 5}, other).optimizer_state;
    CHECK(plan(normalised, {3, 5}, other, PlanOptions().autocast(kBFloat16)).optimizer_state ==
          state + counted_bytes(2 * 35, DeviceType::cpu) + counted_bytes(2 * 7, DeviceType::cpu));
  }
  const int64_t bytes = plan(net, {20, 1, 28, 28}, optimizer).peak;
  CHECK(largest_batch(net, {1, 1, 28, 28}, optimizer, bytes) == 20);
  CHECK(largest_batch(net, {1, 1, 28, 28}, optimizer, bytes - 1) == 19);
  CHECK(largest_batch(net, {1, 1, 28, 28}, optimizer, 1000) == 0);
  for (const int axis : {-1, 4})
    CHECK_THROWS_WITH(largest_batch(net, {1, 1, 28, 28}, optimizer, bytes, PlanOptions().batch_axis(axis)),
                      contains("largest_batch: an input of shape (1, 1, 28, 28) has no axis " + std::to_string(axis)));
}

TEST_CASE("a memory report estimates FLOPs from the shapes of the operands", "[plan]") {
  const auto forward_flops = [](const PlannedModel& net, const Shape& shape) { return plan(net, shape).forward_flops; };
  CHECK(forward_flops(nn::Linear(5, 7), {3, 5}) == 2 * (3 * 7) * 5);
  CHECK(forward_flops(nn::Linear(nn::LinearOptions(5, 7).bias(false)), {3, 5}) == 2 * (3 * 7) * 5);
  CHECK(forward_flops(nn::Conv2d(nn::Conv2dOptions(2, 5, {3, 4}).bias(false)), {4, 2, 8, 10}) ==
        2 * (4 * 5 * 6 * 7) * (2 * 3 * 4));
  CHECK(forward_flops(nn::Conv2d(2, 5, 3), {4, 2, 8, 10}) == 2 * (4 * 5 * 6 * 8) * (2 * 3 * 3));
  CHECK(forward_flops(nn::Tanh(), {3, 5}) == 3 * 5);
  CHECK(forward_flops(nn::Functional([](const Tensor& x) { return x + ones({3, 5}); }), {3, 5}) == 2 * 3 * 5);

  nn::Sequential net(nn::Linear(5, 7), nn::Tanh(), nn::Linear(7, 2));
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  const double of_loss = 3 * 2 + 1 + 1;  // cross_entropy writes the log-probabilities and two sums
  CHECK(plan(net, {3, 5}, optimizer).forward_flops == forward_flops(net, {3, 5}) + of_loss);
  net->recompute_part(0, 2);
  const MemoryReport report = plan(net, {3, 5}, optimizer);
  CHECK(report.recomputed_flops == 2 * (3 * 7) * 5 + 3 * 7);
  std::string recomputed;
  for (const MemorySpan& span : report.timeline)
    if (span.kind == MemoryKind::recomputed) recomputed += span.module + " " + span.op + ", ";
  CHECK(recomputed == "0 linear, 1 tanh, ");
}

TEST_CASE("of buffers that are views, a memory report counts the bytes that they use", "[plan]") {
  const nn::Linear net(5, 7);
  net->register_buffer("repeated", ones({1}).expand({1000}));
  net->register_buffer("part", ones({1000}).narrow(0, 0, 1));
  CHECK(plan(net, {3, 5}).buffers == 2 * counted_bytes(4, DeviceType::cpu));

  const nn::Linear overlapping(5, 7);
  const Tensor numbers = ones({100});
  for (const auto& [begin, size] : {std::pair(10, 60), {20, 10}, {40, 10}, {60, 30}})
    overlapping->register_buffer("from " + std::to_string(begin), numbers.narrow(0, begin, size));
  CHECK(plan(overlapping, {3, 5}).buffers == counted_bytes(4 * 80, DeviceType::cpu));
}

TEST_CASE("a memory report prints all that it knows", "[plan]") {
  const nn::Sequential net(nn::Conv2d(1, 4, 3), nn::BatchNorm2d(4), nn::ReLU(), nn::Flatten(), nn::Linear(144, 10));
  optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-3));
  const MemoryReport report = plan(net, {2, 1, 8, 8}, optimizer);
  std::map<std::string, int64_t> lines;  // the first of each name
  std::istringstream text(report.str());
  for (std::string line; std::getline(text, line);) {
    const std::string name = line.substr(0, line.find_last_not_of(' ', 24) + 1);
    lines.emplace(name, std::stoll(line.substr(24)));
  }
  const std::map<std::string, int64_t> expected = {{"parameters", report.parameters},
                                                   {"buffers", report.buffers},
                                                   {"gradients", report.gradients},
                                                   {"optimizer state", report.optimizer_state},
                                                   {"activations", report.activations},
                                                   {"workspace", report.workspace},
                                                   {"inputs", report.inputs},
                                                   {"peak, eager", report.peak},
                                                   {"peak, static", report.static_peak},
                                                   {"  arena", report.static_arena},
                                                   {"  its lower bound", report.static_lower_bound}};
  for (const auto& [name, bytes] : expected) {
    INFO(name);
    CHECK(lines.count(name) == 1);
    CHECK(lines[name] == bytes);
  }
  int64_t sum = 0;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    const std::string of_peak = std::string("  ") + name(static_cast<MemoryKind>(kind));
    CHECK(lines.count(of_peak) == (report.at_peak[kind] > 0));
    sum += lines[of_peak];
  }
  CHECK(lines.size() == expected.size() + kMemoryKinds);  // the lookups above have added the kinds without a line
  CHECK(sum == report.peak);
  CHECK(report.buffers > 0);
}

TEST_CASE("a memory report includes single bytes, and leaves out what needs none", "[plan]") {
  const nn::Sequential net(nn::Functional([](const Tensor& x) { return x.logical_not(); }));
  const auto report_of = [&] { return plan(net, {1}, PlanOptions().input_dtype(kBool)); };
  CHECK(report_of().peak == 2);  // the input and the result
  CHECK_THAT(report_of().str(), !contains("buffers ") && !contains("  parameters ") && !contains("  gradients "));
  net->register_buffer("flag", ones({1}, kBool));
  const MemoryReport report = report_of();
  CHECK(report.peak == 3);
  CHECK(report.at_peak[static_cast<int>(MemoryKind::parameters)] == 1);
  CHECK_THAT(report.str(),
             contains("buffers ") && contains("  parameters ") && contains("  inputs ") && contains("  activations "));
  CHECK_THAT(report.str(), !contains("  gradients "));
}

TEST_CASE("a memory report of a step without allocations counts what exists before it", "[plan]") {
  CHECK(plan(nn::Identity(), {3, 5}).peak == 4 * 3 * 5);
}

TEST_CASE("the parts of a reported step follow each other in time", "[plan]") {
  const nn::Sequential net(nn::Linear(5, 7), nn::Tanh(), nn::Linear(7, 2));
  optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-3));
  const MemoryReport report = plan(net, {3, 5}, optimizer);
  CHECK(0 < report.backward_begin);
  CHECK(report.backward_begin < report.step_begin);
  CHECK(report.step_begin <= report.end);
  CHECK(report.peak_time <= report.end);
  // The results of Tanh and of the last layer, the logarithms of probabilities, the loss and its number of targets.
  CHECK(report.activations == 4 * (3 * 7 + 3 * 2 + 3 * 2 + 1 + 1));
  int64_t at_peak = 0;
  std::string forward;
  for (const MemorySpan& span : report.timeline) {
    if (span.kind == MemoryKind::activations) forward += span.module + " " + span.op + ", ";
    if (span.kind == MemoryKind::parameters) CHECK((span.begin == 0 && span.end == report.end));
    INFO(name(span.kind) << " of " << span.op);
    CHECK(span.begin < span.end);
    if (span.kind == MemoryKind::activations) CHECK(span.begin < report.backward_begin);
    if (span.kind == MemoryKind::gradients || span.kind == MemoryKind::backward)
      CHECK((report.backward_begin <= span.begin && span.begin < report.step_begin));
    if (span.kind == MemoryKind::optimizer) CHECK(report.step_begin <= span.begin);
    if (span.begin <= report.peak_time && report.peak_time < span.end) at_peak += span.bytes;
  }
  CHECK(at_peak == report.peak);
  CHECK_THAT(forward, contains("0 linear, 1 tanh, 2 linear, "));
}

TEST_CASE("a memory report names the module and operator of the call after each allocation", "[plan]") {
  const auto allocates_last = [](const Tensor& x) {
    const Tensor y = x + ones({3, 5});
    return empty({16}).narrow(0, 0, 1);  // no call comes after it
  };
  std::string found;
  for (const MemorySpan& span : plan(nn::Functional(allocates_last), {3, 5}).timeline)
    if (span.kind == MemoryKind::activations) found += span.op + " " + std::to_string(span.bytes) + ", ";
  CHECK(found == "ones 60, add 60,  64, ");
}

TEST_CASE("a memory report includes parameters that only the optimizer has, such as shards", "[plan]") {
  const Tensor w = ones({7}).requires_grad_();
  const nn::Sequential net(nn::Linear(5, 7), nn::Functional([w](const Tensor& x) { return x * w; }));
  std::vector<Tensor> parameters = net->parameters();
  parameters.push_back(w);
  optim::SGD optimizer(parameters, optim::SGDOptions(0.1));
  const MemoryReport report = plan(net, {3, 5}, optimizer);
  CHECK(report.parameters == 4 * (7 * 5 + 7 + 7));
  std::map<std::string, int64_t> gradients;
  for (const MemorySpan& span : report.timeline)
    if (span.kind == MemoryKind::gradients) gradients[span.op] += span.bytes;
  CHECK(gradients == std::map<std::string, int64_t>{{"0.weight", 4 * 35}, {"0.bias", 4 * 7}, {"a shard", 4 * 7}});
}

TEST_CASE("a memory report counts gradients in the memory that they are bound to", "[plan]") {
  const nn::Linear net(5, 7);
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  const MemoryReport before = plan(net, {3, 5}, optimizer);
  const Tensor bucket = zeros({42});
  net->weight.bind_grad(bucket.slice(0, 0, 35).view({7, 5}).array());
  net->bias.bind_grad(bucket.slice(0, 35).array());
  const MemoryReport bound = plan(net, {3, 5}, optimizer);
  CHECK(bound.gradients == 4 * 42);
  CHECK(before.gradients == 4 * 42);
  const auto gradients = std::ranges::find(bound.timeline, MemoryKind::gradients, &MemorySpan::kind);
  REQUIRE(gradients != bound.timeline.end());
  CHECK((gradients->op == "buckets" && gradients->bytes == 4 * 42 && gradients->end == bound.end));
}

TEST_CASE("a memory report uses the loss, the target and the types of its options", "[plan]") {
  const nn::Linear net(5, 2);
  net->to(kDouble);
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  const auto loss = [](const Tensor& output, const Tensor& target) { return mse_loss(output, target); };
  const MemoryReport report =
      plan(net, {3, 5}, optimizer,
           PlanOptions().loss(loss).target_shape(Shape{3, 2}).target_dtype(kDouble).input_dtype(kDouble));
  CHECK(report.inputs == 8 * (3 * 5 + 3 * 2));
}

TEST_CASE("a memory report changes neither model nor optimizer", "[plan]") {
  const bool is_mixed = GENERATE(false, true);
  const auto options = is_mixed ? PlanOptions().autocast(kBFloat16) : PlanOptions();
  const auto train = [&](bool reports) {
    manual_seed(9);
    ResNet18 net(ResNet18Options().width(8).dropout(0.1));
    optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-3));
    std::vector<Tensor> results;
    for (int i = 0; i < 2; ++i) {
      const auto may_report = [&] {
        if (reports) plan(net, {2, 3, 16, 16}, optimizer, options);
      };
      may_report();  // in the first iteration the optimizer has no state yet, in the second it has
      const Tensor loss = [&] {
        std::optional<amp::Autocast> autocast;
        if (is_mixed) autocast.emplace(kCPU, kBFloat16);
        return cross_entropy(net(rand({2, 3, 16, 16})), tensor({1, 2}, kLong));
      }();
      loss.backward();
      may_report();  // must keep the gradients
      optimizer.step();
      results.push_back(loss.detach());
    }
    for (const auto& entry : net->state_dict()) results.push_back(*entry);
    for (const auto& entry : optimizer.state_dict()) results.push_back(*entry);
    return results;
  };
  const std::vector<Tensor> without = train(false), with = train(true);
  REQUIRE(with.size() == without.size());
  for (size_t i = 0; i < with.size(); ++i) CHECK(with[i].equal(without[i]));
}

TEST_CASE("a memory report of a step that cannot be recorded is an error", "[plan]") {
  nn::Sequential net(nn::Linear(4, 2));
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  for (const int axis : {-1, 2})
    CHECK_THROWS_WITH(plan(net, {2, 4}, optimizer, PlanOptions().batch_axis(axis)), contains("batch_axis"));
  optim::LBFGS without_rule(net->parameters());
  CHECK_THROWS_WITH(plan(net, {2, 4}, without_rule), contains("has_rule"));
  CHECK_THROWS_WITH(plan(nn::AnyModule(), {2, 4}, optimizer), contains("plan: the model is an empty"));
  CHECK_THROWS_WITH(recompute_all(nn::AnyModule(), {2, 4}, optimizer),
                    contains("recomputation: the model is an empty"));
  CHECK_THROWS_AS(plan(net, {2, 5}, optimizer), ShapeError);
  const auto reads = [](const Tensor& output, const Tensor&) { return output.sum() * output.sum().item<float>(); };
  CHECK_THROWS_AS(plan(net, {2, 4}, optimizer, PlanOptions().loss(reads)), DeviceError);
  CHECK(plan(net, {2, 4}, optimizer).peak > 0);  // the errors above had no lasting effect
  CHECK_THROWS_WITH(net->recompute_part(0, 2), contains("Sequential of 1"));
  CHECK_THROWS_WITH(net->recompute_part(0, 0), contains("to recompute is empty"));
  net->recompute_part(0, 1);
  CHECK_THROWS_WITH(net->recompute_part(0, 1), contains("overlap"));
}

TEST_CASE("modules are recomputed when called, and their clones are not", "[plan]") {
  manual_seed(4);
  nn::Sequential net(nn::Linear(6, 8), nn::Tanh(),
                     nn::Sequential(nn::Linear(8, 8), nn::Tanh(), nn::Linear(8, 8), nn::Tanh()), nn::Linear(8, 2));
  const Tensor x = randn({3, 6});
  const auto kept_and_gradient = [&](const nn::Sequential& of) {
    of->zero_grad();
    const int64_t before = allocated();
    const Tensor y = of(x).sum();
    const int64_t kept = allocated() - before;
    y.backward();
    return std::pair(kept, of->parameters()[0].grad().clone());
  };
  const auto expected = kept_and_gradient(net);
  (*net)[2]->recompute();
  CHECK((*net)[2]->is_recomputed());
  const auto module = kept_and_gradient(net);
  net->recompute_part(0, 3);
  const auto part = kept_and_gradient(net);
  const nn::Sequential clone(std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone()));
  CHECK(module.first < expected.first);
  CHECK(part.first < module.first);
  CHECK(kept_and_gradient(clone).first == expected.first);
  CHECK(module.second.equal(expected.second));
  CHECK(part.second.equal(expected.second));
  {
    const NoGradGuard no_grad;
    CHECK(net(x).equal(clone(x)));
  }
  keep_all(net);
  CHECK_FALSE((*net)[2]->is_recomputed());
  CHECK(kept_and_gradient(net).first == expected.first);
}

TEST_CASE("recomputation selects disjoint parts that save the most bytes per FLOP and lower the peak", "[plan]") {
  const BackendGuard guard("naive");  // the naive backend needs the same scratch memory on every machine
  const std::map<std::string, std::pair<int, std::string>> expected = {
      // The peak in percent of the peak without recomputation, and the recomputed parts.
      {"conv10_c1", {81, " [0, 3) [3, 6) [6, 9) [9, 12)"}},
      {"stl10_net", {86, " [0, 2)"}}};
  size_t found = 0;
  for (const benchmarks::Workload& workload : benchmarks::workloads()) {
    const auto wanted = expected.find(workload.name);
    if (wanted == expected.end()) continue;
    ++found;
    manual_seed(3);
    const nn::AnyModule net = workload.make();
    const auto optimizer = reported_optimizer(ReportedRule::sgd, net.ptr()->parameters());
    const PlanOptions options = PlanOptions().batch_axis(batch_axis_of(workload));
    const auto& [percent, parts] = wanted->second;
    const int64_t budget = plan(net, workload.input(16), *optimizer, options).peak * percent / 100;
    std::string chosen;
    for (const RecomputedPart& part : recompute_within(net, workload.input(16), *optimizer, budget, options))
      chosen += " " + part.str();
    CHECK(chosen == parts);
  }
  CHECK(found == expected.size());
}

namespace {

struct SinesImpl : nn::Module {
  explicit SinesImpl(int count) : count(count) {}
  Tensor forward(Tensor x) {
    const auto frame = enter();
    for (int i = 0; i < count; ++i) x = x.sin();  // keeps all inputs for the backward pass
    return x;
  }
  int count;
};
using Sines = nn::ModuleHolder<SinesImpl>;

struct StagesImpl : nn::Module {
  nn::Sequential first = register_module("first", nn::Sequential(Sines(3), nn::Linear(6, 8), Sines(2)));
  nn::Sequential second = register_module("second", nn::Sequential(nn::Linear(8, 16), Sines(4)));
  nn::Sequential none = register_module("none", nn::Sequential());
  Sines middle = register_module("middle", Sines(3));
  nn::Linear head = register_module("head", nn::Linear(16, 4));
  Tensor forward(const Tensor& x) {
    const auto frame = enter();
    return head(middle(second(first(x))));
  }
};

}  // namespace

TEST_CASE("recomputation selects the parts with the fewest FLOPs per byte that keep the budget", "[plan]") {
  struct Choice {
    int64_t saved;  // by these parts, in bytes of the peak
    std::string parts;
  };
  struct Expected {
    nn::AnyModule net;
    std::vector<Choice> within;  // budgets that each choice keeps and the choice before it does not
    Choice within_nothing, recompute_all;
  };
  const BackendGuard guard("naive");  // the naive backend needs the same scratch memory on every machine
  const std::vector<Expected> nets = {
      {nn::AnyModule(nn::Sequential(nn::Linear(6, 8), Sines(3), nn::Linear(8, 16), Sines(2), nn::Linear(16, 4))),
       {{1024, " [1, 2)"}, {1280, " [1, 2) [3, 4)"}, {1536, " [0, 2)"}, {1792, " [3, 4) [0, 2)"}},
       {1792, " [0, 2) [2, 4)"},
       {1536, " [0, 2) [2, 5)"}},
      {nn::AnyModule(nn::Sequential(nn::Linear(6, 8), Sines(2), nn::Linear(8, 16), Sines(3), nn::Linear(16, 4))),
       {{256, " [3, 4)"}, {512, " [1, 2)"}, {768, " [3, 4) [1, 2)"}, {1024, " [0, 2)"}, {1280, " [2, 4) [0, 2)"}},
       {1280, " [2, 4) [0, 2)"},
       {1024, " [0, 2) [2, 5)"}},
      {nn::AnyModule(
           nn::Sequential(nn::Linear(6, 4), Sines(2), nn::Linear(4, 8), nn::Linear(8, 16), nn::Linear(16, 4))),
       {{256, " [1, 2)"}, {512, " [0, 2)"}, {768, " [0, 3)"}},
       {768, " [0, 3)"},
       {512, " [0, 2) [2, 5)"}},
      {nn::AnyModule(nn::Sequential(Sines(2), nn::Linear(6, 16), Sines(4), Sines(2), nn::Linear(16, 4))),
       {{256, " [2, 4)"}, {2304, " [0, 1) [1, 3) [3, 5)"}},
       {2304, " [0, 1) [1, 3) [3, 5)"},
       {2304, " [0, 1) [1, 3) [3, 5)"}},
      {nn::AnyModule(nn::Sequential(nn::Linear(6, 4), Sines(5), Sines(5))),
       {{264, " [1, 3)"}, {1288, " [0, 1) [1, 2) [2, 3)"}},
       {1288, " [0, 1) [1, 2) [2, 3)"},
       {1288, " [0, 1) [1, 2) [2, 3)"}},
      {nn::AnyModule(nn::ModuleHolder<StagesImpl>()),
       {{3072, " second[1, 2)"},
        {3328, " second[1, 2) middle"},
        {3584, " second[1, 2) first[2, 3)"},
        {3840, " second[1, 2) middle first[2, 3)"},
        {4736, " second[0, 2) first[0, 3)"}},
       {4736, " second[0, 2) first[0, 3)"},
       {4736, " middle first[0, 3) second[0, 2)"}}};
  for (const Expected& expected : nets) {
    const nn::AnyModule& net = expected.net;
    optim::SGD optimizer(net.ptr()->parameters(), optim::SGDOptions(0.1));
    const auto peak = [&] { return plan(net, {16, 6}, optimizer).peak; };
    const int64_t most = peak();
    const auto check = [&](const Choice& choice, const std::vector<RecomputedPart>& parts) {
      std::string chosen;
      for (const RecomputedPart& part : parts) chosen += " " + part.str();
      CHECK(chosen == choice.parts);
      CHECK(most - peak() == choice.saved);
    };
    check({0, ""}, recompute_within(net, {16, 6}, optimizer, most));
    int64_t saved_before = 0;
    for (const Choice& choice : expected.within) {
      check(choice, recompute_within(net, {16, 6}, optimizer, most - saved_before - 1));
      check(choice, recompute_within(net, {16, 6}, optimizer, most - choice.saved));
      saved_before = choice.saved;
    }
    check(expected.within_nothing, recompute_within(net, {16, 6}, optimizer, 0));
    check(expected.recompute_all, recompute_all(net, {16, 6}, optimizer));
  }
}
