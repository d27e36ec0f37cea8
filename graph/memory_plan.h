// Where the buffers of a graph are in one block of memory, the arena, so that those that live at the same time do not
// overlap. On a GPU, so is what kernels take for themselves.
#pragma once

#include <gradus/graph/graph.h>

namespace gradus::graph {

/// Memory that is in use from time `first` to time `last`.
struct Interval {
  size_t bytes;
  int64_t first, last;
  size_t offset = 0;
};

/// Gives each interval an offset, the lowest one where none that is placed is in the way. Of several orders (by bytes,
/// by time, by their product, each with what sticks out moved to the front some times) the one counts that needs the
/// fewest bytes, which are returned.
size_t place(std::vector<Interval>& intervals);

struct MemoryPlan {
  /// By buffer, from the start of the arena; of external ones 0. Multiples of 64, on a GPU of 512.
  std::vector<size_t> offsets;
  std::vector<size_t> scratch;  ///< the same of each call's scratch memory
  size_t bytes = 0;             ///< of the arena
  size_t lower_bound = 0;       ///< the largest sum of what lives at the same time
};

/// When most of it is in use, and how much: no order of placing needs less.
struct Peak {
  size_t bytes = 0;
  int64_t call = 0;  ///< by number
};
Peak peak_of(const Graph& graph);

/// A buffer lives from the first call that uses it to the last.
MemoryPlan plan_memory(const Graph& graph);

}  // namespace gradus::graph
