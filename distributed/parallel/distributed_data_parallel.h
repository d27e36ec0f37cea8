// Data-parallel training over the ranks of a process group (torch.nn.parallel.DistributedDataParallel). Each rank has
// the whole net and a share of every batch. Gradients are averaged during backward(), so that all ranks take the same
// step.
//
//   auto group = dist::init_process_group();
//   dist::DistributedDataParallel ddp(net, group);
//   …
//   loss_function(net(images), labels).backward();   // the gradients are averages over the ranks
//   optimizer.step();
//
// The net is used as before. Nothing is wrapped around it, so state_dict() and printing show its own names.
#pragma once

#include <gradus/core/options.h>
#include <gradus/distributed/parallel/reducer.h>
#include <gradus/distributed/parallel/wrapped_net.h>

namespace gradus::dist {

struct DistributedDataParallelOptions {
  /// Size in MiB of the buckets in which gradients are sent. The first bucket is smaller, so that sending begins early.
  GRADUS_ARG(double, bucket_cap_mb) = 25;
  GRADUS_ARG(double, first_bucket_mb) = 1;
  /// Whether a parameter without a gradient in a backward pass counts as having the gradient 0. Otherwise the pass
  /// throws an AutogradError that names the parameter, and ends the group because the other ranks wait for the
  /// gradient.
  GRADUS_ARG(bool, find_unused_parameters) = false;
  /// Whether buffers (running statistics) get the values of rank 0 at the end of every backward pass.
  GRADUS_ARG(bool, broadcast_buffers) = true;
  /// Sum in the order of the ranks, so that every transport gives the same bits. This is slower for large buckets.
  GRADUS_ARG(bool, strict) = false;
  /// The type in which gradients are sent, kHalf or kBFloat16, which halves the bytes. Each gradient is then rounded to
  /// 11 or 8 bits on every rank, and the average is rounded once more.
  GRADUS_ARG(std::optional<DType>, gradient_compression) = std::nullopt;
};

class DistributedDataParallel : NoCopy {
 public:
  /// All ranks must call this with nets that have the same parameters. Parameters and buffers get the values of rank 0.
  /// The net must already be on its device and in its dtype. Gradients of frozen parameters are not averaged. If the
  /// nets of two ranks differ (check_same_on_all_ranks), all ranks get a ValueError.
  ///
  /// The net must not change afterwards. The next backward pass throws an AutogradError if a frozen parameter requires
  /// gradients by then, and a ValueError that names the parameter if one was added, replaced, removed or moved. With
  /// broadcast_buffers this holds for buffers too. Make another DistributedDataParallel for a changed net. A net that
  /// is not owned by a shared_ptr must outlive this object.
  DistributedDataParallel(nn::Module& module, GroupPtr group, DistributedDataParallelOptions options = {});
  template <class M>
  DistributedDataParallel(const nn::ModuleHolder<M>& module, GroupPtr group,
                          DistributedDataParallelOptions options = {})
      : DistributedDataParallel(*module, std::move(group), std::move(options)) {}
  /// Ends the averaging of gradients. The net keeps its weights.
  ~DistributedDataParallel();

  /// The group over which gradients are averaged.
  const GroupPtr& group() const { return group_; }

  /// While this object exists, backward() adds up gradients on each rank separately. The first backward()
  /// after its end averages the sums.
  struct NoSync : ScopedValue<bool> {
    explicit NoSync(DistributedDataParallel& ddp) : ScopedValue(ddp.synchronizes_, false) {}
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// The factor by which a rank with `samples` samples multiplies its mean loss in a step in which all ranks together
  /// have `global_samples`. The average over the ranks is then the mean over all samples. The factor is 1 if all ranks
  /// have the same number of samples.
  double loss_weight(int64_t samples, int64_t global_samples) const;

 private:
  friend class Join;

  void gather_buffers(const OrderedDict<std::string, Tensor>& buffers);
  /// Adds hooks to the outputs that compare the net with its recorded state when backward reaches them.
  void watch_outputs(const TensorList& outputs);
  void on_gradient(size_t index);
  /// With a Join: announces whether this rank has a batch for the coming pass. Returns the number of ranks that have
  /// one.
  Array announce(bool takes_part);
  void finish();

  const GroupPtr group_;
  const DistributedDataParallelOptions options_;
  TensorList parameters_;
  std::vector<unsigned> hooks_;  // of the parameters
  nn::Module& module_;
  std::shared_ptr<const WatchedNet> watched_;  // hooks of outputs, which may outlive it, hold a weak_ptr to it
  bool checked_ = false;                       // true if the net was checked in the current backward pass
  unsigned forward_hook_ = 0;
  std::optional<Reducer> reducer_;
  /// A buffer with its dotted name.
  struct Buffer {
    std::string name;
    Tensor tensor;
    Array place;  // its part of the array of all buffers of its dtype
  };
  std::vector<Buffer> buffers_;
  std::vector<Array> joined_buffers_;  // an array for each dtype
  bool synchronizes_ = true, joining_ = false;
};

/// For ranks that have different numbers of batches (torch.distributed.algorithms.Join):
///
///   dist::Join join(ddp);
///   for (auto& batch : *loader) { …backward(); optimizer.step(); }
///   join.finish([&] { optimizer.step(); });
///
/// A rank that has no more batches calls finish(). There it takes part in the steps of the other ranks with gradients
/// of 0, and makes the same optimizer steps, until all ranks have called finish(). Averages are still taken over all
/// ranks. Either all ranks use a Join or none does.
class Join {
 public:
  explicit Join(DistributedDataParallel& ddp) : ddp_(ddp), joining_(ddp.joining_, true) {}

  /// Takes part in the passes of the other ranks and calls `step` after each.
  void finish(const std::function<void()>& step);

 private:
  DistributedDataParallel& ddp_;
  const ScopedValue<bool> joining_;
};

}  // namespace gradus::dist
