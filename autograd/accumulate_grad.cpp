#include <gradus/autograd/engine.h>

#include <mutex>

#include <gradus/autograd/mixed_precision/half_copy.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

// Guards AutogradMeta::accumulator. This is one plain mutex, because it is cheaper than an ObjectLock and every
// recorded operator locks it once for each of its leaves.
std::mutex accumulator_mutex;

// The storage that bind_grad set for a leaf; undefined after unbind_grad.
struct BoundGrad final : LeafFeature {
  Array storage;
};

// True if nothing but `tensor` refers to its storage.
bool sole_owner(const Tensor& tensor) { return tensor.use_count() == 1 && tensor.array().storage().use_count() == 1; }

// A copy of `gradient` with the leaf's strides.
Array copy_like(const Array& leaf, const Array& gradient) {
  Array copy = Array::empty_like(leaf);
  ops::copy_into(copy, gradient);
  return copy;
}

void add_to(const Array& sum, const Array& gradient) {
  ops::binary(BinaryOp::add, sum, ops::cast(gradient, sum.dtype()), &sum);
}

// Adds `gradient` to the leaf's gradient under the lock and returns true. If the sum must be a new tensor, because it
// has a history or because the user also holds the leaf's gradient, stores that gradient in `present` instead and
// returns false.
bool add_in_place(AutogradMeta& meta, const Array& leaf, Tensor& gradient, bool differentiable, Tensor* present) {
  const detail::ObjectLock lock(&meta);
  amp::detail::convert_half_gradient(meta);
  if (const Array* bound = bound_grad(meta)) {
    GRADUS_CHECK(!differentiable, AutogradError,
                 "gradients with create_graph cannot be written into the storage that bind_grad set");
    if (meta.grad.defined()) {
      add_to(*bound, gradient.array());
    } else {
      ops::copy_into(*bound, gradient.array());
      meta.grad = Tensor(*bound);
    }
  } else if (!meta.grad.defined() && differentiable) {
    meta.grad = std::move(gradient);
  } else if (!meta.grad.defined()) {
    const Array& numbers = gradient.array();
    const bool fits = numbers.strides() == leaf.strides() && numbers.is_dense();
    const bool ours = fits && sole_owner(gradient);
    if (ours && numbers.dtype() != leaf.dtype()) amp::detail::keep_half_gradient(meta, numbers);
    else meta.grad = Tensor(ours ? numbers : copy_like(leaf, numbers));
  } else if (!differentiable && !meta.grad.requires_grad() && sole_owner(meta.grad)) {
    add_to(meta.grad.array(), gradient.array());
  } else {
    *present = meta.grad;
    return false;
  }
  return true;
}

}  // namespace

AccumulateGrad::AccumulateGrad(Tensor leaf) : leaf_(std::move(leaf)) {
  set_name("AccumulateGrad");
  add_output(leaf_.array());
}

AccumulateGrad::~AccumulateGrad() {
  AutogradMeta& meta = *leaf_.impl()->meta;
  const std::lock_guard lock(accumulator_mutex);
  if (meta.accumulator == this) meta.accumulator = nullptr;
}

Ref<Node> accumulator_of(const Tensor& leaf) {
  AutogradMeta& meta = *leaf.impl()->meta;
  const std::lock_guard lock(accumulator_mutex);
  if (meta.accumulator)
    if (Ref<Node> alive = Ref<Node>::lock(meta.accumulator)) return alive;
  Ref<Node> fresh = make_ref<AccumulateGrad>(leaf);
  meta.accumulator = fresh.get();
  return fresh;
}

void forget_accumulator(AutogradMeta& meta) {
  const std::lock_guard lock(accumulator_mutex);
  meta.accumulator = nullptr;
}

bool AccumulateGrad::takes_half() const {
  const AutogradMeta& meta = *leaf_.impl()->meta;
  const detail::ObjectLock lock(&meta);
  return leaf_.dtype() == DType::f32 && !meta.hooks.any() && !meta.grad.defined() &&
         !amp::detail::has_half_gradient(meta);
}

const Array* bound_grad(const AutogradMeta& meta) {
  const BoundGrad* const bound = meta.features.find<BoundGrad>();
  return bound && bound->storage.defined() ? &bound->storage : nullptr;
}

void unbind_grad(const AutogradMeta& meta) {
  if (BoundGrad* const bound = meta.features.find<BoundGrad>()) bound->storage = Array();
}

void Tensor::bind_grad(const Array& storage) const {
  GRADUS_CHECK(defined(), ValueError, "the tensor is undefined");
  GRADUS_CHECK(is_leaf(), AutogradError, "bind_grad needs a leaf tensor");
  GRADUS_CHECK(storage.shape() == sizes() && storage.dtype() == dtype() && storage.device() == device(), ShapeError,
               "the storage for the gradient has shape ", storage.shape(), ", ", storage.dtype(), " on ",
               storage.device(), " but the tensor has ", sizes(), ", ", dtype(), " on ", device());
  AutogradMeta& meta = impl_->need_meta();
  const detail::ObjectLock lock(&meta);
  if (grad().defined()) {
    ops::copy_into(storage, meta.grad.array());
    meta.grad = Tensor(storage);
  }
  meta.features.need<BoundGrad>().storage = storage;
}

void AccumulateGrad::accumulate(Tensor gradient) const {
  accumulate_and_notify(leaf_, run_hooks(leaf_, std::move(gradient)));
}

Tensor run_hooks(const Tensor& leaf, Tensor gradient) {
  leaf.impl()->meta->hooks.for_each([&](const auto& hook) {
    // The gradient is still of a half type if another thread added the hook after takes_half() was called.
    if (gradient.dtype() != leaf.dtype()) gradient = gradient.to(leaf.dtype());
    Tensor replaced = hook.call(gradient);
    if (!replaced.defined()) return;
    GRADUS_CHECK(replaced.sizes() == leaf.sizes(), AutogradError, "a hook returned a gradient of shape ",
                 replaced.sizes(), " for a leaf of shape ", leaf.sizes());
    gradient = std::move(replaced);
  });
  return gradient;
}

void accumulate_and_notify(const Tensor& leaf, Tensor gradient) {
  accumulate_grad(leaf, std::move(gradient));
  leaf.impl()->meta->post_hooks.for_each([&](const auto& hook) { hook.call(leaf); });
}

void accumulate_grad(const Tensor& leaf, Tensor gradient) {
  AutogradMeta& meta = *leaf.impl()->meta;
  const bool differentiable = GradMode::is_enabled() && gradient.requires_grad();
  for (;;) {
    Tensor present;
    if (add_in_place(meta, leaf.array(), gradient, differentiable, &present)) return;
    Tensor sum = present + gradient;
    const detail::ObjectLock lock(&meta);
    if (!meta.grad.is_same(present)) continue;  // another thread replaced `present`
    std::swap(meta.grad, sum);                  // the old gradient is destroyed after the lock is released
    return;
  }
}

}  // namespace gradus
