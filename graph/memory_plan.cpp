#include <gradus/graph/memory_plan.h>

#include <algorithm>
#include <map>
#include <numeric>

#include <gradus/core/formulas/integers.h>

namespace gradus::graph {

namespace {

/// Places the intervals in this order, each at the lowest offset where it overlaps no earlier one. Returns the bytes
/// that all of them need.
size_t place_in_order(std::vector<Interval>& intervals, const std::vector<size_t>& order) {
  std::vector<size_t> placed;  // sorted by offset
  size_t bytes = 0;
  for (size_t i : order) {
    Interval& interval = intervals[i];
    interval.offset = 0;
    for (size_t at : placed) {
      const Interval& other = intervals[at];
      if (other.last < interval.first || interval.last < other.first) continue;
      if (interval.offset + interval.bytes <= other.offset) break;
      interval.offset = std::max(interval.offset, other.offset + other.bytes);
    }
    bytes = std::max(bytes, interval.offset + interval.bytes);
    const auto offset_of = [&](size_t at) { return intervals[at].offset; };
    placed.insert(std::ranges::upper_bound(placed, interval.offset, {}, offset_of), i);
  }
  return bytes;
}

/// The intervals of a graph: its buffers that are not external, and the workspace of its calls.
struct Used {
  explicit Used(const Graph& graph) {
    // The alignment of the devices' allocators. Kernels are chosen by alignment, so a smaller one could change results.
    const size_t alignment = graph.device().is_cuda() ? 512 : 64;
    for (size_t i = 0; i < graph.buffers().size(); ++i) {
      const Buffer& buffer = graph.buffers()[i];
      if (buffer.external || buffer.first_use < 0) continue;
      intervals.push_back({round_up(buffer.bytes, alignment), buffer.first_use, buffer.last_use});
      buffers.push_back(i);
    }
    for (size_t i = 0; i < graph.calls().size(); ++i) {
      if (graph.calls()[i]->scratch_bytes == 0) continue;
      const auto time = static_cast<int64_t>(i);
      intervals.push_back({round_up(graph.calls()[i]->scratch_bytes, alignment), time, time});
      calls.push_back(i);
    }
  }
  std::vector<Interval> intervals;     // first those of the buffers, then those of the calls' workspace
  std::vector<size_t> buffers, calls;  // indices in the graph of the buffers and calls that have an interval
};

}  // namespace

Peak peak_of(const std::vector<Interval>& intervals) {
  std::map<int64_t, int64_t> change;  // how the bytes in use change at each time
  for (const Interval& interval : intervals) {
    change[interval.first] += static_cast<int64_t>(interval.bytes);
    change[interval.last + 1] -= static_cast<int64_t>(interval.bytes);
  }
  int64_t used = 0;
  Peak peak;
  for (const auto& [time, bytes] : change)
    if ((used += bytes) > static_cast<int64_t>(peak.bytes)) peak = {static_cast<size_t>(used), time};
  return peak;
}

size_t place(std::vector<Interval>& intervals) {
  constexpr int kAttempts = 64;  // after each attempt, the interval that reaches the highest address moves to the front
  const Peak peak = peak_of(intervals);
  const auto span = [](const Interval& interval) { return static_cast<double>(interval.last - interval.first + 1); };
  const auto area = [&](const Interval& interval) { return static_cast<double>(interval.bytes) * span(interval); };
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  size_t least = SIZE_MAX;
  std::vector<Interval> best;
  const auto try_by = [&](const auto& rank) {
    std::ranges::stable_sort(order, [&](size_t a, size_t b) {
      return std::pair(rank(intervals[b]), intervals[a].first) < std::pair(rank(intervals[a]), intervals[b].first);
    });
    for (int attempt = 0; attempt < kAttempts && least > peak.bytes; ++attempt) {
      const size_t bytes = place_in_order(intervals, order);
      if (bytes < least) least = bytes, best = intervals;
      const auto highest = std::ranges::max_element(order, [&](size_t a, size_t b) {
        return intervals[a].offset + intervals[a].bytes < intervals[b].offset + intervals[b].bytes;
      });
      if (highest == order.begin()) break;
      std::rotate(order.begin(), highest, highest + 1);
    }
  };
  try_by([](const Interval& interval) { return interval.bytes; });
  try_by(area);
  try_by(span);
  try_by([&](const Interval& interval) {
    return std::pair(interval.first <= peak.call && peak.call <= interval.last, interval.bytes);
  });
  intervals = std::move(best);
  return least;
}

Peak peak_of(const Graph& graph) { return peak_of(Used(graph).intervals); }

MemoryPlan plan_memory(const Graph& graph) {
  Used used(graph);
  MemoryPlan plan;
  plan.offsets.resize(graph.buffers().size()), plan.scratch.resize(graph.calls().size());
  plan.bytes = place(used.intervals);
  const Interval* interval = used.intervals.data();
  for (size_t buffer : used.buffers) plan.offsets[buffer] = interval++->offset;
  for (size_t call : used.calls) plan.scratch[call] = interval++->offset;
  plan.lower_bound = peak_of(used.intervals).bytes;
  return plan;
}

}  // namespace gradus::graph
