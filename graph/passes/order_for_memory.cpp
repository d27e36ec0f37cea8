#include <algorithm>

#include <gradus/graph/memory_plan.h>
#include <gradus/graph/passes/passes.h>

namespace gradus::graph {
namespace {

/// For each call the calls that must come later: those that read what it writes, and those that write what it reads or
/// writes.
struct Dependencies {
  explicit Dependencies(const Graph& graph) : successors(graph.calls().size()), waits_for(graph.calls().size()) {
    struct Uses {
      std::vector<size_t> readers;  // since the last write
      size_t writer = SIZE_MAX;
    };
    std::vector<Uses> buffers(graph.buffers().size());
    for (size_t i = 0; i < graph.calls().size(); ++i)
      for (const Operand& operand : graph.calls()[i]->operands) {
        if (operand.buffer < 0) continue;
        Uses& uses = buffers[static_cast<size_t>(operand.buffer)];
        if (uses.writer != SIZE_MAX) add(uses.writer, i);
        if (!operand.is_written) {
          uses.readers.push_back(i);
          continue;
        }
        for (size_t reader : uses.readers) add(reader, i);
        uses.readers.clear();
        uses.writer = i;
      }
  }
  void add(size_t before, size_t after) {
    if (before == after) return;
    successors[before].push_back(after);
    ++waits_for[after];
  }
  std::vector<std::vector<size_t>> successors;
  std::vector<size_t> waits_for;
};

/// How a call that is ready would change the memory in use.
struct Effect {
  int64_t used, peak;      // before the call
  int64_t fresh, scratch;  // bytes of buffers that it is the first to use, and of its workspace
  int64_t freed;           // bytes of buffers that it is the last to use
  int64_t peak_with(int64_t more) const { return std::max(peak, used + fresh + scratch + more); }
};
/// The next call is the one with the smallest rank; of several, the first in the graph.
using Rank = int64_t (*)(const Effect& effect);
constexpr Rank kRanks[] = {[](const Effect& effect) { return effect.peak_with(0); },
                           [](const Effect& effect) { return effect.peak_with(effect.scratch / 4); },  // leaves slack
                           [](const Effect& effect) { return effect.fresh - effect.freed; }};

std::vector<size_t> order_by(Rank rank, const Graph& graph, Dependencies dependencies) {
  const size_t count = graph.calls().size();
  std::vector<std::vector<size_t>> buffers_of(count);
  std::vector<size_t> uses(graph.buffers().size());  // remaining ones
  std::vector<bool> lives(graph.buffers().size());
  for (size_t i = 0; i < count; ++i) {
    for (const Operand& operand : graph.calls()[i]->operands)
      if (operand.buffer >= 0 && !graph.buffers()[static_cast<size_t>(operand.buffer)].external)
        buffers_of[i].push_back(static_cast<size_t>(operand.buffer));
    std::sort(buffers_of[i].begin(), buffers_of[i].end());
    buffers_of[i].erase(std::unique(buffers_of[i].begin(), buffers_of[i].end()), buffers_of[i].end());
    for (size_t buffer : buffers_of[i]) ++uses[buffer];
  }
  int64_t used = 0, peak = 0;
  const auto effect_of = [&](size_t call) {
    Effect effect{used, peak, 0, static_cast<int64_t>(graph.calls()[call]->scratch_bytes), 0};
    for (size_t at : buffers_of[call]) {
      const Buffer& buffer = graph.buffers()[at];
      if (!lives[at]) effect.fresh += static_cast<int64_t>(buffer.bytes);
      if (uses[at] == 1 && !buffer.result) effect.freed += static_cast<int64_t>(buffer.bytes);
    }
    return effect;
  };

  std::vector<size_t> order, ready;
  for (size_t i = 0; i < count; ++i)
    if (dependencies.waits_for[i] == 0) ready.push_back(i);
  while (!ready.empty()) {
    const auto next = std::min_element(ready.begin(), ready.end(), [&](size_t a, size_t b) {
      return std::pair(rank(effect_of(a)), a) < std::pair(rank(effect_of(b)), b);
    });
    const size_t call = *next;
    const Effect effect = effect_of(call);
    peak = effect.peak_with(0), used += effect.fresh - effect.freed;
    ready.erase(next);
    order.push_back(call);
    for (size_t buffer : buffers_of[call]) lives[buffer] = true, --uses[buffer];
    for (size_t successor : dependencies.successors[call])
      if (--dependencies.waits_for[successor] == 0) ready.push_back(successor);
  }
  return order;
}

std::vector<size_t> inverse(const std::vector<size_t>& order) {
  std::vector<size_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = i;
  return back;
}

}  // namespace

void order_for_memory(Graph& graph) {
  const Dependencies dependencies(graph);
  size_t least = plan_memory(graph).bytes / 20 * 19 + 1;
  std::vector<size_t> best;
  for (const Rank rank : kRanks) {
    const std::vector<size_t> order = order_by(rank, graph, dependencies);
    graph.reorder(order);
    const size_t bytes = plan_memory(graph).bytes;
    graph.reorder(inverse(order));
    if (bytes < least) least = bytes, best = order;
  }
  if (!best.empty()) graph.reorder(best);
}

}  // namespace gradus::graph
