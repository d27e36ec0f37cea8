// ShardedTrainer: one interface for all ways in which ranks can train a net together (docs/sharding.md).
#pragma once

#include <gradus/distributed/distributed.h>
#include <gradus/gradus.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

class ShardedTrainer {
 public:
  using MakeOptimizer = std::function<std::unique_ptr<gradus::optim::Optimizer>(std::vector<gradus::Tensor>)>;

  /// `parallel` is "none" for a single process; "ddp", "zero1", "zero2" or "zero3" for ranks that train on parts of the
  /// batch; or "tensor" for a net whose layers are distributed over the group, where each rank gets the whole batch.
  /// "none" with several ranks, or another value with a single rank, is a ValueError.
  ShardedTrainer(gradus::nn::Module& net, const std::string& parallel,
                 std::shared_ptr<gradus::dist::ProcessGroup> group, const MakeOptimizer& make);

  /// Trains on this rank's loss: backward pass and optimizer step.
  void step(const gradus::Tensor& loss);
  /// The optimizer of all parameters or of this rank's shards, for learning rate schedules.
  gradus::optim::Optimizer& optimizer() { return zero_ ? zero_->local() : *optimizer_; }

  /// Saves net, optimizer and `progress`. All ranks must call it. For "none", "ddp" and "zero1", `path` is a file that
  /// each of these three can load. For "zero2" and "zero3", it is a folder that both can load with any number of ranks.
  /// For "tensor", it is a folder with a file of each rank, for the same number of ranks.
  void save(const std::string& path, gradus::training::Checkpoint progress);
  /// Loads what save() wrote. Returns false if there is nothing at `path`.
  bool load(const std::string& path, gradus::training::Checkpoint progress);

 private:
  std::string complete(const std::string& path, gradus::training::Checkpoint& progress);

  gradus::nn::Module& net_;
  const std::string parallel_;
  const std::shared_ptr<gradus::dist::ProcessGroup> group_;
  std::optional<gradus::dist::DistributedDataParallel> ddp_;
  std::optional<gradus::dist::FullyShardedDataParallel> fsdp_;
  std::optional<gradus::dist::ZeroRedundancyOptimizer> zero_;
  std::unique_ptr<gradus::optim::Optimizer> optimizer_;
};
