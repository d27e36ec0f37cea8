#include <gradus/examples/language/sharded_trainer.h>

#include <filesystem>

using namespace gradus;

ShardedTrainer::ShardedTrainer(nn::Module& net, const std::string& parallel, std::shared_ptr<dist::ProcessGroup> group,
                               const MakeOptimizer& make)
    : net_(net), parallel_(parallel), group_(std::move(group)) {
  const int ranks = group_ ? group_->size() : 1;
  GRADUS_CHECK((parallel == "none") == (ranks == 1), ValueError, "'", parallel, "' is no way for ", ranks,
               ranks == 1 ? " process to train: start several (--spawn 2)"
                          : " ranks to train: choose ddp, zero1, zero2, zero3 or tensor (--parallel)");
  if (parallel == "zero2" || parallel == "zero3") {
    const auto strategy =
        parallel == "zero2" ? dist::ShardingStrategy::shard_grad_op : dist::ShardingStrategy::full_shard;
    fsdp_.emplace(net, group_, dist::FullyShardedDataParallelOptions().sharding_strategy(strategy));
    optimizer_ = make(fsdp_->parameters());
    return;
  }
  if (parallel == "zero1") zero_.emplace(net, group_, make);
  else optimizer_ = make(net.parameters());
  if (parallel == "ddp" || parallel == "zero1") ddp_.emplace(net, group_);
}

void ShardedTrainer::step(const Tensor& loss) {
  loss.backward();
  if (zero_) zero_->step();
  else optimizer_->step();
  if (zero_) zero_->zero_grad();
  else optimizer_->zero_grad();
}

/// Adds net and optimizer to `progress` and returns the name of this rank's file.
std::string ShardedTrainer::complete(const std::string& path, training::Checkpoint& progress) {
  if (fsdp_) return path + "/progress.safetensors";
  progress.add("net", net_);
  if (zero_)
    progress.add(
        "optimizer", "optimizer", [this] { return zero_->state_dict(); },
        [this](const training::State& state) { zero_->load_state_dict(state); });
  else
    progress.add(
        "optimizer", "optimizer", [this] { return optimizer_->state_dict(); },
        [this](const training::State& state) { optimizer_->load_state_dict(state); });
  if (parallel_ != "tensor") return path;
  progress.setting("ranks", group_->size());
  return path + "/rank_" + std::to_string(group_->rank()) + ".safetensors";
}

void ShardedTrainer::save(const std::string& path, training::Checkpoint progress) {
  const std::string file = complete(path, progress);
  if (fsdp_) fsdp_->save(path, *optimizer_);
  if (parallel_ == "tensor") std::filesystem::create_directories(path);
  const std::vector<std::byte> bytes = progress.to_bytes();  // on all ranks: ZeRO 1 gathers the optimizer's state
  if (parallel_ == "tensor" || !group_ || group_->rank() == 0) io::write_file(file, bytes);
  if (group_) group_->barrier();
}

bool ShardedTrainer::load(const std::string& path, training::Checkpoint progress) {
  const std::string file = complete(path, progress);
  if (!progress.load_if_there(file)) return false;
  if (fsdp_) fsdp_->load(path, *optimizer_);
  return true;
}
