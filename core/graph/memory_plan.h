// Where the buffers of a graph are in one block of memory, the arena, so that those that live at the same time do not
// overlap.
#pragma once

#include <gradus/core/graph/graph.h>

namespace gradus::graph {

struct MemoryPlan {
  /// By buffer, from the start of the arena; of external ones 0. Multiples of 64, on a GPU of 512.
  std::vector<size_t> offsets;
  size_t bytes = 0;        ///< of the arena
  size_t lower_bound = 0;  ///< the largest sum of buffers that live at the same time
};

/// A buffer lives from the first call that uses it to the last. Larger ones are placed first, each at the lowest offset
/// where none that is placed is in the way.
MemoryPlan plan_memory(const Graph& graph);

}  // namespace gradus::graph
