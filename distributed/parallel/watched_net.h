// A wrapper that averages or shards the gradients of a net works on the parameters that the net had when the wrapper
// was made. A WatchedNet finds out whether the net still has exactly these parameters, so that none is silently left
// out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/layers/module/module.h>

namespace gradus::dist {

struct WatchedNetOptions {
  std::string wrapper;  ///< name of the wrapper, for messages
  /// Parameters may be frozen later. The wrapper treats them like parameters without a gradient.
  bool may_freeze = false;
  /// Dtype and device of parameters may change, because the wrapper itself replaces their data.
  bool may_move = false;
  bool watches_buffers = false;
};

/// A net in the state in which its wrapper saw it.
class WatchedNet {
 public:
  WatchedNet(nn::Module& module, WatchedNetOptions options);

  /// Compares the net with its recorded state. Throws an AutogradError if a parameter has begun or ceased to require
  /// gradients, and a ValueError if a parameter or buffer was added, replaced, removed, or moved to another device or
  /// dtype. The error names the tensor and ends the group, because the other ranks may wait for this one.
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
  const Entries parameters_, buffers_;  // by name
  Entries in_order_;                    // of all modules in a fixed order, without names
};

}  // namespace gradus::dist
