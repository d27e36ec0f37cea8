// The engine walks the graph from outputs to leaves. It runs each node once all gradients of the node's outputs have
// arrived.
#pragma once

#include <gradus/autograd/node.h>

namespace gradus {
namespace autograd {

/// Adds the gradients of `tensors` with respect to the graph's leaves (or only to `inputs`) to their grad().
/// `grad_tensors[i]` may be undefined for a single-element tensor, which means 1. (torch::autograd::backward)
void backward(const TensorList& tensors, const TensorList& grad_tensors = {}, std::optional<bool> retain_graph = {},
              bool create_graph = false, const TensorList& inputs = {}, Loc where = Loc::current());

/// Returns the gradients of `outputs` with respect to `inputs`, without changing grad(). An input on which the outputs
/// do not depend is an AutogradError; with `allow_unused`, its gradient is undefined instead. (torch::autograd::grad)
TensorList grad(const TensorList& outputs, const TensorList& inputs, const TensorList& grad_outputs = {},
                std::optional<bool> retain_graph = {}, bool create_graph = false, bool allow_unused = false,
                Loc where = Loc::current());

/// Prevents backward passes of other threads from changing the gradient of a leaf until the end of the scope, so that a
/// hook may read or write leaf.grad(). Hold it under NoGradGuard, only while accessing the gradient, and for one leaf
/// at a time: leaves share a few mutexes, so two threads that each lock two leaves could deadlock.
class GradLock : gradus::detail::ObjectLock {
 public:
  explicit GradLock(const Tensor& leaf) : ObjectLock(leaf.impl()->meta.get()) {}
};

/// Calls `done` at the end of the backward pass in progress on this thread. Throws an AutogradError outside of a
/// backward pass.
void queue_callback(std::function<void()> done);

}  // namespace autograd

/// While anomaly detection is enabled, every recorded operator and every backward of this thread is checked: an
/// AutogradError names the operator and layer that produced the first NaN or infinity, or the input, gradient or saved
/// tensor that already contained it (torch::autograd::AnomalyMode). Every tensor that is read or made is scanned, which
/// costs time.
class AnomalyGuard : ScopedValue<bool> {
 public:
  explicit AnomalyGuard(bool enabled = true) : ScopedValue(enabled_, enabled) {}
  static bool is_enabled() { return enabled_; }

 private:
  static inline thread_local constinit bool enabled_ = false;
};

/// Interface of a node whose backward also accepts the gradient of its only output as two summands, which saves adding
/// them first. When the last gradient of the output arrives, the engine passes the sum of the earlier ones and this
/// last one as the two summands.
class BackwardOfSum {
 public:
  /// True if the kernel of the current backend adds the two summands itself.
  virtual bool accepts_sum() const = 0;
  /// Computes the gradients of the inputs from dy + addend.
  virtual Grads backward_of_sum(const Tensor& dy, const Tensor& addend) = 0;

 protected:
  ~BackwardOfSum() = default;
};

/// The node at the end of every path through the graph: it adds a gradient to its leaf.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(Tensor leaf);
  ~AccumulateGrad() override;
  /// Runs the leaf's hooks, accumulate_grad and the leaf's post-accumulate hooks.
  void accumulate(Tensor gradient) const;
  bool is_accumulator() const override { return true; }
  const Tensor& leaf() const { return leaf_; }
  /// True if the engine may deliver a gradient of a half type without converting it to float32: the leaf is float32 and
  /// has neither a gradient nor hooks yet.
  bool takes_half() const;

 private:
  Tensor leaf_;
};

/// Returns the accumulator of a leaf that requires gradients. Makes a new one if no graph holds the previous one.
Ref<Node> accumulator_of(const Tensor& leaf);
/// Makes the next accumulator_of() return a new node. Called when a leaf gets other data, whose shape and type the old
/// node does not describe.
void forget_accumulator(AutogradMeta& meta);
/// Runs the leaf's hooks, each of which may replace the gradient, and returns the result.
Tensor run_hooks(const Tensor& leaf, Tensor gradient);
/// The storage into which the leaf's gradients accumulate (Tensor::bind_grad), null if there is none.
const Array* bound_grad(const AutogradMeta& meta);
/// Undoes bind_grad.
void unbind_grad(const AutogradMeta& meta);
/// Calls accumulate_grad, then the leaf's post-accumulate hooks.
void accumulate_and_notify(const Tensor& leaf, Tensor gradient);
/// Adds `gradient` to leaf.grad(). Writes into the storage bound with bind_grad if there is one, into the old gradient
/// if nothing else holds it, and into a new tensor otherwise. The result keeps the leaf's strides. If `gradient` is the
/// only handle to its array, that array is used without a copy. A gradient of a half type may be stored unconverted;
/// grad() then converts it to float32. Several threads may call this for one leaf at the same time.
void accumulate_grad(const Tensor& leaf, Tensor gradient);

namespace detail {
/// Called under AnomalyGuard before the forward of a recorded node: remembers which input already contains a NaN or
/// infinity.
void note_inputs(const Node& node, TensorPointers inputs);
/// Called under AnomalyGuard after forward: if `result` contains a NaN or infinity, throws an AutogradError that names
/// the operator and its layer, or the input that note_inputs found.
void check_result(const Node& node, const Array& result);
/// Describes the first incoming gradient of `node` (in `dys`, or the second summand `addend` of a BackwardOfSum) or the
/// first tensor saved by `node` that already contains a NaN or infinity; "" if none does.
std::string anomaly_before_backward(const Node& node, const Grads& dys, const Tensor& addend);
/// If `gradient` contains a NaN or infinity, throws an AutogradError that names the node, or describes what
/// anomaly_before_backward found (`before`).
void check_gradient(const Node& node, const Array& gradient, const std::string& before);
/// Returns true if the backward that is running may overwrite `dy`: the engine passed `dy` to it, and nothing else
/// refers to the memory of `dy`.
bool is_handed_over(const Tensor& dy);
}  // namespace detail

}  // namespace gradus
