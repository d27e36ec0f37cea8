// Checkpoints of tensors that are divided among ranks: one safetensors file a rank, and an index. What
// FullyShardedDataParallel, ZeroRedundancyOptimizer and save_sharded write.
//
//   index.json                   {"save": "17", "ranks": 2, "tensors": {"fc.weight": {"dim": 0, "size": 20,
//                                   "length": 10, "blocks": 1, "layout": ""}, "norm.weight": null, …}}
//   rank_0.17.safetensors        "fc.weight": rows 0 to 9, and what is whole on all ranks: "norm.weight"
//   rank_1.17.safetensors        "fc.weight": rows 10 to 19
//
// Files have the number of their save in their names, and the index, which is written when all of them are there, says
// which counts: whoever is killed when leaves the old checkpoint or the new one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/optim/optimizer.h>

namespace gradus::dist {

/// How a tensor is divided: along `dim` it is `blocks` blocks of `size`, and of each of them rank r has `length` from
/// r length on, or what is left there. Behind its end parts may have padding.
struct Cut {
  int64_t size, length;
  int dim = 0;
  int64_t blocks = 1;
  std::string layout = {};  ///< of parts of the same tensor it is the same
};

/// This rank's part of a tensor; without a cut, all of it, the same on all ranks.
struct CheckpointEntry {
  std::string name;
  Array array;
  std::optional<Cut> cut = std::nullopt;
};

/// Writes the entries, and an optimizer's state: what has the shape of parameter k is cut as the entry whose memory
/// that is. Collective of a group that serves `device`, on a folder that all ranks see. What one rank cannot write is
/// an IoError on all.
void save_sharded_checkpoint(const std::string& folder, ProcessGroup& group, Device device,
                             std::vector<CheckpointEntry> entries, const optim::StateDict& state,
                             const std::vector<Tensor>& parameters);

/// Reads a checkpoint of any number of ranks for rank `rank` of its own cut: calls `load_state`, unless it is null,
/// with the optimizer's state, where one was saved, then fills the entries. A checkpoint that does not fit them is an
/// IoError before anything changes. At any time one file is in memory, beside what is read for this rank.
void load_sharded_checkpoint(const std::string& folder, int rank, const std::vector<CheckpointEntry>& entries,
                             const std::vector<Tensor>& parameters,
                             const std::function<void(const optim::StateDict&)>& load_state);

}  // namespace gradus::dist
