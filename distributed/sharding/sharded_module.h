// Functions for nets in which some tensors are divided among ranks (those of tensor-parallel layers and sharded tables)
// and the other tensors are whole on every rank: clipping, saving, loading and initial values.
//
//   dist::clip_grad_norm_(*net, group, 1.0);
//   optimizer.step();
//   …
//   dist::save_sharded("checkpoint", *net, group, &optimizer);
//
// FullyShardedDataParallel, ZeroRedundancyOptimizer and save_sharded() write a sharded checkpoint: one safetensors file
// for each rank, and an index.
//
//   index.json                   {"save": "17", "ranks": 2, "tensors": {"fc.weight": {"dim": 0, "size": 20,
//                                   "length": 10, "blocks": 1, "layout": ""}, "norm.weight": null, …}}
//   rank_0.17.safetensors        "fc.weight": rows 0 to 9, and tensors that are whole on all ranks: "norm.weight"
//   rank_1.17.safetensors        "fc.weight": rows 10 to 19
//
// File names contain the number of the save. The index is written when all files exist, and says which save is valid. A
// process that is killed at any time therefore leaves either the old or the new checkpoint.
#pragma once

#include <gradus/distributed/comm/process_group.h>
#include <gradus/layers/module/module.h>
#include <gradus/optim/optimizer.h>

namespace gradus::dist {

/// How a tensor is divided. Along `dim` it consists of `blocks` blocks of `size` elements. Rank r has the elements [r *
/// length, (r + 1) * length) of each block, fewer at the end of the block. Parts may have padding at their ends.
struct Cut {
  int64_t size, length;
  int dim = 0;
  int64_t blocks = 1;
  std::string layout = {};  ///< describes the order of the elements; equal for all parts of a tensor
};

/// This rank's part of a tensor or, without a cut, the whole tensor, which is the same on all ranks.
struct CheckpointEntry {
  std::string name;
  Array array;
  std::optional<Cut> cut = std::nullopt;
};

/// Writes the entries and the state of an optimizer. Optimizer state with the shape of parameter k is divided in the
/// same way as the entry that shares its memory with parameter k. A collective of a group that serves `device`, on a
/// folder that all ranks can access. If a rank cannot write its file, all ranks get an IoError.
void save_sharded_checkpoint(const std::string& folder, ProcessGroup& group, Device device,
                             std::vector<CheckpointEntry> entries, const optim::StateDict& state,
                             const TensorList& parameters);

/// Reads the parts of rank `rank` from a checkpoint into the entries. Their cuts say how tensors are divided now; any
/// number of ranks may have written the checkpoint. First calls `load_state`, unless it is null, with the optimizer's
/// state if one was saved, then fills the entries. If the checkpoint does not fit the entries, throws an IoError before
/// anything changes. Besides the tensors that are read for this rank, only one file is in memory at a time.
void load_sharded_checkpoint(const std::string& folder, int rank, const std::vector<CheckpointEntry>& entries,
                             const TensorList& parameters,
                             const std::function<void(const optim::StateDict&)>& load_state);

/// The parts of a key of an optimizer's state dict: 3 and "exp_avg" for "state.3.exp_avg".
struct StateEntry {
  size_t parameter;
  std::string name;
};

/// Splits a key of an optimizer's state dict. Returns nothing for keys that belong to no parameter, such as
/// "param_groups.0.lr".
std::optional<StateEntry> state_entry(const std::string& key);

// ---- Nets with divided tensors ----

/// A module of which some parameters or buffers are divided over the ranks of a group.
class ShardedModule {
 public:
  struct Part {
    std::string name;             ///< name of the parameter or buffer
    std::string checkpoint_name;  ///< its name in a checkpoint, the same on all ranks
    Cut cut;
  };
  virtual ~ShardedModule() = default;
  virtual std::vector<Part> parts() const = 0;
  /// Gradients of parts that are not stored in their grad(), summed over the backward passes. They share their memory
  /// with the module, so that clip_grad_norm_() can scale them in place.
  virtual TensorList part_gradients() const { return {}; }
};

/// The norm of the gradients of all ranks, taken as one vector, on `device`. A collective.
Tensor norm_over_ranks(const TensorList& gradients, double norm_type, ProcessGroup& group, Device device);

// `group` has the ranks among which the net is divided. In a mesh (make_mesh), this is the group along the dimension
// for tensor parallelism. Tensors that are not divided must be the same on all of these ranks. All functions are
// collectives.

/// Scales the gradients so that the norm of the whole net's gradient is at most max_norm. Returns the norm.
Tensor clip_grad_norm_(const nn::Module& net, const GroupPtr& group, double max_norm, double norm_type = 2);

/// Writes the net and, if given, its optimizer's state to a folder as a sharded checkpoint.
void save_sharded(const std::string& folder, const nn::Module& net, const GroupPtr& group,
                  const optim::Optimizer* optimizer = nullptr);
/// Loads a folder that save_sharded() has written on any number of ranks. If it belongs to another net, throws an
/// IoError and changes nothing.
void load_sharded(const std::string& folder, const nn::Module& net, const GroupPtr& group,
                  optim::Optimizer* optimizer = nullptr);

// ---- Initial values ----
// Every rank draws its part of what one process would draw for the whole weight, so that training begins with the same
// numbers on any number of ranks, and no rank holds more than its part.

/// The row of the whole matrix that is row i of this rank's part.
using RowOf = std::function<int64_t(int64_t i)>;
/// Fills `part` (rows, columns), float32 on the CPU, with its elements of one draw of the default generator from
/// U(-bound, bound) for a whole matrix with `whole_columns`. The part has the columns from `first_column` on. The
/// generator advances as it does for the whole matrix.
void draw_uniform_part(const Tensor& part, int64_t whole_columns, int64_t first_column, const RowOf& row_of,
                       double bound);
/// Draws whole rows from N(0, 1), as nn::Embedding does.
void draw_normal_part(const Tensor& part, const RowOf& row_of);

}  // namespace gradus::dist

namespace gradus::nn::detail {

/// The common part of layers that the ranks of a group share. Their constructors call reset().
template <class Layer, class Options>
struct SharedLayer : Cloneable<Layer>, dist::ShardedModule {
  SharedLayer(const Options& options_, dist::GroupPtr group_) : options(options_), group(std::move(group_)) {
    GRADUS_CHECK(group, ValueError, "a layer that several ranks share needs a process group");
  }

  Options options;
  dist::GroupPtr group;
};

}  // namespace gradus::nn::detail
