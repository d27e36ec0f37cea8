// When passes move calls and let results overwrite operands, on steps of single calls of the backend.
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/platform/process.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/tests/graph/support.h>

using namespace gradus;
using test::calls_named;
using test::contains;
using test::graph_of;

namespace {

Backend& step_kernels() { return current_backend(DeviceType::cpu); }
void exp_into(const Tensor& x, const Tensor& y) { step_kernels().unary(UnaryOp::exp, x.array(), y.array(), {}); }
void copy_into(const Tensor& x, const Tensor& y) { step_kernels().copy(x.array(), y.array()); }

/// The bytes of the arena after work_in_place(), which keeps the results of the step.
size_t bytes_in_place(const std::function<void()>& step, const TensorList& results) {
  size_t bytes = 0;
  const auto pass = [&](graph::Graph& graph) {
    graph::work_in_place(graph);
    bytes = graph::plan_memory(graph).bytes;
  };
  test::text_after(pass, step, results);
  return bytes;
}

}  // namespace

TEST_CASE("calls are reordered if that saves a twentieth of the memory", "[graph_passes]") {
  const auto is_reordered = [](int64_t large, int64_t small) {
    const Tensor x = randn({large}), y = randn({small}), sums[] = {zeros({1}), zeros({1})};
    graph::Graph graph = graph_of([&] {
      const Tensor a = empty({large}), b = empty({small});
      exp_into(x, a), exp_into(y, b);
      step_kernels().reduce(ReduceOp::sum, a.array(), 1, sums[0].array());
      step_kernels().reduce(ReduceOp::sum, b.array(), 1, sums[1].array());
    });
    const size_t before = graph::plan_memory(graph).bytes;
    const std::string text = graph.str();
    graph::order_for_memory(graph);
    const bool is_changed = graph.str() != text;
    CHECK(is_changed == (graph::plan_memory(graph).bytes != before));
    graph::Executor(std::move(graph)).run();
    CHECK(sums[0].allclose(x.exp().sum()));
    CHECK(sums[1].allclose(y.exp().sum()));
    return is_changed;
  };
  constexpr int64_t kLine = 16;  // elements of 64 bytes
  CHECK(is_reordered(90 * kLine, 10 * kLine));
  CHECK(is_reordered(95 * kLine, 5 * kLine));
  CHECK_FALSE(is_reordered(96 * kLine, 4 * kLine));
}

TEST_CASE("a call with a large workspace or result waits until others have released their memory", "[graph_passes]") {
  constexpr int64_t kMiB = 1 << 18;  // elements
  const Tensor x = randn({kMiB}), y = randn({64}), z = randn({4 * kMiB}), sum = zeros({1}), doubled = zeros({64});
  const auto peak_after = [&](bool keeps_first) {
    Tensor kept;
    const auto keep = [&] {
      kept = empty({4 * kMiB});
      exp_into(z, kept);  // a result of 4 MiB
    };
    graph::Graph graph = graph_of([&] {
      if (keeps_first) keep();
      const Tensor a = empty({kMiB}), b = empty({2 * kMiB}), c = empty({64});
      exp_into(x, a);
      exp_into(y, c), copy_into(c, doubled);  // with a workspace of 3.5 MiB
      copy_into(a.expand({2, kMiB}), b.view({2, kMiB}));
      step_kernels().reduce(ReduceOp::sum, b.array(), 1, sum.array());
      if (!keeps_first) keep();
    });
    for (const auto& call : graph.calls())
      if (call->operands[0].layout.shape == Shape{64} && call->name == std::string_view("unary"))
        call->scratch_bytes = 7 << 19;
    graph.set_result(kept.array());
    kept = Tensor();
    const size_t before = graph::plan_memory(graph).bytes;
    graph::order_for_memory(graph);
    const size_t after = graph::plan_memory(graph).bytes;
    graph::Executor(std::move(graph)).run();
    CHECK(doubled.allclose(y.exp()));
    CHECK(sum.allclose(2 * x.exp().sum()));
    return std::pair(static_cast<double>(before) / (1 << 20), static_cast<double>(after) / (1 << 20));
  };
  for (const bool keeps_first : {false, true}) {
    const auto [before, after] = peak_after(keeps_first);
    CHECK(before > (keeps_first ? 8.4 : 4.4));
    CHECK(after < 4.1);
  }
}

