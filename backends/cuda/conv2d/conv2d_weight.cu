// The gradients of weights and bias: the parts come from conv2d_weight_direct.cu, conv2d_weight_narrow.cu,
// conv2d_weight_fma.cu, conv2d_weight_implicit.cu, conv2d_weight_sliding.cu, conv2d_weight_thin.cu or
// conv2d_weight_tiled.cu; their sum is made here.
#include <gradus/backends/cuda/conv2d/conv2d_exact.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/conv2d/conv2d_thin.cuh>
#include <gradus/backends/cuda/conv2d/conv2d_weight_sliding.cuh>
#include <gradus/backends/cuda/device/fma_tile.cuh>

namespace gradus::cuda_detail {
namespace {

// dw (K, C / groups, R, S) and dbias (K) from the parts, a result (group, row, column) per row of kLanes threads, which
// share its splits.
template <class T, uint32_t kLanes>
__global__ void __launch_bounds__(kThreads)
    sum_splits_kernel(const compute_t<T>* partial, uint32_t splits, uint32_t results, Divisor columns, Divisor kernel,
                      Divisor kernel_width, Divisor channels, bool channels_innermost, uint32_t taps, T* dw,
                      Strides4 dw_strides, T* dbias, int64_t dbias_step) {
  using C = compute_t<T>;
  constexpr uint32_t kOutputs = kThreads / kLanes, kBatch = 8;
  __shared__ C shared[kLanes][kOutputs];
  const uint32_t slot = threadIdx.x % kOutputs, lane = threadIdx.x / kOutputs;
  const uint32_t result = blockIdx.x * kOutputs + slot;
  C sum = 0;
  for (uint32_t first = lane; first < splits; first += kBatch * kLanes) {
    C parts[kBatch];  // all under way at once
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      const uint32_t split = first + i * kLanes;
      parts[i] = split < splits && result < results ? partial[static_cast<int64_t>(split) * results + result] : C(0);
    }
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) sum += parts[i];
  }
  shared[lane][slot] = sum;
  for (uint32_t width = kLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (lane < width) shared[lane][slot] += shared[lane + width][slot];
  }
  if (lane != 0 || result >= results) return;
  uint32_t s = result;
  const uint32_t k = columns.split(s);
  sum = shared[0][slot];
  if (s == taps) {
    dbias[k * dbias_step] = static_cast<T>(sum);
  } else {
    uint32_t c = s;
    if (channels_innermost) s = channels.split(c);
    else c = kernel.split(s);
    const uint32_t r = kernel_width.split(s);
    dw[k * dw_strides.n + c * dw_strides.c + r * dw_strides.h + s * dw_strides.w] = static_cast<T>(sum);
  }
}

// The same from parts whose columns go tap by tap, for few splits: a block turns kTurned channels of one row. Grid:
// rows of all groups, pieces of the channels.
constexpr uint32_t kTurned = 64, kTurningThreads = 192, kMostTurnedTaps = 128, kMostTurnedSplits = 16;
template <class T>
__global__ void __launch_bounds__(kTurningThreads)
    turn_splits_kernel(const float* partial, uint32_t splits, uint32_t results, uint32_t columns, uint32_t channels,
                       Divisor kernel, Divisor kernel_width, T* dw, Strides4 dw_strides, T* dbias, int64_t dbias_step) {
  extern __shared__ float sums[];  // (channels, taps)
  const uint32_t row = blockIdx.x, first = blockIdx.y * kTurned, taps = kernel.divisor;
  const uint32_t count = min(kTurned, channels - first);
  partial += static_cast<int64_t>(row) * columns;
  const auto sum_of = [&](uint32_t column) {
    float sum = 0;
#pragma unroll 4
    for (uint32_t split = 0; split < splits; ++split) sum += partial[static_cast<int64_t>(split) * results + column];
    return sum;
  };
  for (uint32_t i = threadIdx.x; i < kTurned * taps; i += kTurningThreads) {
    const uint32_t tap = i / kTurned, channel = i % kTurned;
    if (channel < count) sums[channel * taps + tap] = sum_of(tap * channels + first + channel);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count * taps; i += kTurningThreads) {
    uint32_t s = i;
    const uint32_t c = first + kernel.split(s), r = kernel_width.split(s);
    dw[row * dw_strides.n + c * dw_strides.c + r * dw_strides.h + s * dw_strides.w] = static_cast<T>(sums[i]);
  }
  if (dbias && first == 0 && threadIdx.x == 0) dbias[row * dbias_step] = static_cast<T>(sum_of(taps * channels));
}

/// Calls f.template operator()<kLanes>(): one thread sums few splits, many are shared; those of few results always, so
/// that they fill the device.
template <class F>
void visit_lanes(uint32_t splits, int64_t results, F&& f) {
  constexpr int64_t kFew = 4096;
  if (splits <= 64 && results > kFew) f.template operator()<1>();
  else if (splits <= 128 && results > kFew) f.template operator()<8>();
  else f.template operator()<32>();
}

