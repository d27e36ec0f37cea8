// Data-parallel training over the ranks of a process group: each rank has the whole net and a share of every batch;
// gradients are averaged during backward(), so that all ranks take the same step
// (torch.nn.parallel.DistributedDataParallel).
//
//   auto group = dist::init_process_group();
//   dist::DistributedDataParallel ddp(net, group);
//   …
//   loss_function(net(images), labels).backward();   // the gradients are averages over the ranks
//   optimizer.step();
//
// The net itself is used as before: nothing is wrapped around it, so state_dict() and printing show its own names.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/core/options.h>
#include <gradus/distributed/parallel/reducer.h>
#include <gradus/distributed/parallel/watched_net.h>
#include <gradus/layers/module.h>

namespace gradus::dist {

struct DistributedDataParallelOptions {
  /// Gradients are sent in buckets of this size, in MiB, except the first one, which is smaller so that sending begins
  /// early.
  GRADUS_ARG(double, bucket_cap_mb) = 25;
  GRADUS_ARG(double, first_bucket_mb) = 1;
  /// A parameter that a backward pass gives no gradient counts as 0. Otherwise it is an AutogradError that names it and
  /// ends the group, since the other ranks wait for it.
  GRADUS_ARG(bool, find_unused_parameters) = false;
  /// Buffers (running statistics) become rank 0's at the end of every backward pass.
  GRADUS_ARG(bool, broadcast_buffers) = true;
  /// Sums in the order of the ranks, so that every transport gives the same bits. Slower for large buckets.
  GRADUS_ARG(bool, strict) = false;
  /// kHalf or kBFloat16: gradients are sent in this type, half the bytes. Each is rounded to 11 or 8 bits on every
  /// rank, and the average once more.
  GRADUS_ARG(std::optional<DType>, gradient_compression) = std::nullopt;
};

class DistributedDataParallel {
 public:
  /// All ranks call this with nets of the same parameters, which become rank 0's values; so do buffers. The net must be
  /// on its device by then, and in its dtype. Parameters that do not require gradients are left out. If the nets of two
  /// ranks differ (check_same_on_all_ranks), all get a ValueError.
  ///
  /// The net must stay as it is: a parameter that requires gradients later is an AutogradError in the next backward
  /// pass, and one that is added, replaced, removed or moved is a ValueError there, which names it; so are buffers,
  /// with broadcast_buffers. Make another DistributedDataParallel for the changed net. A net that no shared_ptr holds
  /// must outlive this object.
  DistributedDataParallel(nn::Module& module, std::shared_ptr<ProcessGroup> group,
                          DistributedDataParallelOptions options = {});
  template <class M>
  DistributedDataParallel(const nn::ModuleHolder<M>& module, std::shared_ptr<ProcessGroup> group,
                          DistributedDataParallelOptions options = {})
      : DistributedDataParallel(*module, std::move(group), std::move(options)) {}
  /// The net keeps its weights; its gradients are no longer averaged.
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// What averages the gradients.
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// Until its end, backward() adds up gradients on each rank alone. The first backward() after it averages the sums.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp) : ddp_(ddp), previous_(std::exchange(ddp.synchronizes_, false)) {}
    ~NoSync() { ddp_.synchronizes_ = previous_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    const bool previous_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// What to multiply a mean loss over `samples` of this rank with, where all ranks together have `global_samples` in
  /// the step: the average over the ranks is then that over the samples. 1 if all have as many.
  double loss_weight(int64_t samples, int64_t global_samples) const;

 private:
  friend class Join;

  void gather_buffers(const OrderedDict<std::string, Tensor>& buffers);
  /// Compares the net with what it was, when backward reaches its outputs.
  void watch_outputs(const TensorList& outputs);
  void on_gradient(size_t index);
  /// Tells the ranks of a Join that this one takes part in the coming pass, or does not. Returns how many do.
  Array announce(bool takes_part);
  void finish();

  const std::shared_ptr<ProcessGroup> group_;
  const DistributedDataParallelOptions options_;
  std::vector<Tensor> parameters_;
  std::vector<unsigned> hooks_;  // of the parameters
  nn::Module& module_;
  std::shared_ptr<const WatchedNet> watched_;  // outputs of the net, which may outlive this object, refer to it
  bool checked_ = false;                       // in the backward pass that is under way
  unsigned forward_hook_ = 0;
  std::optional<Reducer> reducer_;
  struct Buffers {  // of one dtype
    Array flat;
    /// One buffer, under its dotted name.
    struct Part {
      std::string name;
      Tensor buffer;
      Array place;  // its part of `flat`
    };
    std::vector<Part> parts;
  };
  std::vector<Buffers> buffers_;
  bool synchronizes_ = true, joining_ = false;
};

/// For ranks that have different numbers of batches (torch.distributed.algorithms.Join):
///
///   dist::Join join(ddp);
///   for (auto& batch : *loader) { …backward(); optimizer.step(); }
///   join.finish([&] { optimizer.step(); });
///
/// A rank that has no more batches takes part in the others' steps with gradients of 0, and makes the same optimizer
/// steps, until all have come to finish(). Averages are still over all ranks. All ranks have a Join, or none.
class Join {
 public:
  explicit Join(DistributedDataParallel& ddp) : ddp_(ddp), previous_(std::exchange(ddp.joining_, true)) {}
  ~Join() { ddp_.joining_ = previous_; }
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// Calls `step` after each pass of the others.
  void finish(const std::function<void()>& step);

 private:
  DistributedDataParallel& ddp_;
  const bool previous_;
};

}  // namespace gradus::dist