TEST_CASE("a call with a large workspace waits until memory is released that a call before it must grow",
          "[graph_passes]") {
  constexpr int64_t kMiB = 1 << 18;  // elements
  const Tensor x = randn({kMiB}), sum = zeros({1}), result = zeros({64});
  const auto pass = [&](graph::Graph& graph) {
    graph.calls()[2]->scratch_bytes = 7 << 19;  // 3.5 MiB
    CHECK(static_cast<double>(graph::plan_memory(graph).bytes) > 4.4 * (1 << 20));
    graph::order_for_memory(graph);
    CHECK(static_cast<double>(graph::plan_memory(graph).bytes) < 3.6 * (1 << 20));
  };
  const auto step = [&] {
    const Tensor a = empty({kMiB}), part = empty({64}), b = empty({2 * kMiB});
    exp_into(x, a), copy_into(a.slice(0, 0, 64), part), exp_into(part, result);
    copy_into(a.expand({2, kMiB}), b.view({2, kMiB}));  // releases a, but b has twice its size
    step_kernels().reduce(ReduceOp::sum, b.array(), 1, sum.array());
  };
  test::text_after(pass, step, {sum, result});
}

TEST_CASE("a call with two results waits if there is no memory for both of them", "[graph_passes]") {
  constexpr int64_t kMiB = 1 << 18, kPart = 7 << 15;  // elements; kPart float64 or int64 elements have 1.75 MiB
  const Tensor x = randn({kMiB}), y = randn({kPart}, kDouble), sum = zeros({1});
  const Tensor greatest = zeros({1}, kDouble), place = zeros({1}, kLong);
  const auto pass = [&](graph::Graph& graph) {
    CHECK(static_cast<double>(graph::plan_memory(graph).bytes) > 4.4 * (1 << 20));
    graph::order_for_memory(graph);
    CHECK(static_cast<double>(graph::plan_memory(graph).bytes) < 4.1 * (1 << 20));
  };
  const auto step = [&] {
    const Tensor a = empty({kMiB}), b = empty({3 * kMiB});
    const Tensor values = empty({kPart}, kDouble), places = empty({kPart}, kLong);
    exp_into(x, a);
    step_kernels().sort(y.array(), 0, true, values.array(), places.array());
    copy_into(values.slice(0, 0, 1), greatest), copy_into(places.slice(0, 0, 1), place);
    copy_into(a.expand({3, kMiB}), b.view({3, kMiB}));
    step_kernels().reduce(ReduceOp::sum, b.array(), 1, sum.array());
  };
  test::text_after(pass, step, {sum, greatest, place});
}

TEST_CASE("calls that read a result stay after the call that writes it, also if that needs a large workspace",
          "[graph_passes]") {
  constexpr int64_t kMiB = 1 << 18;  // elements
  const Tensor x = randn({kMiB}), y = randn({64}), sums = zeros({2}), results = zeros({3, 64});
  const auto sum_into = [&](const Tensor& from, int64_t to) {
    step_kernels().reduce(ReduceOp::sum, from.array(), 1, sums.slice(0, to, to + 1).array());
  };
  for (const int heavy : {0, 2, 5}) {  // the number of the call that needs the workspace
    INFO(heavy);
    const auto pass = [&](graph::Graph& graph) {
      graph.calls()[static_cast<size_t>(heavy)]->scratch_bytes = 1 << 19;
      const size_t before = graph::plan_memory(graph).bytes;
      graph::order_for_memory(graph);
      CHECK(graph::plan_memory(graph).bytes < before);
    };
    const auto step = [&] {
      const Tensor first = empty({64}), second = empty({64}), third = empty({64}), a = empty({kMiB}), b = empty({kMiB});
      exp_into(y, first), copy_into(first, results[0]);
      exp_into(y, second), copy_into(second, results[1]);
      exp_into(x, a), exp_into(y, third), copy_into(third, results[2]);
      exp_into(x, b), sum_into(a, 0), sum_into(b, 1);  // the pass moves the first sum, so that b overwrites a
    };
    test::text_after(pass, step, {results, sums});
  }
}