// Are four neighbouring positions 16 aligned bytes of one image, everywhere?
bool can_vectorize(const View& dy) {
  return dy.strides[3] == 1 && dy.strides[2] == dy.shape[3] && dy.shape[2] * dy.shape[3] % 4 == 0 &&
         dy.strides[0] % 4 == 0 && dy.strides[1] % 4 == 0 && reinterpret_cast<uintptr_t>(dy.data) % 16 == 0;
}

enum class Method { direct, narrow, fma, implicit, sliding, thin, tiled };

// For all operands, masked or not.
Method plain_method(int64_t rows, int64_t taps, DType dtype) {
  return rows <= kDirectRows || (taps < 2 * kDirectColumns && dtype != DType::f64) ? Method::direct : Method::tiled;
}

Method method_for(const View& dy, const View& x, const StridedLayout& dw, const Conv2dGeometry& geometry) {
  const int64_t rows = dw.shape[0] / geometry.groups, kernel = dw.shape[2] * dw.shape[3], taps = dw.shape[1] * kernel;
  if (is_thin(x, dw, dy, geometry)) return Method::thin;
  if (is_sliding(dy, x, dw, geometry)) return Method::sliding;
  if (rows <= kDirectRows) return Method::direct;
  const auto mode = math_mode_for(dy.dtype, dy.device);
  const bool in_pieces = mode == MathMode::fma && compute_capability(dy.device.index) >= 80 && can_vectorize(dy);
  const bool is_short =
      span_of(dy) < kShortSpan &&
      span_of(x) + geometry.padding[0] * x.strides[2] + geometry.padding[1] * x.strides[3] < kShortSpan;
  if (in_pieces && is_short && taps < kNarrowColumns && taps > kNarrowColumns / 2) return Method::narrow;
  if (mode && is_short && x.numel() > 0) {
    if (in_pieces && dw.shape[1] % kFmaChannels == 0) return Method::fma;
    const ImplicitTile tile = implicit_weight_tile(rows);
    const int64_t columns = (taps + tile.columns - 1) / tile.columns * tile.columns;  // that its tiles compute
    if (kernel <= 32 && 2 * taps >= columns) return Method::implicit;
  }
  return plain_method(rows, taps, dy.dtype);
}
bool takes_mask(Method method) { return method != Method::fma && method != Method::implicit; }

}  // namespace

bool has_exact_weight_gradient(const View& dy, const View& x, const StridedLayout& dw, const Conv2dGeometry& geometry) {
  const Method method = method_for(dy, x, dw, geometry);
  const bool exact = math_mode_for(dy.dtype, dy.device) == MathMode::fma;
  return method == Method::fma || method == Method::narrow || method == Method::sliding ||
         (method == Method::implicit && exact && x.strides[1] == 1);
}

bool weight_gradient_takes_mask(const View& dy, const View& x, const StridedLayout& dw,
                                const Conv2dGeometry& geometry) {
  return takes_mask(method_for(dy, x, dw, geometry));
}

