// Checkpoints of tensors that are divided among ranks: one safetensors file for each rank, and an index.
// FullyShardedDataParallel, ZeroRedundancyOptimizer and save_sharded write them.
//
//   index.json                   {"save": "17", "ranks": 2, "tensors": {"fc.weight": {"dim": 0, "size": 20,
//                                   "length": 10, "blocks": 1, "layout": ""}, "norm.weight": null, …}}
//   rank_0.17.safetensors        "fc.weight": rows 0 to 9, and tensors that are whole on all ranks: "norm.weight"
//   rank_1.17.safetensors        "fc.weight": rows 10 to 19
//
// File names contain the number of the save. The index is written when all files exist, and says which save is valid. A
// process that is killed at any time therefore leaves either the old or the new checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/optim/optimizer.h>

namespace gradus::dist {

/// How a tensor is divided. Along `dim` it consists of `blocks` blocks of `size`, and rank r has `length` elements of
/// each block from r * length on, or what is left there. Parts may have padding at their ends.
struct Cut {
  int64_t size, length;
  int dim = 0;
  int64_t blocks = 1;
  std::string layout = {};  ///< describes the order of the elements; equal for all parts of a tensor
};

/// This rank's part of a tensor. Without a cut, the whole tensor, which is the same on all ranks.
struct CheckpointEntry {
  std::string name;
  Array array;
  std::optional<Cut> cut = std::nullopt;
};

/// Writes the entries and the state of an optimizer. State with the shape of parameter k is divided as the entry that
/// has the memory of that parameter. A collective of a group that serves `device`, on a folder that all ranks can
/// access. If a rank cannot write its file, all ranks get an IoError.
void save_sharded_checkpoint(const std::string& folder, ProcessGroup& group, Device device,
                             std::vector<CheckpointEntry> entries, const optim::StateDict& state,
                             const std::vector<Tensor>& parameters);

/// Reads a checkpoint, written by any number of ranks, for rank `rank` of the entries' own division. Calls
/// `load_state`, unless it is null, with the optimizer's state if one was saved, then fills the entries. If the
/// checkpoint does not fit the entries, throws an IoError before anything changes. Only one file is in memory at a
/// time, besides what is read for this rank.
void load_sharded_checkpoint(const std::string& folder, int rank, const std::vector<CheckpointEntry>& entries,
                             const std::vector<Tensor>& parameters,
                             const std::function<void(const optim::StateDict&)>& load_state);

/// The parts of a key of an optimizer's state dict: 3 and "exp_avg" for "state.3.exp_avg".
struct StateEntry {
  size_t parameter;
  std::string name;
};

/// Finds the parameter to which an entry of a state dict belongs. Nothing for entries that belong to no parameter, such
/// as "param_groups.0.lr".
std::optional<StateEntry> state_entry(const std::string& key);

}  // namespace gradus::dist
