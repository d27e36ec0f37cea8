// Places the buffers of a graph in one block of memory, the arena, so that buffers do not overlap while both are in
// use. On a GPU the arena also contains the workspace of kernels.
#pragma once

#include <gradus/graph/graph.h>

namespace gradus::graph {

/// Sets the offset of each interval and returns the bytes that all of them need together. Intervals are placed one
/// after the other, each at the lowest offset where it overlaps no earlier one. Several orders are tried: by bytes, by
/// duration, by their product, and by bytes with those in use at the peak first; each repeatedly with the interval that
/// reaches the highest address moved to the front. The result is the placement that needs the fewest bytes.
size_t place(std::vector<Interval>& intervals);

struct MemoryPlan {
  /// The offset of each buffer in the arena, a multiple of 64 (of 512 on a GPU); 0 for external buffers.
  std::vector<size_t> offsets;
  std::vector<size_t> scratch;  ///< the offset of each call's workspace in the arena
  size_t bytes = 0;             ///< size of the arena
  size_t lower_bound = 0;       ///< peak_of(graph).bytes: no placement needs fewer bytes
};

/// The largest number of bytes that are in use at the same time.
struct Peak {
  size_t bytes = 0;
  int64_t call = 0;  ///< the first time at which they are in use: in a graph, the position of the call
};
Peak peak_of(const std::vector<Interval>& intervals);
Peak peak_of(const Graph& graph);

/// Plans the arena. A buffer is in use from the first call that uses it to the last.
MemoryPlan plan_memory(const Graph& graph);

}  // namespace gradus::graph
