// The engine: walks the graph from outputs to leaves, each node once all gradients of its outputs have arrived.
#pragma once

#include <gradus/autograd/node.h>
#include <gradus/autograd/object_lock.h>

namespace gradus {
namespace autograd {

/// Sum of gradients of `tensors` with respect to the graph's leaves (or to `inputs` alone), accumulated into grad().
/// `grad_tensors[i]` may be undefined for a single-element tensor (it counts as 1). torch::autograd::backward.
void backward(const TensorList& tensors, const TensorList& grad_tensors = {},
              std::optional<bool> retain_graph = std::nullopt, bool create_graph = false, const TensorList& inputs = {},
              Loc where = Loc::current());

/// The gradients of `outputs` with respect to `inputs`, without touching grad(). An input that the outputs do not
/// depend on is an AutogradError, or undefined with `allow_unused`. torch::autograd::grad.
TensorList grad(const TensorList& outputs, const TensorList& inputs, const TensorList& grad_outputs = {},
                std::optional<bool> retain_graph = std::nullopt, bool create_graph = false, bool allow_unused = false,
                Loc where = Loc::current());

/// Keeps other threads' backward passes from the gradient of a leaf until the end of the scope: a hook may then read or
/// write leaf.grad() beside them. Hold it under NoGradGuard, for one leaf at a time, and for the reading alone: other
/// leaves may share the lock.
class GradLock {
 public:
  explicit GradLock(const Tensor& leaf) : lock_(leaf.impl()->meta.get()) {}

 private:
  const gradus::detail::ObjectLock lock_;
};

/// Runs `done` at the end of the backward pass in progress on this thread. Outside one it is an AutogradError.
void queue_callback(std::function<void()> done);

}  // namespace autograd

/// While on, every recorded operator and every backward is checked: an AutogradError names the operator and layer that
/// made the first NaN or inf, or the input, gradient or saved tensor that already had one
/// (torch::autograd::AnomalyMode). Belongs to a thread; costs a pass over every tensor that is read or made.
class AnomalyGuard {
 public:
  explicit AnomalyGuard(bool enabled = true) : previous_(enabled_) { enabled_ = enabled; }
  ~AnomalyGuard() { enabled_ = previous_; }
  AnomalyGuard(const AnomalyGuard&) = delete;
  AnomalyGuard& operator=(const AnomalyGuard&) = delete;
  static bool is_enabled() { return enabled_; }

 private:
  bool previous_;
  static inline thread_local constinit bool enabled_ = false;
};

namespace detail {
/// For AnomalyGuard, before the forward of a recorded node: remembers which input already holds a NaN or inf.
void note_inputs(const Node& node, const Tensor* const* inputs, size_t count);
/// After it: an AutogradError that names the operator and its layer, or the input that note_inputs found, if `result`
/// holds a NaN or inf.
void check_result(const Node& node, const Array& result);
/// Says which gradient that reaches `node`, or which tensor that it saved, already holds a NaN or inf; "" for none.
std::string anomaly_before_backward(const Node& node, const Grads& dys, const Tensor& addend);
/// An AutogradError that names the node, or what was found `before`, if `gradient` holds a NaN or inf.
void check_gradient(const Node& node, const Array& gradient, const std::string& before);
/// For a node's backward: true if the engine gave it `dy` and nobody else holds those numbers, so that it may overwrite
/// them.
bool is_handed_over(const Tensor& dy);
}  // namespace detail

}  // namespace gradus
