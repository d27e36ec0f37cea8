// What wrappers of a net (DistributedDataParallel, FullyShardedDataParallel, ZeroRedundancyOptimizer) have in common:
// the net is the same on all ranks when they are made, must not change later, and all ranks end a backward pass
// together.
#pragma once

#include <gradus/distributed/comm/process_group.h>
#include <gradus/layers/module/module.h>

namespace gradus::dist {

/// The parameters that require gradients.
OrderedDict<std::string, Tensor> trained_parameters(const nn::Module& module);
/// Copies the x of rank 0 to all ranks, whatever its strides.
void broadcast_from_first(ProcessGroup& group, const Array& x);
/// Throws a ValueError on all ranks if the nets of two ranks differ in the number of parameters or buffers, or if a
/// parameter or buffer differs in name, shape, strides, dtype or in being frozen. The message describes both sides.
/// Also throws a ValueError if the net has no parameters; it then ends the group, because the other ranks would wait.
void check_same_on_all_ranks(ProcessGroup& group, const nn::Module& module);

struct WatchedNetOptions {
  std::string wrapper;  ///< name of the wrapper, for messages
  /// Parameters may be frozen later. The wrapper treats them like parameters without a gradient.
  bool may_freeze = false;
  /// Parameters may change their dtype and device, because the wrapper itself replaces their data.
  bool may_move = false;
  bool watches_buffers = false;
};

/// Records the parameters and buffers of a net when its wrapper is made. A wrapper that averages or shards gradients
/// works on these parameters. A WatchedNet finds out whether the net still has exactly these, because the wrapper would
/// ignore a new parameter.
class WatchedNet {
 public:
  WatchedNet(nn::Module& module, WatchedNetOptions options);

  /// Compares the net with its recorded state. Throws an AutogradError if a parameter has begun or (unless may_freeze)
  /// ceased to require gradients, and a ValueError if a parameter or buffer was added, replaced, removed or (unless
  /// may_move) moved to another device or dtype. The error names the tensor. It ends the group, because the other ranks
  /// may wait for this one.
  void check(ProcessGroup& group) const;

 private:
  struct Entry {
    std::string name;
    Tensor tensor;
    bool requires_grad;
    DType dtype;
    Device device;
    Shape shape;
  };
  using Entries = std::vector<Entry>;

  static Entries entries_of(const OrderedDict<std::string, Tensor>& tensors);
  bool is_unchanged() const;
  bool is_same(const Entry& before, const Tensor& now) const;
  void compare(const Entries& before, const OrderedDict<std::string, Tensor>& now, const char* kind) const;

  nn::Module& module_;
  const std::shared_ptr<nn::Module> alive_;  // keeps the module alive if a shared_ptr owns it
  const WatchedNetOptions options_;
  const Entries parameters_, buffers_;  // with their names, which check() needs for its error messages
  Entries in_order_;                    // the same without names, for the fast comparison in is_unchanged()
};

/// Calls `finish` at the end of the current backward pass of this thread. If an exception ends the pass earlier, or
/// finish() throws, it calls `cancel` instead and ends the group, because the other ranks would wait. It does not end
/// the group if the pass is being captured on `device`, because a capture runs no collective.
void at_end_of_backward(const GroupPtr& group, Device device, std::function<void()> finish,
                        std::function<void()> cancel);

}  // namespace gradus::dist
