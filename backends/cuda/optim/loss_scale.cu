// Loss scaling over all gradients in few launches: g *= factor, and found_inf = 1 if any g is inf or NaN. The formula
// of the scale is in core/formulas/loss_scale.h.
// Layout: gradients that one running index addresses; the default body of Backend processes others.
// Grid: x = blocks for all gradients, 2,048 elements of one gradient each (device/multi_tensor.cuh).  Block: 256
// threads; a thread scales eight elements.  Deterministic: there are no sums.
#include <gradus/core/formulas/loss_scale.h>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/multi_tensor.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

template <class T>
using Table = TensorTable<T*, 128, 2048>;

// Several threads may find an inf or NaN; all of them store the same 1.
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

}  // namespace

void CudaBackend::unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) {
  {
    EventScope event("unscale", "cuda", "multi_tensor", {&found_inf});
    const Launch launch(found_inf.device);
    for_each_floating([&]<class T>() {
      static_assert(sizeof(Table<T>) + 2 * sizeof(void*) <= 4096);
      for_each_table<Table<T>>(
          gradients,
          [](Table<T>& table, const MutableView& gradient) {
            if (gradient.dtype == dtype_of<T> && flat(gradient) && gradient.numel() > 0)
              table.add(gradient.as<T>(), gradient.numel());
          },
          [&](const Table<T>& table) {
            launch(unscale_kernel<T>, table.blocks, kThreads, table, factor.as<double>(), found_inf.as<double>());
          });
    });
  }
  if (const auto rest = not_flat(gradients, flat); !rest.empty()) Backend::unscale(rest, factor, found_inf);
}

void CudaBackend::update_scale(const MutableView& block, const ScaleRule& rule) {
  EventScope event("update_scale", "cuda", "fused", {&block});
  const Launch launch(block.device);
  launch(update_kernel, 1, 1, block.as<double>(), block.strides[0], rule);
}

}  // namespace gradus
