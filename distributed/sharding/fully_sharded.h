// Data-parallel training of nets that are too large for one rank (torch.distributed.fsdp; ZeRO stages 2 and 3). A net
// is divided into units. Each rank keeps its shard of the parameters, gradients and optimizer state of each unit
// (flat_parameter.h). The whole parameters of a unit exist only while the unit computes.
//
//   forward    gather 1 | compute 1, release | compute 2, release | …
//                       | gather 2           | gather 3           |
//   backward   gather 3 | compute 3, release | compute 2, release | …
//                       | gather 2           | reduce 3, gather 1 | reduce 2
//
// The second row shows the communication that runs while the unit of the first row computes.
//
//   dist::FullyShardedDataParallel fsdp(net, group);
//   optim::Adam adam(fsdp.parameters(), 1e-3);   // the shards
//   …
//   loss_function(net(images), labels).backward();
//   fsdp.clip_grad_norm_(1.0);
//   adam.step();
//   adam.zero_grad();
//
// The net is used as before. Its own parameters are NaN and take no memory while their unit does not compute.
#pragma once

#include <map>

#include <gradus/core/options.h>
#include <gradus/distributed/parallel/wrapped_net.h>
#include <gradus/distributed/sharding/flat_parameter.h>
#include <gradus/optim/optimizer.h>

namespace gradus::dist {

enum class ShardingStrategy : uint8_t {
  full_shard,     ///< parameters, gradients and optimizer state (ZeRO 3)
  shard_grad_op,  ///< gradients and optimizer state; parameters stay whole (ZeRO 2)
};

struct FullyShardedDataParallelOptions {
  GRADUS_ARG(ShardingStrategy, sharding_strategy) = ShardingStrategy::full_shard;
  /// Returns true if a module is a unit. By default the net's children are units. Parameters outside of all units
  /// belong to the net's own unit, which is gathered from the beginning of forward to the end of backward.
  GRADUS_ARG(std::function<bool(const std::string& name, const nn::Module& module)>, is_unit);
  /// kBFloat16: parameters are gathered and gradients are sent in this type, while shards stay float32. Floating-point
  /// inputs of the net are converted too.
  GRADUS_ARG(std::optional<DType>, param_dtype) = std::nullopt;
  /// Keep shards, their gradients and the optimizer's state on the CPU.
  GRADUS_ARG(bool, cpu_offload) = false;
  /// If true, a unit's gradients are sent while backward computes the gradients of the next unit, so the gradients of
  /// two units exist at once. If false, backward waits until they are sent, and only one unit's gradients exist at
  /// once.
  GRADUS_ARG(bool, overlap_reduce) = true;
  /// Sum in the order of the ranks, so that every transport gives the same bits.
  GRADUS_ARG(bool, strict) = false;
};

/// Shards a net over the ranks of a group, unit by unit (torch.distributed.fsdp.FullyShardedDataParallel).
class FullyShardedDataParallel : NoCopy {
 public:
  /// All ranks must call this with nets that have the same parameters. Parameters and buffers get the values of rank 0.
  /// The net must already be on its device and have one dtype. Frozen parameters stay whole. If the nets of two ranks
  /// differ (check_same_on_all_ranks), all ranks get a ValueError.
  ///
  /// The net must not change afterwards. The next backward pass throws an AutogradError if a parameter was frozen or
  /// unfrozen, and a ValueError that names the parameter if one was added, replaced, removed or moved.
  FullyShardedDataParallel(nn::Module& module, GroupPtr group, FullyShardedDataParallelOptions options = {});
  template <class M>
  FullyShardedDataParallel(const nn::ModuleHolder<M>& module, GroupPtr group,
                           FullyShardedDataParallelOptions options = {})
      : FullyShardedDataParallel(*module, std::move(group), std::move(options)) {}
  ~FullyShardedDataParallel();

  /// This rank's shards, one for each unit, for an optimizer that treats all elements alike, as all optimizers of
  /// optim/ do.
  TensorList parameters() const;
  /// The group whose ranks share the parameters.
  const GroupPtr& group() const { return group_; }

  /// Scales the gradients so that their norm over all ranks is at most max_norm. Returns the norm. A collective.
  Tensor clip_grad_norm_(double max_norm, double norm_type = 2);

  // ---- Saving. All of these are collectives. ----
  /// The parameters and buffers of the whole net by name, on the CPU, on every rank.
  nn::StateDict full_state_dict();
  /// Loads the result of full_state_dict(), which every rank must pass. It may come from a net on any number of ranks.
  /// Throws a ValueError if names do not fit and a ShapeError if shapes do not; nothing has changed then.
  void load_full_state_dict(const nn::StateDict& state);
  /// Each rank writes its shards and its part of the optimizer's state to a file in the folder, and rank 0 writes an
  /// index (sharded_module.h). Until the index has been written, the previous checkpoint in the folder can be
  /// loaded.
  void save(const std::string& folder, const optim::Optimizer& optimizer);
  /// Loads a folder that save() has written on any number of ranks. Throws an IoError if it belongs to another net.
  void load(const std::string& folder, optim::Optimizer& optimizer);

 private:
  struct Unit {
    Unit(std::string name_, nn::Module& module_)
        : name(std::move(name_)), module(&module_), alive(module_.weak_from_this().lock()) {}
    std::string name;
    nn::Module* module;
    std::shared_ptr<nn::Module> alive;    // keeps the module alive if a shared_ptr owns it
    std::unique_ptr<FlatParameter> flat;  // null if no parameter belongs to the unit
    std::vector<unsigned> module_hooks, parameter_hooks;
    size_t calls = 0, arrived = 0;  // number of forward calls and of gradients since the last backward pass
    bool reduced = false;
  };

  void make_units(nn::Module& module);
  void before_forward(size_t unit, TensorList& inputs);
  void after_forward(size_t unit, const TensorList& outputs);
  void before_backward(size_t unit);
  void on_gradient(size_t unit);
  void begin_pass();
  void reduce(Unit& unit);
  void finish_reduce();  // of the unit reducing_, if there is one
  void finish_pass();
  std::vector<CheckpointEntry> checkpoint_entries() const;
  /// The nearest unit with parameters before (`step` -1) or after (`step` 1) this one in the order of forward; null if
  /// there is none.
  FlatParameter* neighbour(size_t unit, int step);

  nn::Module& module_;
  const GroupPtr group_;
  const FullyShardedDataParallelOptions options_;
  Device device_;
  std::vector<Unit> units_;                  // the net's own unit first
  std::vector<size_t> order_;                // indices of the units in the order in which forward first reached them
  std::map<std::string, std::string> keys_;  // names of sharded parameters, by key in the state dict
  Unit* reducing_ = nullptr;
  bool in_pass_ = false;
  std::optional<WatchedNet> watched_;
};

}  // namespace gradus::dist
