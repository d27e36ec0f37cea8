// The ways in which ranks train a net together, behind one interface (docs/sharding.md).
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

  /// `parallel`: "none" of one process; of ranks that have parts of the batch "ddp", "zero1", "zero2" or "zero3"; or
  /// "tensor", for a net whose layers have been made for the group and get all of the batch. Any of the last on one
  /// rank, or "none" on several, is a ValueError.
  ShardedTrainer(gradus::nn::Module& net, const std::string& parallel,
                 std::shared_ptr<gradus::dist::ProcessGroup> group, const MakeOptimizer& make);

  /// Of this rank's loss.
  void step(const gradus::Tensor& loss);
  /// Of all parameters or of this rank's shards: for schedules.
  gradus::optim::Optimizer& optimizer() { return zero_ ? zero_->local() : *optimizer_; }

  /// Net, optimizer and `progress`, on all ranks alike. Of "none", "ddp" and "zero1" `path` is a file that any of the
  /// three loads, of "zero2" and "zero3" a folder that both load on any number of ranks, of "tensor" a folder with a
  /// part of each rank, for as many.
  void save(const std::string& path, gradus::training::Checkpoint progress);
  /// False where there is none.
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
