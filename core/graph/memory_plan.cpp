#include <gradus/core/graph/memory_plan.h>

#include <algorithm>
#include <numeric>

#include <gradus/core/ceil_div.h>

namespace gradus::graph {

MemoryPlan plan_memory(const Graph& graph) {
  const size_t alignment = graph.device().is_cuda() ? 512 : 64;  // the allocators', which kernels are chosen by
  const std::vector<Buffer>& buffers = graph.buffers();
  std::vector<size_t> order;
  for (size_t i = 0; i < buffers.size(); ++i)
    if (!buffers[i].external && buffers[i].first_use >= 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(buffers[b].bytes, buffers[a].first_use) < std::pair(buffers[a].bytes, buffers[b].first_use);
  });

  MemoryPlan plan;
  plan.offsets.resize(buffers.size());
  const auto size_of = [&](size_t i) { return round_up(buffers[i].bytes, alignment); };
  std::vector<size_t> placed;  // by offset
  for (size_t i : order) {
    size_t offset = 0;
    for (size_t other : placed) {
      if (buffers[other].last_use < buffers[i].first_use || buffers[i].last_use < buffers[other].first_use) continue;
      if (offset + size_of(i) <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + size_of(other));
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + size_of(i));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
                  i);
  }

  std::vector<int64_t> change(graph.calls().size() + 1);  // of the bytes that live, at each call
  for (size_t i : order) {
    change[static_cast<size_t>(buffers[i].first_use)] += static_cast<int64_t>(size_of(i));
    const size_t behind = static_cast<size_t>(buffers[i].last_use) + 1;
    if (behind < change.size()) change[behind] -= static_cast<int64_t>(size_of(i));
  }
  int64_t alive = 0, most = 0;
  for (int64_t bytes : change) most = std::max(most, alive += bytes);
  plan.lower_bound = static_cast<size_t>(most);
  return plan;
}

}  // namespace gradus::graph
