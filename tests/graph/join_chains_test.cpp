// Which element-wise calls join_chains() merges, and what memory a chain uses.
#include <gradus/graph/passes/passes.h>
#include <gradus/tests/graph/support.h>

using namespace gradus;
using test::contains;
using test::count_in;

namespace {

constexpr int64_t kLarge = 65536;  // elements from which on a chain is worthwhile

/// The number of chains of a step, whose result it checks.
int chains_of(const std::function<void()>& step, const TensorList& results) {
  return count_in(test::text_after(graph::join_chains, step, results), " chain ");
}

}  // namespace

TEST_CASE("a chain consists of two or more calls with large operands", "[graph_passes]") {
  const Tensor x = randn({kLarge}), y = empty({kLarge});
  const std::string text = test::text_after(graph::join_chains, [&] { y.copy_((x + 1) * 2); }, {y});
  CHECK_THAT(text, contains(" = chain ") && contains("# add, join_chains_test.cpp:") && !contains("binary"));
  CHECK(chains_of([&] { y.copy_(x + 1); }, {y}) == 0);
  CHECK(chains_of([&] { y.slice(0, 1).copy_((x.slice(0, 1) + 1) * 2); }, {y}) == 0);
  CHECK(chains_of([&] { y.copy_((x + 1).cumsum(0) * 2); }, {y}) == 0);  // another call is between them
  const Tensor z = empty({kLarge});
  CHECK(chains_of([&] { y.copy_(x + 1), z.copy_(x * 2); }, {y, z}) == 0);  // a copy is between them
  const Tensor other = randn({kLarge});
  CHECK(chains_of(
            [&] {
              const Tensor a = x + 1, b = other * 2;  // have no memory in common
              y.copy_(a), z.copy_(b);
            },
            {y, z}) == 0);
}

TEST_CASE("the operands of a chain are dense arrays or single elements that are repeated", "[graph_passes]") {
  const Tensor x = randn({1, kLarge}), y = empty({1, kLarge}), one = randn({1, 1});
  CHECK(chains_of([&] { y.copy_((x + one) * one.expand({1, kLarge})); }, {y}) == 1);
  const Tensor column = randn({kLarge / 4, 1}), rows = randn({kLarge / 4, 4}), z = empty({kLarge / 4, 4});
  CHECK(chains_of([&] { z.copy_((rows + column) * 2); }, {z}) == 0);
  CHECK(chains_of([&] { z.copy_((rows + 1) * 2); }, {z}) == 1);
  const Tensor pair = randn({2, 1}), wide = randn({2, kLarge / 2}), wide_result = empty({2, kLarge / 2});
  CHECK(chains_of([&] { wide_result.copy_((wide + pair) * 2); }, {wide_result}) == 0);
  CHECK(chains_of([&] { wide_result.copy_((wide + wide[0]) * 2); }, {wide_result}) == 0);
  Tensor gaps = randn({kLarge, 2});
  const Tensor before = gaps.clone();
  const auto change = [&] { gaps.copy_(before), gaps.select(1, 0).mul_(2).add_(1); };
  CHECK(chains_of(change, {gaps}) == 0);
}

TEST_CASE("a call that reads a chain's result at another place is not in the chain", "[graph_passes]") {
  const Tensor x = randn({kLarge}), y = empty({kLarge}), other = randn({kLarge});
  for (const int64_t offset : {0, 1})
    CHECK(chains_of(
              [&] {
                const Tensor a = zeros({kLarge + 1});
                Backend& kernels = current_backend(DeviceType::cpu);
                kernels.unary(UnaryOp::exp, x.array(), a.slice(0, 0, kLarge).array(), {});
                kernels.binary(BinaryOp::add, other.array(), a.slice(0, offset, kLarge + offset).array(), y.array());
              },
              {y}) == (offset == 0));
}

TEST_CASE("a call that writes at another place than a chain reads is not in the chain", "[graph_passes]") {
  const Tensor x = randn({kLarge}), y = empty({kLarge}), z = empty({kLarge + 1});
  for (const int64_t offset : {0, 1})
    CHECK(chains_of(
              [&] {
                const Tensor a = zeros({kLarge + 1});
                Backend& kernels = current_backend(DeviceType::cpu);
                kernels.unary(UnaryOp::exp, a.slice(0, 0, kLarge).array(), y.array(), {});
                kernels.unary(UnaryOp::neg, x.array(), a.slice(0, offset, kLarge + offset).array(), {});
                z.copy_(a);
              },
              {y, z}) == (offset == 0));
}

TEST_CASE("a chain has as many elements as each of its calls", "[graph_passes]") {
  const Tensor x = randn({2, kLarge}), y = empty({kLarge}), z = empty({2, kLarge});
  for (const bool small_first : {false, true})
    CHECK(chains_of(
              [&] {
                Tensor a, b;
                if (small_first) a = x[0] * 2;
                b = x + 1;
                if (!small_first) a = x[0] * 2;
                y.copy_(a), z.copy_(b);
              },
              {y, z}) == 0);
}

TEST_CASE("intermediate results need memory only if they are read outside of their chain", "[graph_passes]") {
  const Tensor x = randn({kLarge}), y = empty({kLarge}), sum = empty({});
  const auto bytes_of = [](const std::function<void()>& step) {
    graph::Graph graph = test::graph_of(step);
    graph::join_chains(graph);
    return graph::plan_memory(graph).bytes;
  };
  const auto unread = [&] { y.copy_(((x + 1) * 2).exp()); };
  CHECK(chains_of(unread, {y}) == 1);
  CHECK(bytes_of(unread) == 4 * kLarge);
  const auto read = [&] {
    const Tensor a = x + 1;
    y.copy_((a * 2).exp()), sum.copy_(a.sum());
  };
  CHECK(chains_of(read, {y, sum}) == 1);
  CHECK(bytes_of(read) >= 8 * kLarge);

  Tensor kept;
  graph::Graph graph = test::graph_of([&] {
    kept = x + 1;
    y.copy_(kept * 2);
  });
  graph.set_result(kept.array());
  graph::join_chains(graph);
  CHECK(test::calls_named(graph, "chain") == 1);
  graph::Executor executor(std::move(graph));
  executor.run();
  CHECK(Tensor(executor.result(kept.array())).equal(x + 1));
}
