// The node at the end of every path through the graph: it adds a gradient to its leaf.
#pragma once

#include <gradus/autograd/node.h>

namespace gradus {

class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(Tensor leaf);
  ~AccumulateGrad() override;
  /// Runs the leaf's hooks, accumulate_grad and the leaf's post-accumulate hooks.
  void accumulate(Tensor gradient) const;
  bool is_accumulator() const override { return true; }
  const Tensor& leaf() const { return leaf_; }
  /// Returns true if the gradient may arrive in a half type.
  bool takes_half() const;

 private:
  Tensor leaf_;
};

/// Returns the accumulator of a leaf that requires gradients. Makes a new one if no graph holds the previous one.
Ref<Node> accumulator_of(const Tensor& leaf);
/// Makes the next accumulator_of() return a new node, which describes the leaf as it is now.
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
/// only handle to its array, that array is used without a copy. A gradient of a half type is converted only when grad()
/// is called. Several threads may call this for one leaf at the same time.
void accumulate_grad(const Tensor& leaf, Tensor gradient);

}  // namespace gradus
