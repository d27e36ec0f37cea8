// The end of every path through the graph: adds a gradient to its leaf.
#pragma once

#include <gradus/autograd/node.h>

namespace gradus {

class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(Tensor leaf);
  ~AccumulateGrad() override;
  /// Ends a backward pass: hooks, accumulate_grad, post-accumulate hooks.
  void accumulate(Tensor gradient) const;
  bool is_accumulator() const override { return true; }
  const Tensor& leaf() const { return leaf_; }
  /// May the gradient come in a half type?
  bool takes_half() const;

 private:
  Tensor leaf_;
};

/// The accumulator of a leaf that requires gradients, made when nobody holds one.
Ref<Node> accumulator_of(const Tensor& leaf);
/// Makes accumulator_of return a new one, which describes the leaf as it is now.
void forget_accumulator(AutogradMeta& meta);
/// `gradient` after the leaf's hooks have seen and perhaps replaced it.
Tensor run_hooks(const Tensor& leaf, Tensor gradient);
/// accumulate_grad, then the leaf's post-accumulate hooks.
void accumulate_and_notify(const Tensor& leaf, Tensor gradient);
/// Adds `gradient` to leaf.grad(): into its bound slot, into a gradient that nobody else holds, or into a new tensor.
/// Keeps the leaf's strides; takes the numbers over where the caller has moved the only handle to them. One of a half
/// type is converted when somebody asks for grad(). Several threads may add to one leaf at once.
void accumulate_grad(const Tensor& leaf, Tensor gradient);

}  // namespace gradus
