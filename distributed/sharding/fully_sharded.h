// Data-parallel training of nets that are too large to be on every rank (torch.distributed.fsdp; ZeRO stages 2 and 3).
// A net is cut into units. Of each unit's parameters, gradients and optimizer state a rank keeps its shard
// (flat_parameter.h); the whole parameters are there while the unit computes.
//
//   forward    gather 1 | compute 1, release | compute 2, release | …
//                       | gather 2           | gather 3           |
//   backward   gather 3 | compute 3, release | compute 2, release | …
//                       | gather 2           | reduce 3, gather 1 | reduce 2
//
//   dist::FullyShardedDataParallel fsdp(net, group);
//   optim::Adam adam(fsdp.parameters(), 1e-3);   // the shards
//   …
//   loss_function(net(images), labels).backward();
//   fsdp.clip_grad_norm_(1.0);
//   adam.step();
//   adam.zero_grad();
//
// The net is used as before. Its own parameters are NaN and take no memory outside of their unit's computation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/core/options.h>
#include <gradus/distributed/parallel/watched_net.h>
#include <gradus/distributed/sharding/flat_parameter.h>
#include <gradus/distributed/sharding/sharded_checkpoint.h>
#include <gradus/layers/module.h>
#include <gradus/optim/optimizer.h>

namespace gradus::dist {

enum class ShardingStrategy : uint8_t {
  full_shard,     ///< parameters, gradients and optimizer state (ZeRO 3)
  shard_grad_op,  ///< gradients and optimizer state; parameters stay whole (ZeRO 2)
};

struct FullyShardedDataParallelOptions {
  GRADUS_ARG(ShardingStrategy, sharding_strategy) = ShardingStrategy::full_shard;
  /// Whether a module is a unit; unset: the net's children are. What is in no unit belongs to the net's own, which is
  /// gathered from the beginning of forward to the end of backward.
  GRADUS_ARG(std::function<bool(const std::string& name, const nn::Module& module)>, is_unit);
  /// kBFloat16: parameters are gathered and gradients sent in this type; shards stay float32. What goes into the net is
  /// converted too.
  GRADUS_ARG(std::optional<DType>, param_dtype) = std::nullopt;
  /// Shards, their gradients and the optimizer's state lie on the CPU.
  GRADUS_ARG(bool, cpu_offload) = false;
  /// Whether a unit's gradients are sent while backward computes the next one's: then two units' gradients are there at
  /// once, otherwise one unit's, for which backward waits.
  GRADUS_ARG(bool, overlap_reduce) = true;
  /// Sums in the order of the ranks, so that every transport gives the same bits.
  GRADUS_ARG(bool, strict) = false;
};

/// Shards a net over the ranks of a group, unit by unit (torch.distributed.fsdp.FullyShardedDataParallel).
class FullyShardedDataParallel {
 public:
  /// All ranks call this with nets of the same parameters, which become rank 0's values; so do buffers. The net must be
  /// on its device by then, and all of it in one dtype. Parameters that do not require gradients stay whole. If the
  /// nets of two ranks differ (check_same_on_all_ranks), all get a ValueError.
  ///
  /// The net must stay as it is: a parameter that is frozen or requires gradients later is an AutogradError in the next
  /// backward pass, and one that is added, replaced, removed or moved is a ValueError, which names it.
  FullyShardedDataParallel(nn::Module& module, std::shared_ptr<ProcessGroup> group,
                           FullyShardedDataParallelOptions options = {});
  template <class M>
  FullyShardedDataParallel(const nn::ModuleHolder<M>& module, std::shared_ptr<ProcessGroup> group,
                           FullyShardedDataParallelOptions options = {})
      : FullyShardedDataParallel(*module, std::move(group), std::move(options)) {}
  ~FullyShardedDataParallel();
  FullyShardedDataParallel(const FullyShardedDataParallel&) = delete;
  FullyShardedDataParallel& operator=(const FullyShardedDataParallel&) = delete;

  /// This rank's shards, one of each unit: for an optimizer that treats all elements alike, as all of optim/ do.
  std::vector<Tensor> parameters() const;
  /// Whose ranks share the parameters.
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// Scales the gradients so that their norm over all ranks is at most max_norm. Returns the norm. Collective.
  Tensor clip_grad_norm_(double max_norm, double norm_type = 2);

  // ---- Saving. All collective. ----
  /// Parameters and buffers of the whole net by their names, on the CPU, on every rank.
  nn::StateDict full_state_dict();
  /// Takes such a dict, which every rank has, from a net on any number of ranks. Names or shapes that do not fit are a
  /// ValueError and change nothing.
  void load_full_state_dict(const nn::StateDict& state);
  /// Each rank writes its shards and its part of the optimizer's state into a file of the folder, and rank 0 an index
  /// (sharded_checkpoint.h). Until that is there, what the folder held before can be loaded.
  void save(const std::string& folder, const optim::Optimizer& optimizer);
  /// Reads such a folder, which any number of ranks may have written. A folder of another net is an IoError.
  void load(const std::string& folder, optim::Optimizer& optimizer);

 private:
  struct Unit {
    Unit(std::string name_, nn::Module& module_)
        : name(std::move(name_)), module(&module_), alive(module_.weak_from_this().lock()) {}
    std::string name;
    nn::Module* module;
    std::shared_ptr<nn::Module> alive;    // where the module is held by a shared_ptr
    std::unique_ptr<FlatParameter> flat;  // null where it has no parameters of its own
    std::vector<unsigned> module_hooks, parameter_hooks;
    size_t calls = 0, arrived = 0;  // of forward, and gradients, since the last pass
    bool reduced = false;
  };

  void make_units(nn::Module& module);
  void before_forward(size_t unit, TensorList& inputs);
  void after_forward(size_t unit, const TensorList& outputs);
  void before_backward(size_t unit);
  void on_gradient(size_t unit);
  void begin_pass();
  void reduce(Unit& unit);
  void finish_reduce();  // of the unit that is reducing_, if there is one
  void finish_pass();
  bool is_sharded(const std::string& parameter) const;
  std::vector<CheckpointEntry> checkpoint_entries() const;
  /// The next unit with parameters before (-1) or behind (1) this one in forward; null if there is none.
  FlatParameter* neighbour(size_t unit, int step);

  nn::Module& module_;
  const std::shared_ptr<ProcessGroup> group_;
  const FullyShardedDataParallelOptions options_;
  Device device_;
  std::vector<Unit> units_;                  // the net's own first
  std::vector<size_t> order_;                // in which forward first came to them
  std::map<std::string, std::string> keys_;  // of the state dict: the name of the parameter, which may have several
  Unit* reducing_ = nullptr;
  bool in_pass_ = false;
  std::optional<WatchedNet> watched_;
};

}  // namespace gradus::dist
