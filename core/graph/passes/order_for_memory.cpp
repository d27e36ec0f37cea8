#include <gradus/core/graph/passes/order_for_memory.h>

#include <algorithm>

#include <gradus/core/graph/memory_plan.h>

namespace gradus::graph {
namespace {

/// For each call those that must come later: who reads what it writes, and who writes what it reads or writes.
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

}  // namespace

void order_for_memory(Graph& graph) {
  Dependencies dependencies(graph);
  const size_t count = graph.calls().size();
  std::vector<std::vector<int>> buffers_of(count);
  std::vector<size_t> uses(graph.buffers().size());  // that are still to come
  std::vector<bool> lives(graph.buffers().size());
  for (size_t i = 0; i < count; ++i) {
    for (const Operand& operand : graph.calls()[i]->operands)
      if (operand.buffer >= 0 && !graph.buffers()[static_cast<size_t>(operand.buffer)].external)
        buffers_of[i].push_back(operand.buffer);
    std::sort(buffers_of[i].begin(), buffers_of[i].end());
    buffers_of[i].erase(std::unique(buffers_of[i].begin(), buffers_of[i].end()), buffers_of[i].end());
    for (int buffer : buffers_of[i]) ++uses[static_cast<size_t>(buffer)];
  }
  const auto sum_if = [&](size_t call, const auto& counts) {
    int64_t bytes = 0;
    for (int buffer : buffers_of[call])
      if (const auto at = static_cast<size_t>(buffer); counts(at))
        bytes += static_cast<int64_t>(graph.buffers()[at].bytes);
    return bytes;
  };
  const auto new_bytes = [&](size_t call) { return sum_if(call, [&](size_t at) { return !lives[at]; }); };
  int64_t used = 0, peak = 0;
  const auto peak_after = [&](size_t call) {
    return std::max(peak, used + new_bytes(call) + static_cast<int64_t>(graph.calls()[call]->scratch_bytes));
  };

  std::vector<size_t> order, ready;
  for (size_t i = 0; i < count; ++i)
    if (dependencies.waits_for[i] == 0) ready.push_back(i);
  while (!ready.empty()) {
    const auto next = std::min_element(ready.begin(), ready.end(), [&](size_t a, size_t b) {
      return std::pair(peak_after(a), a) < std::pair(peak_after(b), b);
    });
    const size_t call = *next;
    ready.erase(next);
    order.push_back(call);
    peak = peak_after(call), used += new_bytes(call);
    for (int buffer : buffers_of[call]) lives[static_cast<size_t>(buffer)] = true, --uses[static_cast<size_t>(buffer)];
    used -= sum_if(call, [&](size_t at) { return uses[at] == 0 && !graph.buffers()[at].result; });
    for (size_t successor : dependencies.successors[call])
      if (--dependencies.waits_for[successor] == 0) ready.push_back(successor);
  }

  const size_t before = peak_of(graph).bytes;
  graph.reorder(order);
  if (peak_of(graph).bytes * 20 <= before * 19) return;
  std::vector<size_t> back(count);
  for (size_t i = 0; i < count; ++i) back[order[i]] = i;
  graph.reorder(back);
}

}  // namespace gradus::graph
