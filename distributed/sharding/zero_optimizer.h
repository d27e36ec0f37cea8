// An optimizer whose state is divided among the ranks (torch.distributed.optim.ZeroRedundancyOptimizer; ZeRO stage 1).
// Each rank keeps the state of its shard of the parameters, updates the shard, and receives the other shards from the
// other ranks. With DistributedDataParallel, which averages the gradients, it takes the same steps as the plain
// optimizer.
//
//   dist::ZeroRedundancyOptimizer zero(net, group, [](auto shards) {
//     return std::make_unique<optim::Adam>(shards, 1e-3);
//   });
//   dist::DistributedDataParallel ddp(net, group);
//   …
//   loss.backward();
//   zero.step();
//   zero.zero_grad();
#pragma once

#include <gradus/distributed/parallel/wrapped_net.h>
#include <gradus/distributed/sharding/flat_parameter.h>
#include <gradus/optim/optimizer.h>

namespace gradus::dist {

/// Divides the state of an optimizer among the ranks of a group (ZeRO 1).
class ZeroRedundancyOptimizer {
 public:
  using Make = std::function<std::unique_ptr<optim::Optimizer>(TensorList shards)>;

  /// Shards the parameters of `module` that require gradients. They must have one dtype and device, and the same values
  /// on all ranks. `make` gets this rank's parts, one for each parameter of which it owns elements. It must return an
  /// optimizer of these parts that treats all elements alike.
  ZeroRedundancyOptimizer(nn::Module& module, GroupPtr group, const Make& make);
  template <class M>
  ZeroRedundancyOptimizer(const nn::ModuleHolder<M>& module, GroupPtr group, const Make& make)
      : ZeroRedundancyOptimizer(*module, std::move(group), make) {}

  /// Updates the parameters. A collective. The gradient of a parameter without one counts as 0. Throws an AutogradError
  /// if a parameter has begun to require gradients since the construction, and a ValueError that names the parameter if
  /// one was added, replaced, removed or moved.
  void step();
  /// Resets the gradients of this rank, as Tensor::zero_grad() does.
  void zero_grad();
  /// The optimizer of this rank's parts, for schedules of the learning rate and for gradus::plan.
  optim::Optimizer& local() { return *local_; }

  /// The state for all parameters that require gradients, numbered in the order of module.parameters(), on the CPU of
  /// every rank. It equals the state of the plain optimizer. A collective.
  optim::StateDict state_dict() const;
  /// Loads the result of state_dict(), which may come from any number of ranks or from the plain optimizer.
  void load_state_dict(const optim::StateDict& state);

  /// Each rank writes its part of the parameters and of the state to a file in the folder. Rank 0 also writes the rest
  /// of the net and an index (sharded_module.h). A collective.
  void save(const std::string& folder) const;
  /// Loads a folder that save() has written on any number of ranks. Throws an IoError if it belongs to another net. A
  /// collective.
  void load(const std::string& folder);

 private:
  /// The state as if the shard were the only parameter of the optimizer.
  optim::StateDict shard_state() const;
  void load_shard_state(const optim::StateDict& state);
  std::vector<CheckpointEntry> checkpoint_entries() const;

  nn::Module& module_;
  FlatParameter flat_;
  std::vector<FlatParameter::OwnPart> parts_;
  WatchedNet watched_;
  TensorList shards_;  // the parts as leaves, or one empty leaf if this rank owns only padding
  std::unique_ptr<optim::Optimizer> local_;
};

}  // namespace gradus::dist
