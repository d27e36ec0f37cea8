// Places of intervals in a block of memory, and plans of the arenas of recorded steps.
#include <gradus/graph/memory_plan.h>
#include <gradus/tests/graph/support.h>

using namespace gradus;
using graph::Interval;

namespace {

/// Places the intervals and returns the bytes that they need. Checks that intervals that are in use at the same time do
/// not overlap.
size_t checked_place(std::vector<Interval>& intervals) {
  const size_t bytes = graph::place(intervals);
  size_t end = 0, overlaps = 0;
  for (const Interval& a : intervals) {
    end = std::max(end, a.offset + a.bytes);
    for (const Interval& b : intervals)
      overlaps += &a != &b && a.first <= b.last && b.first <= a.last && a.offset < b.offset + b.bytes &&
                  b.offset < a.offset + a.bytes;
  }
  CHECK(overlaps == 0);
  CHECK(end == bytes);
  return bytes;
}

size_t below(size_t bound) { return test::engine()() % bound; }

/// Cuts a rectangle of times and bytes into at most 2^depth rectangles. As intervals they need no more bytes than the
/// whole.
void cut(const Interval& whole, int depth, std::vector<Interval>& pieces) {
  const auto times = static_cast<size_t>(whole.last - whole.first);
  Interval left = whole, right = whole;
  if (depth == 0 || (times == 0 && whole.bytes == 1)) {
    pieces.push_back(whole);
    return;
  }
  if (times > 0 && (below(2) == 0 || whole.bytes == 1)) {
    left.last = whole.first + static_cast<int64_t>(below(times));
    right.first = left.last + 1;
  } else {
    left.bytes = 1 + below(whole.bytes - 1);
    right.bytes -= left.bytes;
  }
  cut(left, depth - 1, pieces);
  cut(right, depth - 1, pieces);
}

}  // namespace

TEST_CASE("the peak of intervals is the most bytes in use at a time, and the first such time", "[memory_plan]") {
  const auto peak_is = [](const std::vector<Interval>& intervals, size_t bytes, int64_t time) {
    const graph::Peak peak = graph::peak_of(intervals);
    return peak.bytes == bytes && peak.call == time;
  };
  CHECK(peak_is({}, 0, 0));
  CHECK(peak_is({{10, 3, 4}}, 10, 3));
  CHECK(peak_is({{10, 0, 2}, {20, 2, 5}, {15, 4, 4}}, 35, 4));
  CHECK(peak_is({{10, 0, 2}, {20, 2, 5}, {5, 3, 4}}, 30, 2));   // the last time is included
  CHECK(peak_is({{10, 1, 1}, {10, 3, 3}}, 10, 1));              // reached twice
  CHECK(peak_is({{10, 1, 2}, {10, 1, 2}, {25, 3, 3}}, 25, 3));  // end together
}

TEST_CASE("intervals use memory again that earlier ones have left", "[memory_plan]") {
  std::vector<Interval> none, after = {{100, 0, 1}, {100, 2, 3}}, together = {{100, 0, 2}, {100, 2, 3}};
  CHECK(checked_place(none) == 0);
  CHECK(checked_place(after) == 100);
  CHECK(checked_place(together) == 200);
  std::vector<Interval> same(5, {10, 0, 0});
  CHECK(checked_place(same) == 50);
}

TEST_CASE("placements need little more memory than the peak", "[memory_plan]") {
  constexpr int kCases = 300;
  int perfect = 0;
  double bytes = 0;
  for (int i = 0; i < kCases; ++i) {
    std::vector<Interval> pieces;
    cut({1000, 0, 31}, 5, pieces);
    for (size_t at = 1; at < pieces.size(); ++at) std::swap(pieces[at], pieces[below(at + 1)]);
    const size_t found = checked_place(pieces);
    CHECK(found >= 1000);
    perfect += found == 1000;
    bytes += static_cast<double>(found);
  }
  CHECK(perfect >= 262);  // as measured; a better placement raises the one and lowers the other
  CHECK(bytes <= 301042);
}

TEST_CASE("an arena holds the buffers of a step and the workspace of its calls, aligned to 64 bytes", "[memory_plan]") {
  const Tensor x = randn({100}), y = empty({100});
  graph::Graph graph = test::graph_of([&] { y.copy_(((x + 1) * 2).exp()); });
  graph.calls()[0]->scratch_bytes = 1;
  const graph::MemoryPlan plan = graph::plan_memory(graph);
  CHECK(plan.bytes == 2 * 448);  // two results of 400 bytes at a time
  CHECK(plan.lower_bound == plan.bytes);
  CHECK(plan.scratch.size() == graph.calls().size());
  const auto of_result = [&](size_t call) {
    return plan.offsets[static_cast<size_t>(graph.calls()[call]->operands.back().buffer)];
  };
  CHECK(plan.scratch[0] == 448 - of_result(0));  // in the memory of the second result
  CHECK(of_result(1) == 448 - of_result(0));
  CHECK(of_result(2) == of_result(0));
  for (size_t i = 0; i < plan.offsets.size(); ++i)
    if (graph.buffers()[i].external) CHECK(plan.offsets[i] == 0);
  CHECK(graph::peak_of(graph).call == 1);
  graph.calls()[0]->scratch_bytes = 449;
  CHECK(graph::plan_memory(graph).bytes == 448 + 512);
  CHECK(graph::peak_of(graph).call == 0);
}

TEST_CASE("if one of the orders reaches the lower bound, the placement does, too", "[memory_plan]") {
  const std::vector<std::pair<const char*, std::vector<Interval>>> cases = {
      {"by bytes", {{30, 2, 3}, {30, 2, 4}, {50, 4, 5}, {50, 1, 4}, {30, 1, 3}}},
      {"by bytes and duration", {{40, 3, 5}, {30, 1, 3}, {60, 4, 5}, {40, 2, 3}, {10, 0, 4}}},
      {"by bytes and duration", {{30, 3, 4}, {20, 1, 4}, {30, 1, 3}, {10, 4, 5}, {30, 3, 3}, {50, 4, 4}}},
      {"by duration", {{50, 3, 4}, {60, 2, 2}, {20, 2, 4}, {10, 2, 5}, {20, 3, 5}}},
      {"of the peak first", {{50, 0, 2}, {60, 4, 4}, {30, 0, 4}, {30, 0, 3}, {60, 1, 4}}},
      {"of the peak first", {{50, 4, 4}, {60, 2, 4}, {60, 0, 2}, {40, 3, 5}, {10, 2, 5}}},
      {"of the peak first", {{20, 0, 5}, {50, 2, 5}, {40, 1, 4}, {60, 5, 5}, {30, 0, 2}}}};
  for (auto [order, intervals] : cases) {  // each needs more memory in all other orders
    INFO(order);
    CHECK(checked_place(intervals) == graph::peak_of(intervals).bytes);
  }
}
