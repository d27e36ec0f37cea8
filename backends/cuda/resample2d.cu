// y[n, c, p, q] = sum over k, l of rows.weight[k] columns.weight[l] x[n, c, rows.source[k], columns.source[l]], k and l
// being the taps of p and q: average pooling, interpolation, and the gradients of both (core/backend.h: Stencil). One
// thread for each element of y; the stencils travel as kernel parameters.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/parcel.cuh>

namespace gradus {
namespace {

using cuda_detail::DeviceTable;
using cuda_detail::Divisor;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Strides4;

struct Taps {
  const int32_t *begin, *source;
  const double* weight;
};

// A stencil in device memory.
class DeviceStencil {
 public:
  DeviceStencil(const Launch& launch, Device device, const Stencil& stencil)
      : begin_(launch, device, {stencil.begin.begin(), stencil.begin.end()}),
        source_(launch, device, {stencil.source.begin(), stencil.source.end()}),
        weight_(launch, device, {stencil.weight.begin(), stencil.weight.end()}) {}
  Taps taps() const { return {begin_.data(), source_.data(), weight_.data()}; }

 private:
  const DeviceTable<int32_t> begin_, source_;
  const DeviceTable<double> weight_;
};

struct Sizes {
  Divisor channels, height, width;  // of y
  bool channels_last;               // y's channels lie side by side
  uint32_t numel;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    resample_kernel(Sizes sizes, Taps rows, Taps columns, const T* x, Strides4 x_strides, T* y, Strides4 y_strides) {
  using C = compute_t<T>;
  for (uint32_t e = cuda_detail::thread_index(); e < sizes.numel; e += cuda_detail::thread_count()) {
    uint32_t n, c, p, q;  // neighbours in memory to neighbouring threads
    if (sizes.channels_last) {
      c = e, q = sizes.channels.split(c), p = sizes.width.split(q), n = sizes.height.split(p);
    } else {
      q = e, p = sizes.width.split(q), c = sizes.height.split(p), n = sizes.channels.split(c);
    }
    const T* plane = x + n * x_strides.n + c * x_strides.c;
    C sum = 0;
    for (int32_t k = rows.begin[p]; k < rows.begin[p + 1]; ++k) {
      const T* row = plane + rows.source[k] * x_strides.h;
      C row_sum = 0;
      for (int32_t l = columns.begin[q]; l < columns.begin[q + 1]; ++l)
        row_sum += static_cast<C>(columns.weight[l]) * static_cast<C>(row[columns.source[l] * x_strides.w]);
      sum += static_cast<C>(rows.weight[k]) * row_sum;
    }
    y[n * y_strides.n + c * y_strides.c + p * y_strides.h + q * y_strides.w] = static_cast<T>(sum);
  }
}

}  // namespace

void CudaBackend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  EventScope event("resample2d", "cuda", "direct", {&x, &y}, 2 * y.numel());
  if (y.numel() == 0) return;
  GRADUS_CHECK(y.numel() <= cuda_detail::kMaxChunk, ShapeError, "cuda resamples to at most ", cuda_detail::kMaxChunk,
               " elements at once, got ", y.numel(), "; split the batch");
  const Launch launch(y.device);
  const DeviceStencil down(launch, y.device, rows), across(launch, y.device, columns);
  const Sizes sizes{Divisor(y.shape[1]), Divisor(y.shape[2]), Divisor(y.shape[3]), y.shape[1] > 1 && y.strides[1] == 1,
                    static_cast<uint32_t>(y.numel())};
  visit_floating(y.dtype, [&]<class T>() {
    launch(resample_kernel<T>, launch.blocks(y.numel(), kThreads), kThreads, sizes, down.taps(), across.taps(),
           x.as<T>(), Strides4(x.strides), y.as<T>(), Strides4(y.strides));
  });
}

}  // namespace gradus
