// Passes over recorded steps: identical results with fewer calls and less memory.
#include <gradus/benchmarks/nets.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/tests/graph/support.h>

using namespace gradus;
using test::calls_named;
using test::contains;
using test::graph_of;

namespace {

double mebibytes(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

TEST_CASE("calls whose results are not read are removed", "[graph_passes]") {
  const Tensor x = rand({4}), total = zeros({});
  Tensor kept;
  graph::Graph graph = graph_of([&] {
    const Tensor unused = (x + 1) * 2;  // both calls are removed
    kept = x * 3;
    total.copy_((x * x).sum());
  });
  REQUIRE(graph.calls().size() == 6);
  graph::remove_dead_code(graph);
  CHECK(graph.calls().size() == 4);
  CHECK_THROWS_WITH(graph.check_released(), contains("'mul'") && contains("kept beyond the step"));
  kept = Tensor();
  graph::Graph with_result = graph_of([&] { kept = x * 3; });
  with_result.set_result(kept.array());
  kept = Tensor();
  graph::remove_dead_code(with_result);
  CHECK(with_result.calls().size() == 1);
  graph::remove_dead_code(graph);
  CHECK(graph.calls().size() == 3);
  graph::Executor executor(std::move(graph));
  executor.run();
  CHECK(total.equal((x * x).sum()));
}

TEST_CASE("element-wise results overwrite an operand that is not read later", "[graph_passes]") {
  const Tensor x = rand({64}), y = empty({64});
  const auto step = [&](bool keeps) {
    const Tensor a = x + 1, b = a * 2, c = b.relu();
    y.copy_(keeps ? c + a : c + x);
  };
  for (const bool keeps : {false, true}) {
    graph::Graph graph = graph_of([&] { step(keeps); });
    const size_t before = graph::plan_memory(graph).bytes;
    graph::work_in_place(graph);
    CHECK(before == 3 * 256 - (keeps ? 0 : 256));
    // x + 1 needs memory if it is read later; the sum is then written into this memory.
    CHECK(graph::plan_memory(graph).bytes == (keeps ? 2 * 256 : 256));
    graph::Executor executor(std::move(graph));
    executor.run();
    const Tensor got = y.clone();
    step(keeps);
    CHECK(got.equal(y));
  }
  // A result does not overwrite memory that an array uses, that the call reads twice, or that has another type.
  Tensor result;
  graph::Graph graph = graph_of([&] {
    const Tensor a = (x + 1).reshape({8, 8}), b = a + a.t();
    result = b * 2;
    y.copy_((result > 1).to(kFloat).reshape({64}) + x);
  });
  graph.set_result(result.array());
  graph::work_in_place(graph);
  graph::Executor executor(std::move(graph));
  executor.run();
  const Tensor a = (x + 1).reshape({8, 8}), expected = (a + a.t()) * 2;
  CHECK(Tensor(executor.result(result.array())).equal(expected));
  CHECK(y.equal((expected > 1).to(kFloat).reshape({64}) + x));
}

TEST_CASE("the results of other calls do not overwrite an operand", "[graph_passes]") {
  const Tensor x = rand({8, 8}), w = rand({8, 8}), y = empty({8, 8});
  graph::Graph graph = graph_of([&] { y.copy_(matmul(x + 1, w).softmax(1).cumsum(0)); });
  graph::work_in_place(graph);
  CHECK(graph::plan_memory(graph).bytes == 2 * 256);  // each call reads one result and writes another one
}

TEST_CASE("chains of element-wise calls run block by block, with identical results", "[graph_passes]") {
  for (const char* backend : {"openmp", "naive"})
    for (const DType dtype : {kFloat, kDouble, kBFloat16}) {
      INFO(backend << " " << name(dtype));
      const BackendGuard guard(backend);
      // The sizes are not multiples of a block or a vector. The operands are scalars, a broadcast number, a condition
      // and an operand with other strides.
      const Tensor x = randn({3, 70001}).to(dtype), y = empty({3, 70001}, dtype), scale = rand({1}).to(dtype);
      const Tensor across = randn({70001, 3}).to(dtype);
      const auto step = [&] {
        const Tensor inner = (x + 0.044715 * x.pow(3)) * scale;
        const Tensor gelu = 0.5 * x * (1 + inner.tanh());
        y.copy_(gradus::where(gelu > 0, gelu, x.exp()) - across.t());
      };
      graph::Graph graph = graph_of(step);
      const size_t before = graph.calls().size(), bytes = graph::plan_memory(graph).bytes;
      graph::run_passes(graph);
      CHECK(calls_named(graph, "chain") == 1);
      CHECK(graph.calls().size() <= before - 7);
      CHECK(graph::plan_memory(graph).bytes <= bytes);
      graph::Executor executor(std::move(graph));
      executor.run();
      const Tensor got = y.clone();
      y.zero_();
      step();
      CHECK(got.equal(y));
    }
  // The operands are the two halves of a buffer.
  const Tensor pairs = randn({140000}), products = empty({70000});
  const auto multiply = [&] {
    const Tensor a = pairs * 2;
    a.slice(0, 0, 70000).mul_(a.slice(0, 70000, 140000)).add_(1);
    products.copy_(a.slice(0, 0, 70000) * 3);
  };
  graph::Graph halves = graph_of(multiply);
  graph::run_passes(halves);
  graph::Executor(std::move(halves)).run();
  const Tensor got = products.clone();
  multiply();
  CHECK(got.equal(products));
  // A call that reads a shifted or transposed operand cannot be in the chain of the call that writes it: it would read
  // outside of the block.
  const Tensor x = randn({300, 300}), y = empty({300, 300});
  graph::Graph graph = graph_of([&] {
    const Tensor a = x * 2;
    y.copy_((a + a.t()) * 3);
  });
  graph::run_passes(graph);
  graph::Executor executor(std::move(graph));
  executor.run();
  const Tensor a = x * 2;
  CHECK(y.equal((a + a.t()) * 3));
}

TEST_CASE("large parameters are updated as soon as their gradient is complete", "[graph_passes]") {
  manual_seed(4);
  nn::Sequential net(nn::Linear(256, 512), nn::ReLU(), nn::Linear(512, 512), nn::ReLU(), nn::Linear(512, 512));
  optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(0.01));
  const Tensor x = randn({8, 256}), y = randn({8, 512});
  const auto step = [&] {
    optimizer.zero_grad();
    (net->forward(x) - y).square().mean().backward();
    optimizer.step();
  };
  step();
  graph::Graph graph = graph_of(step);
  optimizer.zero_grad();
  const size_t before = graph::plan_memory(graph).lower_bound;
  REQUIRE(calls_named(graph, "optimizer_step") == 1);
  graph::update_early(graph);
  CHECK(calls_named(graph, "optimizer_step") == 4);  // one for each of three weights, and one for all biases
  CHECK(graph.calls().back()->name == std::string("optimizer_step"));
  // Gradients have 0.5, 1 and 1 MiB.
  CHECK(mebibytes(before) > 2.5);
  CHECK(mebibytes(graph::plan_memory(graph).lower_bound) < 1.2);
  const std::string text = graph.str();
  graph::update_early(graph);
  CHECK(graph.str() == text);

  std::vector<Tensor> start, expected;
  for (const Tensor& parameter : net->parameters()) start.push_back(parameter.detach().clone());
  step();
  for (const Tensor& parameter : net->parameters()) expected.push_back(parameter.detach().clone());
  // Repeats the training from the same parameters with a new optimizer.
  const auto repeat = [&](bool recorded) {
    const NoGradGuard no_grad;
    for (size_t i = 0; i < start.size(); ++i) net->parameters()[i].copy_(start[i]);
    optim::AdamW other(net->parameters(), optim::AdamWOptions(0.01));
    const auto other_step = [&] {
      const AutoGradMode grad(true);
      other.zero_grad();
      (net->forward(x) - y).square().mean().backward();
      other.step();
    };
    other_step();
    if (recorded) {
      graph::Graph again = graph_of(other_step);
      other.zero_grad();
      graph::run_passes(again);
      graph::Executor(std::move(again)).run();
    } else {
      other_step();
    }
    std::vector<Tensor> results;
    for (const Tensor& parameter : net->parameters()) results.push_back(parameter.detach().clone());
    return results;
  };
  const std::vector<Tensor> eager = repeat(false), recorded = repeat(true);
  for (size_t i = 0; i < eager.size(); ++i) CHECK(recorded[i].equal(eager[i]));
}

TEST_CASE("a call whose kernel needs much memory is delayed until other memory is released", "[graph_passes]") {
  const Tensor x = rand({1 << 18}), y = rand({64}), sum = zeros({}), doubled = zeros({64});
  graph::Graph graph = graph_of([&] {
    const Tensor large = x + 1;  // 1 MiB
    doubled.copy_(y * 2);
    sum.copy_(large.sum());
  });
  const auto doubles = [](const auto& call) { return call->operands[0].layout.shape == Shape{64}; };
  const auto kernel = std::find_if(graph.calls().begin(), graph.calls().end(), doubles);
  REQUIRE(kernel != graph.calls().end());
  (*kernel)->scratch_bytes = 4 << 20;
  CHECK(mebibytes(graph::peak_of(graph).bytes) > 5);
  CHECK(graph::peak_of(graph).call == kernel - graph.calls().begin());
  graph::order_for_memory(graph);
  CHECK(mebibytes(graph::peak_of(graph).bytes) < 4.1);
  graph::Executor(std::move(graph)).run();
  CHECK(doubled.equal(y * 2));
  CHECK(sum.equal((x + 1).sum()));
}

TEST_CASE("gradients that are read before the update are kept", "[graph_passes]") {
  nn::Sequential net(nn::Linear(512, 512), nn::Linear(512, 512));
  const std::vector<Tensor> parameters = net->parameters();
  optim::SGD optimizer(parameters, optim::SGDOptions(0.1));
  const Tensor x = randn({4, 512}), norm = zeros({});
  const auto step = [&] {
    optimizer.zero_grad();
    net->forward(x).square().mean().backward();
    const NoGradGuard no_grad;
    Tensor sum = zeros({});
    for (const Tensor& parameter : parameters) sum = sum + parameter.grad().square().sum();
    norm.copy_(sum);
    for (const Tensor& parameter : parameters) parameter.grad().mul_(1 / (sum + 1));
    optimizer.step();
  };
  std::vector<Tensor> results[2];
  const std::vector<Tensor> start = {parameters[0].detach().clone(), parameters[2].detach().clone()};
  for (const bool recorded : {false, true}) {
    const auto reset = [&] {
      const NoGradGuard no_grad;
      for (size_t i = 0; i < 2; ++i) parameters[2 * i].copy_(start[i]);
      for (size_t i = 0; i < 2; ++i) parameters[2 * i + 1].zero_();
    };
    reset();
    if (!recorded) step();
    else {
      graph::Graph graph = graph_of(step);
      optimizer.zero_grad();
      graph::run_passes(graph);
      CHECK(calls_named(graph, "optimizer_step") == 3);
      graph::Executor(std::move(graph)).run();
    }
    for (const Tensor& parameter : parameters) results[recorded].push_back(parameter.detach().clone());
    results[recorded].push_back(norm.clone());
  }
  for (size_t i = 0; i < results[0].size(); ++i) CHECK(results[1][i].equal(results[0][i]));
}

TEST_CASE("convolutions and normalisations are fused with the ReLU after them on request", "[graph_passes]") {
  for (const char* backend : {"openmp", "naive"}) {
    INFO(backend);
    const BackendGuard guard(backend);
    const auto train = [&](bool recorded, int64_t (*count)(const graph::Graph&)) {
      manual_seed(6);
      nn::Sequential net(nn::Conv2d(3, 8, 3), nn::ReLU(), nn::Conv2d(8, 6, 3), nn::BatchNorm2d(6),
                         nn::ReLU(nn::ReLUOptions(true)), nn::Conv2d(6, 4, 3), nn::ReLU(), nn::Flatten(),
                         nn::Linear(4 * 4, 10));
      optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
      training::StaticStep step(
          kCPU, {&optimizer},
          [&](const TensorList& batch) -> TensorList {
            optimizer.zero_grad();
            const Tensor loss = cross_entropy(net->forward(batch[0]), batch[1]);
            loss.backward();
            optimizer.step();
            return {loss};
          },
          training::StaticStepOptions().enabled(recorded).fuse_relu(true));
      TensorList results;
      for (int i = 0; i < 4; ++i) results.push_back(step({randn({5, 3, 8, 8}), randint(0, 10, {5}, kLong)})[0].clone());
      for (const Tensor& parameter : net->parameters()) results.push_back(parameter.detach().clone());
      for (const Tensor& buffer : net->buffers()) results.push_back(buffer.clone());
      if (recorded) CHECK(count(step.executor()->graph()) == 0);
      return results;
    };
    const auto relus = [](const graph::Graph& graph) {
      return calls_named(graph, "unary") + calls_named(graph, "unary_backward");
    };
    const TensorList eager = train(false, relus), fused = train(true, relus);
    for (size_t i = 0; i < eager.size(); ++i) CHECK(fused[i].to(kDouble).allclose(eager[i].to(kDouble), 1e-4, 1e-5));
  }
  // Memory with other readers is kept: y is a result, and y * 2 reads z before the ReLU.
  const Tensor x = randn({1, 2, 4, 4}), w = randn({2, 2, 3, 3});
  Tensor y, z;
  graph::Graph graph = graph_of([&] {
    y = conv2d(x, w);
    z = conv2d(y, w.slice(2, 0, 2).slice(3, 0, 2)) * 1;
    z = (y.relu() + (y * 2).sum() + z.sum()).sum();
  });
  graph.set_result(y.array());
  const size_t calls = graph.calls().size();
  graph::fuse_relu(graph);
  CHECK(graph.calls().size() == calls);
}

TEST_CASE("recorded steps of large nets need less memory than eager ones", "[graph_passes]") {
  for (const benchmarks::Workload& workload : benchmarks::workloads()) {
    const int64_t batch = 32;
    if (workload.name != "stl10_net" && workload.name != "resnet18") continue;
    INFO(workload.name);
    const nn::AnyModule net = workload.make();
    optim::SGD optimizer(net.ptr()->parameters(), optim::SGDOptions(0.1));
    const auto step = [&](int64_t images) {
      const Tensor x = zeros(workload.input(images));
      optimizer.zero_grad();
      cross_entropy(net.forward(x), zeros({images}, kLong)).backward();
      optimizer.step();
    };
    step(1);
    optimizer.zero_grad();
    graph::Graph graph = graph_of([&] { step(batch); });
    optimizer.zero_grad();
    graph::run_passes(graph);
    const graph::MemoryPlan plan = graph::plan_memory(graph);
    CHECK(static_cast<double>(plan.bytes) <= 1.02 * static_cast<double>(plan.lower_bound));
    // No gradients existed before the recording, so eager_peak() is all memory of the eager step.
    CHECK(static_cast<double>(plan.bytes) <= 0.9 * static_cast<double>(graph.eager_peak()));
  }
}

TEST_CASE("gradients of large weights are computed after the activations are freed", "[graph_passes]") {
  manual_seed(2);
  nn::Sequential net = benchmarks::stl10_net();
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  const Tensor x = randn({8, 3, 96, 96}), target = randint(0, 10, {8}, kLong);
  const auto step = [&] {
    optimizer.zero_grad();
    cross_entropy(net->forward(x), target).backward();
    optimizer.step();
  };
  step();
  graph::Recorder recorder;
  step();
  graph::Graph graph = recorder.finish();
  optimizer.zero_grad();
  const graph::MemoryPlan as_recorded = graph::plan_memory(graph);
  graph::order_for_memory(graph);
  // The gradient of the first linear layer has 38 MB, the activations have 26 MB.
  CHECK(static_cast<double>(graph::plan_memory(graph).lower_bound) <
        0.7 * static_cast<double>(as_recorded.lower_bound));
  const std::string text = graph.str();
  graph::order_for_memory(graph);
  CHECK(graph.str() == text);  // a second pass changes nothing
}