TEST_CASE("an element-wise result overwrites an operand only at the same place of equal memory", "[graph_passes]") {
  const Tensor x = randn({64}), y = empty({64}), z = empty({64});
  CHECK(bytes_in_place(
            [&] {
              const Tensor a = empty({64}), b = empty({64});
              copy_into(x, a), exp_into(a, b), copy_into(b, y);
            },
            {y}) == 256);
  CHECK(bytes_in_place(
            [&] {  // the second halves of both
              const Tensor a = empty({64}), b = empty({64});
              copy_into(x, a), exp_into(a.slice(0, 32), b.slice(0, 32)), copy_into(b.slice(0, 32), y.slice(0, 32));
            },
            {y}) == 256);
  CHECK(bytes_in_place(
            [&] {  // places that overlap
              const Tensor a = empty({64}), b = empty({64});
              copy_into(x, a), exp_into(a.slice(0, 1, 33), b.slice(0, 0, 32)),
                  copy_into(b.slice(0, 0, 32), y.slice(0, 32));
            },
            {y}) == 512);
  CHECK(bytes_in_place(
            [&] {  // the rest of the result's memory is written before
              const Tensor a = empty({64}), b = empty({64});
              copy_into(x, a), copy_into(x, b), exp_into(a.slice(0, 0, 32), b.slice(0, 0, 32)), copy_into(b, y);
            },
            {y}) == 512);
  CHECK(bytes_in_place(
            [&] {  // the result is the first part of more memory
              const Tensor a = empty({32}), b = empty({64});
              copy_into(x.slice(0, 32), a), exp_into(a, b.slice(0, 0, 32)), copy_into(x.slice(0, 32), b.slice(0, 32));
              copy_into(b, y);
            },
            {y}) == 128 + 256);
  CHECK(bytes_in_place(
            [&] {  // memory from before the step
              const Tensor b = empty({64});
              exp_into(x, b), copy_into(b, y);
            },
            {y}) == 256);
  CHECK(bytes_in_place(
            [&] {  // the operand is read later
              const Tensor a = empty({64}), b = empty({64});
              copy_into(x, a), exp_into(a, b), copy_into(a, z), copy_into(b, y);
            },
            {y, z}) == 512);
  CHECK(bytes_in_place(
            [&] {  // a chain of calls, of which the last result is read with the first
              const Tensor a = empty({64}), b = empty({64}), c = empty({64});
              copy_into(x, a), exp_into(a, b), exp_into(b, c), copy_into(c, y), copy_into(a, z);
            },
            {y, z}) == 512);
  Tensor sum;
  graph::Graph only_inner = graph_of([&] {  // no memory from before the step
    sum = zeros({64});
    Tensor next = ones({64});
    for (int i = 0; i < 6; ++i) {
      const Tensor now = next;
      next = empty({64});
      exp_into(now, next), next.mul_(-1), step_kernels().binary(BinaryOp::add, sum.array(), next.array(), sum.array());
    }
  });
  only_inner.set_result(sum.array());
  graph::work_in_place(only_inner);
  CHECK(graph::plan_memory(only_inner).bytes == 512);
  graph::Executor executor(std::move(only_inner));
  executor.run();
  Tensor expected = zeros({64}), next = ones({64});
  for (int i = 0; i < 6; ++i) {
    next = -next.exp();
    expected = expected + next;
  }
  CHECK(Tensor(executor.result(sum.array())).allclose(expected));

  const Tensor none = empty({0});
  CHECK(bytes_in_place([&] { y.copy_(x), (none + 1).mul_(2); }, {y}) == 0);
}

