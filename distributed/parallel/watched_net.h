// A wrapper that averages or shards the gradients of a net works on the parameters that the net had when it was made.
// This finds out whether the net still has these and no others, so that none is left out silently.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/layers/module.h>

namespace gradus::dist {

struct WatchedNetOptions {
  std::string wrapper;  ///< its name, for messages
  /// A parameter that required gradients may be frozen: the wrapper treats one without a gradient as it documents.
  bool may_freeze = false;
  /// The wrapper itself replaces the numbers of parameters, so their dtype and device tell nothing.
  bool may_move = false;
  bool watches_buffers = false;
};

/// A net as its wrapper saw it.
class WatchedNet {
 public:
  WatchedNet(nn::Module& module, WatchedNetOptions options);

  /// Compares the net with what it was. A parameter that has begun, or ceased, to require gradients is an
  /// AutogradError; one that was added, replaced, removed, or moved to another device or dtype is a ValueError, and so
  /// are buffers. The error names it, and ends the group: the other ranks may wait for this one.
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
  const std::shared_ptr<nn::Module> alive_;  // where the module is held by a shared_ptr
  const WatchedNetOptions options_;
  const Entries parameters_, buffers_;  // by name
  Entries in_order_;                    // of all modules, without names
};

}  // namespace gradus::dist
