#include <gradus/autograd/accumulate_grad.h>

#include <mutex>

#include <gradus/autograd/half_copy.h>
#include <gradus/core/binary_ops.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/reduce.h>

namespace gradus {
namespace {

// Guards AutogradMeta::accumulator: several threads may start graphs from the same parameters.
std::mutex accumulator_mutex;

// True if nobody but `tensor` holds these numbers.
bool sole_owner(const Tensor& tensor) { return tensor.use_count() == 1 && tensor.array().storage().use_count() == 1; }

// A copy of `gradient` with the leaf's strides.
Array copy_like(const Array& leaf, const Array& gradient) {
  Array copy = Array::empty_like(leaf);
  ops::copy_into(copy, gradient);
  return copy;
}

}  // namespace

AccumulateGrad::AccumulateGrad(Tensor leaf) : leaf_(std::move(leaf)) {
  set_name("AccumulateGrad");
  add_output(leaf_.array());
}

AccumulateGrad::~AccumulateGrad() {
  std::lock_guard lock(accumulator_mutex);
  AutogradMeta& meta = *leaf_.impl()->meta;
  if (meta.accumulator == this) meta.accumulator = nullptr;
}

Ref<Node> accumulator_of(const Tensor& leaf) {
  std::lock_guard lock(accumulator_mutex);
  AutogradMeta& meta = *leaf.impl()->meta;
  if (meta.accumulator)
    if (Ref<Node> alive = Ref<Node>::lock(meta.accumulator)) return alive;
  Ref<Node> fresh = make_ref<AccumulateGrad>(leaf);
  meta.accumulator = fresh.get();
  return fresh;
}

bool AccumulateGrad::takes_half() const {
  const AutogradMeta& meta = *leaf_.impl()->meta;
  return leaf_.dtype() == DType::f32 && meta.hooks.empty() && !meta.grad.defined() && !meta.has_half_grad;
}

Grads AccumulateGrad::backward(const Tensor& dy) {
  accumulate_and_notify(leaf_, run_hooks(leaf_, dy));
  return {};
}

Tensor run_hooks(const Tensor& leaf, Tensor gradient) {
  AutogradMeta& meta = *leaf.impl()->meta;
  for (size_t i = 0; i < meta.hooks.size(); ++i) {
    const auto hook = meta.hooks[i].call;  // a copy: a hook may remove itself
    Tensor replaced = hook(gradient);
    if (!replaced.defined()) continue;
    GRADUS_CHECK(replaced.sizes() == leaf.sizes(), AutogradError, "a hook returned a gradient of shape ",
                 replaced.sizes(), " for a leaf of shape ", leaf.sizes());
    gradient = std::move(replaced);
  }
  return gradient;
}

void accumulate_and_notify(const Tensor& leaf, Tensor gradient) {
  accumulate_grad(leaf, std::move(gradient));
  AutogradMeta& meta = *leaf.impl()->meta;
  for (size_t i = 0; i < meta.post_hooks.size(); ++i) {
    const auto hook = meta.post_hooks[i].call;
    hook(leaf);
  }
}

void accumulate_grad(const Tensor& leaf, Tensor gradient) {
  AutogradMeta& meta = leaf.impl()->need_meta();
  if (meta.has_half_grad) amp::detail::convert_half_gradient(meta);
  const bool differentiable = GradMode::is_enabled() && gradient.requires_grad();
  if (meta.bound_grad.defined()) {
    GRADUS_CHECK(!differentiable, AutogradError, "gradients with create_graph cannot go into a bound gradient slot");
    if (meta.grad.defined()) {
      ops::binary(BinaryOp::add, meta.bound_grad, gradient.array(), &meta.bound_grad);
    } else {
      ops::copy_into(meta.bound_grad, gradient.array());
      meta.grad = Tensor(meta.bound_grad);
    }
    return;
  }
  if (!meta.grad.defined()) {
    if (differentiable) {
      meta.grad = std::move(gradient);
      return;
    }
    const Array& numbers = gradient.array();
    const bool fits = numbers.strides() == leaf.strides() && numbers.is_dense();
    // The engine's buffer holds one reference and `gradient` the other: nobody else will see the tensor again.
    const bool ours = gradient.use_count() <= 2 && numbers.storage().use_count() == 1;
    if (fits && ours && numbers.dtype() != leaf.dtype()) amp::detail::keep_half_gradient(meta, numbers);
    else meta.grad = Tensor(fits && ours ? numbers : copy_like(leaf.array(), numbers));
    return;
  }
  if (differentiable || meta.grad.requires_grad() || !sole_owner(meta.grad)) {
    meta.grad = meta.grad + gradient;
    return;
  }
  const Array& sum = meta.grad.array();
  ops::binary(BinaryOp::add, sum, gradient.array(), &sum);
}

}  // namespace gradus