void conv2d_weight_gradient(const View& dy, const void* mask, const View& x, const MutableView& dw,
                            const MutableView* dbias, const Conv2dGeometry& geometry) {
  const int64_t groups = geometry.groups, rows = dw.shape[0] / groups;
  const int64_t taps = dw.shape[1] * dw.shape[2] * dw.shape[3], columns = taps + (dbias ? 1 : 0);
  const int64_t positions = dy.shape[0] * dy.shape[2] * dy.shape[3], results = groups * rows * columns;
  if (results == 0) return;
  check_countable(dy.numel(), "dy");
  check_countable(x.numel(), "x");
  check_countable(results, "dw");
  WeightGradient g{.rows = static_cast<uint32_t>(rows),
                   .taps = static_cast<uint32_t>(taps),
                   .columns = static_cast<uint32_t>(columns),
                   .positions = static_cast<uint32_t>(positions),
                   .channels = static_cast<uint32_t>(dw.shape[1]),
                   .in_height = static_cast<int>(x.shape[2]),
                   .in_width = static_cast<int>(x.shape[3]),
                   .kernel_height = static_cast<int>(dw.shape[2]),
                   .out_height = Divisor(dy.shape[2]),
                   .out_width = Divisor(dy.shape[3]),
                   .kernel = Divisor(dw.shape[2] * dw.shape[3]),
                   .kernel_width = Divisor(dw.shape[3]),
                   .dy = Strides4(dy.strides),
                   .x = Strides4(x.strides)};
  for (int i = 0; i < 2; ++i) {
    g.stride[i] = static_cast<int>(geometry.stride[i]), g.padding[i] = static_cast<int>(geometry.padding[i]);
    g.dilation[i] = static_cast<int>(geometry.dilation[i]);
  }
  const Launch launch(dy.device);
  Method method = method_for(dy, x, dw, geometry);
  const bool in_pieces =  // the mask, too, is to lie so
      method == Method::narrow || method == Method::sliding || method == Method::thin;
  if (mask && (!takes_mask(method) || (in_pieces && reinterpret_cast<uintptr_t>(mask) % sizeof(Vec16) != 0)))
    method = plain_method(rows, taps, dy.dtype);
  const auto thin = method == Method::thin ? thin_walk(x, dw, dy, geometry) : std::nullopt;
  const auto sliding = method == Method::sliding ? std::optional(sliding_walk(dy, x, dw, geometry)) : std::nullopt;
  const auto mode = math_mode_for(dy.dtype, dy.device);
  const char* const names[] = {"direct",  "narrow_fma", "fma",  mode ? implicit_name(*mode) : "",
                               "sliding", "thin",       "tiled"};
  EventScope event("conv2d_backward_weight", "cuda", names[static_cast<int>(method)], {&dy, &x},
                   2 * positions * rows * groups * taps);
  // Enough splits to fill the device, each long enough to be worth its sum.
  const auto in = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
  const auto filled = [&](int64_t blocks, int64_t waves, int64_t shortest) {
    const int64_t wanted = waves * launch.multiprocessors() / (blocks * groups);
    return std::clamp<int64_t>(std::min(wanted, positions / shortest), 1, 1024);
  };
  int64_t splits = 1, unit = 1;
  uint32_t sharers = 1;
  switch (method) {
    case Method::direct:
      splits = filled(in(columns, kDirectColumns) * in(rows, direct_weight_rows(g.rows)), rows <= kDirectRows ? 4 : 2,
                      kDirectPositions);
      unit = kDirectPositions, sharers = direct_weight_sharers(g.rows, g.columns);
      break;
    case Method::narrow: splits = narrow_weight_splits(g, groups, launch), unit = kNarrowPositions; break;
    case Method::fma: splits = fma_weight_splits(g, groups, launch), unit = kRowDepth<float>; break;
    case Method::implicit: {
      const ImplicitTile tile = implicit_weight_tile(rows);
      splits = filled(in(rows, tile.rows) * in(taps, tile.columns), 2, 64);
      break;
    }
    case Method::sliding: splits = sliding->parts; break;
    case Method::thin: splits = thin_weight_parts(*thin, g.rows, g.columns, launch); break;
    case Method::tiled:
      visit_tile(rows, [&]<class Tile>() {
        splits = filled(in(rows, Tile::kRows) * in(columns, Tile::kColumns), 2, 4 * Tile::kDepth);
      });
  }
  g.per_split = static_cast<uint32_t>(in(in(positions, splits), unit) * unit);

  const int64_t parts = splits * sharers;
  const Scratch partial(
      size_of(dy.dtype == DType::f64 ? DType::f64 : DType::f32) * static_cast<size_t>(parts * results), dy.device);
  const void* image = x.numel() > 0 ? x.data : dy.data;  // an empty image is never inside, but something is read
  const WeightCall call{
      g, static_cast<uint32_t>(groups), static_cast<uint32_t>(splits), dy.dtype, dy.data, mask, image, partial.data()};
  switch (method) {
    case Method::direct: direct_weight_gradient(call, launch); break;
    case Method::narrow: narrow_weight_gradient(call, launch); break;
    case Method::fma: fma_weight_gradient(call, launch); break;
    case Method::implicit: implicit_weight_gradient(call, *mode, launch); break;
    case Method::sliding: sliding_weight_gradient(*sliding, call, launch); break;
    case Method::thin: thin_weight_gradient(*thin, call, launch); break;
    case Method::tiled: tiled_weight_gradient(call, launch); break;
  }
  const bool channels_innermost = method == Method::fma || method == Method::implicit;
  visit_floating(dy.dtype, [&]<class T>() {
    T* const dbias_data = dbias ? dbias->as<T>() : nullptr;
    const int64_t dbias_step = dbias ? dbias->strides[0] : 0;
    if (channels_innermost && parts <= kMostTurnedSplits && g.kernel.divisor <= kMostTurnedTaps)
      return launch.with_shared(turn_splits_kernel<T>, dim3(groups * rows, (g.channels + kTurned - 1) / kTurned),
                                kTurningThreads, sizeof(float) * kTurned * g.kernel.divisor,
                                static_cast<const float*>(partial.as<float>()), static_cast<uint32_t>(parts),
                                static_cast<uint32_t>(results), g.columns, g.channels, g.kernel, g.kernel_width,
                                dw.as<T>(), Strides4(dw.strides), dbias_data, dbias_step);
    visit_lanes(static_cast<uint32_t>(parts), results, [&]<uint32_t kLanes>() {
      constexpr uint32_t kOutputs = kThreads / kLanes;
      launch(sum_splits_kernel<T, kLanes>, static_cast<uint32_t>((results + kOutputs - 1) / kOutputs), kThreads,
             static_cast<const compute_t<T>*>(partial.as<compute_t<T>>()), static_cast<uint32_t>(parts),
             static_cast<uint32_t>(results), Divisor(columns), g.kernel, g.kernel_width, Divisor(g.channels),
             channels_innermost, g.taps, dw.as<T>(), Strides4(dw.strides), dbias_data, dbias_step);
    });
  });
}

}  // namespace gradus::cuda_detail
