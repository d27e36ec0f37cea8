// Passes over random steps: identical results, and memory that is not more than measured before.
#include <gradus/graph/passes/passes.h>
#include <gradus/tests/graph/support.h>

using namespace gradus;

namespace {

size_t random_below(size_t bound) { return test::engine()() % bound; }

/// A step of sums and products of 16 elements of arrays of different sizes. Calls also write into arrays that have been
/// read and written before.
struct RandomStep {
  explicit RandomStep(size_t arrays) {
    for (size_t i = 0; i < arrays; ++i) sizes.push_back(static_cast<int64_t>(16 << random_below(4)));
    for (size_t i = 0; i < arrays; ++i) {
      const auto recent = [&] { return i - std::min(i, 1 + random_below(6)); };
      calls.push_back({recent(), recent(), i, random_below(2) == 0});
      if (i > 4 && random_below(4) == 0) calls.push_back({recent(), recent(), recent(), true});
    }
  }
  void run() const {
    Backend& kernels = current_backend(DeviceType::cpu);
    TensorList made;
    const auto part = [&](size_t i) { return (i < made.size() ? made[i] : x).slice(0, 0, 16).array(); };
    for (const Operation& call : calls) {
      const Array a = part(call.a), b = part(call.b);
      if (call.to == made.size()) made.push_back(empty({sizes[call.to]}));
      kernels.binary(call.adds ? BinaryOp::add : BinaryOp::mul, a, b, part(call.to));
    }
    for (size_t i = 0; i < 4; ++i) kernels.copy(part(made.size() - 1 - 2 * i), results[i].array());
  }

  struct Operation {
    size_t a, b, to;  // numbers of arrays
    bool adds;
  };
  std::vector<Operation> calls;
  std::vector<int64_t> sizes;
  Tensor x = rand({16});
  TensorList results = {empty({16}), empty({16}), empty({16}), empty({16})};
};

}  // namespace

TEST_CASE("passes keep the results of random steps", "[graph_passes]") {
  for (int i = 0; i < 60; ++i) {
    const RandomStep step(20);
    const auto run = [&] { step.run(); };
    for (const auto pass : {graph::remove_dead_code, graph::order_for_memory, graph::work_in_place})
      test::text_after(pass, run, step.results);
    test::text_after([](graph::Graph& graph) { graph::run_passes(graph); }, run, step.results);
  }
}

TEST_CASE("orders of random steps need little memory", "[graph_passes]") {
  size_t recorded = 0, ordered = 0, with_workspace = 0, in_place = 0;
  for (int i = 0; i < 60; ++i) {
    const RandomStep step(20);
    graph::Graph graph = test::graph_of([&] { step.run(); });
    recorded += graph::plan_memory(graph).bytes;
    graph::order_for_memory(graph);
    ordered += graph::plan_memory(graph).bytes;
    graph::work_in_place(graph);
    in_place += graph::plan_memory(graph).bytes;
    for (const auto& call : graph.calls()) call->scratch_bytes = random_below(3) == 0 ? 64 << random_below(4) : 0;
    graph::order_for_memory(graph);
    with_workspace += graph::plan_memory(graph).bytes;
  }
  CHECK(recorded == 112000);
  CHECK(ordered <= 97088);  // these three as measured; a better pass lowers them
  CHECK(in_place <= 94656);
  CHECK(with_workspace <= 103808);
}
