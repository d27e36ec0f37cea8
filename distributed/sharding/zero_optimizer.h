// An optimizer whose state is divided among the ranks (torch.distributed.optim.ZeroRedundancyOptimizer; ZeRO stage 1):
// each rank keeps the state of its shard of the parameters, updates that, and gets the others' from the others. With
// DistributedDataParallel, which averages the gradients, it takes the same steps as the optimizer alone.
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

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gradus/distributed/parallel/watched_net.h>
#include <gradus/distributed/sharding/flat_parameter.h>
#include <gradus/layers/module.h>
#include <gradus/optim/optimizer.h>

namespace gradus::dist {

/// An optimizer whose state is shared out over the ranks of a group (ZeRO 1).
class ZeroRedundancyOptimizer {
 public:
  using Make = std::function<std::unique_ptr<optim::Optimizer>(std::vector<Tensor> shards)>;

  /// The parameters of `module` that require gradients, of one dtype on one device, with the same values on all ranks.
  /// `make` gets this rank's parts of them, one for each parameter that it owns some of, in which all elements are
  /// treated alike.
  ZeroRedundancyOptimizer(nn::Module& module, std::shared_ptr<ProcessGroup> group, const Make& make);
  template <class M>
  ZeroRedundancyOptimizer(const nn::ModuleHolder<M>& module, std::shared_ptr<ProcessGroup> group, const Make& make)
      : ZeroRedundancyOptimizer(*module, std::move(group), make) {}

  /// Collective. A parameter without a gradient counts as one whose gradient is 0. One that has begun to require
  /// gradients since the construction is an AutogradError; one that was added, replaced, removed or moved since is a
  /// ValueError, which names it.
  void step();
  /// Makes all gradients undefined or 0, on this rank.
  void zero_grad();
  /// The optimizer of this rank's parts: for schedules of its learning rate, and for gradus::plan.
  optim::Optimizer& local() { return *local_; }

  /// The state for all parameters, numbered as in module.parameters(), on the CPU of every rank: what the optimizer
  /// alone would give. Collective.
  optim::StateDict state_dict() const;
  /// Takes such a state, from any number of ranks or from the optimizer alone.
  void load_state_dict(const optim::StateDict& state);

  /// Each rank writes its part of the parameters and of the state into a file of the folder, rank 0 what else the net
  /// has, and an index (sharded_checkpoint.h). Collective.
  void save(const std::string& folder) const;
  /// Reads such a folder, which any number of ranks may have written. A folder of another net is an IoError.
  /// Collective.
  void load(const std::string& folder);

 private:
  /// The state as if the shard were one parameter.
  optim::StateDict shard_state() const;
  void load_shard_state(const optim::StateDict& state);
  std::vector<CheckpointEntry> checkpoint_entries() const;

  nn::Module& module_;
  FlatParameter flat_;
  std::vector<FlatParameter::OwnPart> parts_;
  WatchedNet watched_;
  std::vector<Tensor> shards_;  // the parts as leaves; an empty one where this rank owns padding alone
  std::unique_ptr<optim::Optimizer> local_;
};

}  // namespace gradus::dist