TEST_CASE("an update is split only for large gradients of the step", "[graph_passes]") {
  const auto updates = [](int64_t outputs, int64_t batch, bool keeps_gradients) {
    Tensor w = randn({512, outputs}).requires_grad_(), scale = ones({outputs}).requires_grad_();
    optim::SGD optimizer({w, scale}, optim::SGDOptions(0.1));
    const Tensor x = empty({batch, 512});
    const auto loss_of = [&](const Tensor& input) { return (input.matmul(w) * scale).square().mean(); };
    const auto step = [&] {
      optimizer.zero_grad(!keeps_gradients);
      loss_of(x).backward();
      optimizer.step();
    };
    loss_of(randn({1, 512})).backward();
    optimizer.step();  // makes the optimizer's state
    optimizer.zero_grad(!keeps_gradients);
    graph::Graph graph = graph_of(step);
    graph::update_early(graph);
    return calls_named(graph, "optimizer_step");
  };
  CHECK(updates(256, 4, false) == 2);  // a matrix of 512 KiB, and the scale
  CHECK(updates(255, 4, false) == 1);
  CHECK(updates(256, 4, true) == 1);         // gradients from before the step need no other memory
  CHECK(updates(256, 1 << 15, false) == 1);  // the activations have 32 MiB
}

TEST_CASE("an update is split if the gradients at the peak are a twentieth of it", "[graph_passes]") {
  const auto updates = [](int64_t more) {
    constexpr int64_t kElements = 1 << 17;  // a gradient has 512 KiB
    const Tensor block = zeros({5}, kDouble), sum = zeros({1});
    TensorList parameters;
    for (int i = 0; i < 5; ++i) parameters.push_back(zeros({kElements}));
    graph::Graph graph = graph_of([&] {
      const Tensor activations = empty({19 * kElements + more});
      TensorList gradients;
      ParameterViews views[5];
      for (size_t i = 0; i < 5; ++i) {
        gradients.push_back(empty({kElements}));
        views[i].parameter = parameters[i].array(), views[i].gradient = gradients[i].array();
      }
      step_kernels().fill(activations.array(), 1);
      step_kernels().fill(gradients[0].array(), 1);  // the only one that exists at the same time as the activations
      step_kernels().reduce(ReduceOp::sum, activations.array(), 1, sum.array());
      for (size_t i = 1; i < 5; ++i) step_kernels().fill(gradients[i].array(), 1);
      step_kernels().optimizer_step(views, block.array(), {rules::Sgd()});
    });
    graph::update_early(graph);
    return calls_named(graph, "optimizer_step");
  };
  CHECK(updates(0) == 2);
  CHECK(updates(16) == 1);  // one line of 64 bytes more
}

TEST_CASE("an update is split for a gradient that is the first buffer of its graph", "[graph_passes]") {
  constexpr int64_t kElements = 1 << 18;
  constexpr size_t kBytes = 4 * kElements;
  // Parameters from before the step. New arrays of the step get lower addresses, at the latest after some attempts.
  const std::shared_ptr<char> memory(platform::map_memory(2 * kBytes),
                                     [](char* data) { platform::unmap_memory(data, 2 * kBytes); });
  const Tensor large = from_blob(memory.get(), {kElements}), small = from_blob(memory.get() + kBytes, {8});
  const void* first = nullptr;
  graph::Graph graph = graph_of([&] {
    const Tensor block = zeros({5}, kDouble), of_small = ones({8});
    const void* const lowest = std::min({large.data_ptr(), block.data_ptr(), of_small.data_ptr()});
    TensorList attempts;
    do attempts.push_back(empty({kElements}));
    while (attempts.back().data_ptr() > lowest && attempts.size() < 1000);
    const Tensor of_large = attempts.back();
    first = of_large.data_ptr();
    step_kernels().fill(of_large.array(), 1);
    ParameterViews views[2];
    views[0].parameter = large.array(), views[0].gradient = of_large.array();
    views[1].parameter = small.array(), views[1].gradient = of_small.array();
    step_kernels().optimizer_step(views, block.array(), {rules::Sgd()});
  });
  REQUIRE(graph.buffers().front().data == first);
  graph::update_early(graph);
  CHECK(calls_named(graph, "optimizer_step") == 2);
}
