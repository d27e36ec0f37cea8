// Attention: short sequences by attention.cuh's kernels, whose blocks keep rows of weights in shared memory, the others
// by products, softmax and dropout.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/sequence/attention.cuh>

namespace gradus {
namespace {

using cuda_detail::Launch;
namespace kernels = cuda_detail::attention;

constexpr int64_t kLongest = 128, kMost = 1 << 20;  // sequence, and weights in all; more are worth cuBLAS's tiles

bool contiguous(const View& view) { return view.strides == contiguous_strides(view.shape); }

bool has_dense_rows(std::initializer_list<const StridedLayout*> views) {
  for (const StridedLayout* view : views)
    if (view->shape[3] > 1 && view->strides[3] != 1) return false;
  return true;
}

// Calls f.operator()<T, kHead>() for the smallest head that has room for these columns.
template <class F>
void visit_kernel(DType dtype, int64_t columns, const F& f) {
  visit_floating(dtype, [&]<class T>() {
    if (columns <= 32) f.template operator()<T, 32>();
    else if (columns <= 64) f.template operator()<T, 64>();
    else f.template operator()<T, 128>();
  });
}

// Bytes of shared memory of either kernel.
template <class T, int kHead>
size_t bytes_for(int64_t queries, int64_t keys, bool forward) {
  using Shared = kernels::Shared<compute_t<T>, kHead>;
  const size_t of_keys = Shared::bytes(static_cast<int>(keys), 1);
  return forward ? of_keys : std::max(of_keys, Shared::bytes(static_cast<int>(queries), 2));
}

// Whether the kernels serve heads of q's and v's sizes.
bool served(const View& q, const View& k, const View& v, std::initializer_list<const StridedLayout*> views) {
  const int64_t queries = q.shape[2], keys = k.shape[2], columns = std::max(q.shape[3], v.shape[3]);
  if (q.numel() == 0 || k.numel() == 0 || v.numel() == 0 || columns > 128 || !has_dense_rows(views)) return false;
  if (queries > kLongest || keys > kLongest || q.shape[0] * q.shape[1] * queries * keys > kMost) return false;
  int available = 0;
  GRADUS_CUDA_CHECK(cudaDeviceGetAttribute(&available, cudaDevAttrMaxSharedMemoryPerBlockOptin, q.device.index));
  bool fits = false;
  visit_kernel(q.dtype, columns, [&]<class T, int kHead>() {
    fits = bytes_for<T, kHead>(queries, keys, false) <= static_cast<size_t>(available);
  });
  return fits;
}

template <class T, class AnyView>
kernels::Rows<T> rows_of(const AnyView& view) {
  return {view.template as<std::remove_const_t<T>>(), view.strides[0], view.strides[1], view.strides[2],
          static_cast<int>(view.shape[3])};
}

kernels::Sizes sizes_of(const View& q, const View& k) {
  const auto size = [](int64_t n) { return static_cast<int>(n); };
  return {size(q.shape[0]), size(q.shape[1]), size(q.shape[2]), size(k.shape[2])};
}

kernels::Mask mask_of(const View& mask) {
  if (!mask) return {};
  return {mask.data, mask.dtype == DType::boolean, mask.strides[0], mask.strides[1], mask.strides[2], mask.strides[3]};
}

template <class T>
kernels::Rule<compute_t<T>> numbers_of(const AttentionRule& rule, bool drops) {
  using C = compute_t<T>;
  const double keep = 1 - rule.dropout;
  const C dropout_scale = static_cast<C>(static_cast<T>(static_cast<C>(1 / keep)));  // as dropout has it
  return {static_cast<C>(rule.scale), dropout_scale, rule.causal, drops, keep, rule.random};
}

uint32_t parts_of(const View& q, int64_t length) {
  return static_cast<uint32_t>(q.shape[0] * q.shape[1] * ((length + kernels::kRows - 1) / kernels::kRows));
}

}  // namespace

void CudaBackend::attention(const AttentionArgs& args) {
  const View &q = args.q, &k = args.k, &v = args.v;
  const MutableView &weights = args.weights, &kept = args.kept, &y = args.y;
  if (!contiguous(weights) || !contiguous(kept) || !served(q, k, v, {&q, &k, &v, &y})) return Backend::attention(args);
  EventScope event("attention", "cuda", "tiles", {&q, &k, &v}, 2 * weights.numel() * (q.shape[3] + v.shape[3]));
  const Launch launch(q.device);
  visit_kernel(q.dtype, std::max(q.shape[3], v.shape[3]), [&]<class T, int kHead>() {
    launch.with_shared(kernels::forward_kernel<T, kHead>, parts_of(q, q.shape[2]), kernels::kThreads,
                       bytes_for<T, kHead>(q.shape[2], k.shape[2], true), sizes_of(q, k),
                       numbers_of<T>(args.rule, kept.data), rows_of<const T>(q), rows_of<const T>(k),
                       rows_of<const T>(v), mask_of(args.mask), weights.as<T>(), kept.as<bool>(), rows_of<T>(y));
  });
}

void CudaBackend::attention_backward(const AttentionBackwardArgs& args) {
  const View &dy = args.dy, &q = args.q, &k = args.k, &v = args.v, &weights = args.weights, &kept = args.kept,
             &y = args.y;
  const MutableView &dq = args.dq, &dk = args.dk, &dv = args.dv;
  if (!contiguous(weights) || !contiguous(kept) || !served(q, k, v, {&dy, &q, &k, &v, &y, &dq, &dk, &dv}))
    return Backend::attention_backward(args);
  EventScope event("attention_backward", "cuda", "tiles", {&dy, &q, &k, &v},
                   2 * weights.numel() * (2 * q.shape[3] + 3 * v.shape[3]));
  const Launch launch(q.device);
  visit_kernel(q.dtype, std::max(q.shape[3], v.shape[3]), [&]<class T, int kHead>() {
    const kernels::Saved<T> saved{rows_of<const T>(dy), rows_of<const T>(y), rows_of<const T>(q), rows_of<const T>(k),
                                  rows_of<const T>(v),  weights.as<T>(),     kept.as<bool>()};
    launch.with_shared(kernels::backward_kernel<T, kHead>, parts_of(q, q.shape[2]) + parts_of(q, k.shape[2]),
                       kernels::kThreads, bytes_for<T, kHead>(q.shape[2], k.shape[2], false), sizes_of(q, k),
                       numbers_of<T>(args.rule, kept.data), saved, rows_of<T>(dq), rows_of<T>(dk), rows_of<T>(dv));
  });
}

}  // namespace gradus
