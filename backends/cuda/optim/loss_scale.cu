// Loss scaling over all gradients in few launches. The scale's formula is in core/loss_scale.h.
#include <gradus/core/loss_scale.h>

#include <vector>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/multi_tensor.cuh>

namespace gradus {
namespace {

using cuda_detail::kThreads;
using cuda_detail::Launch;

template <class T>
using Table = cuda_detail::TensorTable<T*, 128, 2048>;

// Several threads may find an inf: all write the same 1.
template <class T>
__global__ void __launch_bounds__(kThreads) unscale_kernel(Table<T> table, const double* factor, double* found_inf) {
  using C = compute_t<T>;
  int64_t begin, end;
  T* data = table.part_of_block(begin, end);
  const C scale = factor ? static_cast<C>(*factor) : C(1);
  bool finite = true;
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const C number = static_cast<C>(data[i]);
    finite = finite && isfinite(number);
    if (factor) data[i] = static_cast<T>(number * scale);
  }
  if (!finite) *found_inf = 1;
}

__global__ void update_kernel(double* block, int64_t step, ScaleRule rule) { move_scale(block, step, rule); }

bool flat(const MutableView& view) { return StridedLoop<1>(view.shape, {&view.strides}).all_contiguous(); }

template <class T>
void unscale_all(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) {
  static_assert(sizeof(Table<T>) + 2 * sizeof(void*) <= 4096);
  Table<T> table;
  const Launch launch(found_inf.device);
  auto flush = [&] {
    if (table.blocks > 0)
      launch(unscale_kernel<T>, table.blocks, kThreads, table, factor.as<double>(), found_inf.as<double>());
    table = {};
  };
  for (const MutableView& gradient : gradients) {
    if (gradient.dtype != dtype_of<T> || !flat(gradient) || gradient.numel() == 0) continue;
    if (table.full()) flush();
    table.add(gradient.as<T>(), gradient.numel());
  }
  flush();
}

}  // namespace

void CudaBackend::unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) {
  {
    EventScope event("unscale", "cuda", "multi_tensor", {&found_inf});
    unscale_all<float>(gradients, factor, found_inf);
    unscale_all<double>(gradients, factor, found_inf);
    unscale_all<Half>(gradients, factor, found_inf);
    unscale_all<BFloat16>(gradients, factor, found_inf);
  }
  std::vector<MutableView> rest;  // with gaps in memory: the composite's default body handles them
  for (const MutableView& gradient : gradients)
    if (!flat(gradient)) rest.push_back(gradient);
  if (!rest.empty()) Backend::unscale(rest, factor, found_inf);
}

void CudaBackend::update_scale(const MutableView& block, const ScaleRule& rule) {
  EventScope event("update_scale", "cuda", "fused", {&block});
  const Launch launch(block.device);
  launch(update_kernel, 1, 1, block.as<double>(), block.strides[0], rule);
}

}  // namespace gradus
