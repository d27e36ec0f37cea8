// The gradients of weights and bias: the parts come from conv2d_weight_direct.cu, conv2d_weight_implicit.cu,
// conv2d_weight_thin.cu or conv2d_weight_tiled.cu, their sum is made here.
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/conv2d_thin.cuh>
#include <gradus/backends/cuda/tile_product.cuh>

namespace gradus::cuda_detail {
namespace {

// The threads of a block are kSumOutputs results times the lanes that share one result's splits.
constexpr uint32_t kSumOutputs = 8, kSumLanes = kThreads / kSumOutputs;

// dw (K, C / groups, R, S) and dbias (K) from the parts, a result (group, row, column) per row of threads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_splits_kernel(const compute_t<T>* partial, uint32_t splits, uint32_t results, Divisor columns, Divisor kernel,
                      Divisor kernel_width, Divisor channels, bool channels_innermost, uint32_t taps, T* dw,
                      Strides4 dw_strides, T* dbias, int64_t dbias_step) {
  using C = compute_t<T>;
  __shared__ C shared[kSumLanes][kSumOutputs];
  const uint32_t slot = threadIdx.x % kSumOutputs, lane = threadIdx.x / kSumOutputs;
  const uint32_t result = blockIdx.x * kSumOutputs + slot;
  C sum = 0;
  if (result < results) {
#pragma unroll 8
    for (uint32_t split = lane; split < splits; split += kSumLanes)
      sum += partial[static_cast<int64_t>(split) * results + result];
  }
  shared[lane][slot] = sum;
  for (uint32_t width = kSumLanes / 2; width > 0; width /= 2) {
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

}  // namespace

bool weight_gradient_takes_mask(const View& dy, const View& x, const StridedLayout& dw,
                                const Conv2dGeometry& geometry) {
  if (is_thin(x, dw, dy, geometry)) return true;
  const int64_t rows = dw.shape[0] / geometry.groups, kernel = dw.shape[2] * dw.shape[3], taps = dw.shape[1] * kernel;
  const ImplicitTile tile = implicit_weight_tile(rows);
  const int64_t columns = (taps + tile.columns - 1) / tile.columns * tile.columns;  // that its tiles compute
  const bool implicit =
      rows > kDirectRows && multiplier_for(dy.dtype, dy.device) && x.numel() > 0 && kernel <= 32 &&
      2 * taps >= columns && span_of(dy) < kShortSpan &&
      span_of(x) + geometry.padding[0] * x.strides[2] + geometry.padding[1] * x.strides[3] < kShortSpan;
  return !implicit;
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
  const auto multiplier = multiplier_for(dy.dtype, dy.device);
  const ImplicitTile tile = implicit_weight_tile(rows);
  const bool implicit = !mask && !weight_gradient_takes_mask(dy, x, dw, geometry);
  const bool aligned = reinterpret_cast<uintptr_t>(mask) % sizeof(Piece) == 0;
  const std::optional<ThinWalk> thin = aligned ? thin_walk(x, dw, dy, geometry) : std::nullopt;
  const bool few_columns = columns <= 2 * int64_t{kDirectColumns} && dy.dtype != DType::f64;
  const bool direct = !thin && (rows <= kDirectRows || (!implicit && few_columns));
  const char* implementation = thin ? "thin" : direct ? "direct" : implicit ? implicit_name(*multiplier) : "tiled";
  EventScope event("conv2d_backward_weight", "cuda", implementation, {&dy, &x}, 2 * positions * rows * groups * taps);
  // Enough splits to fill the device, each long enough to be worth its sum.
  int64_t blocks = 1, shortest = 1, waves = 2;
  uint32_t sharers = 1;
  if (direct) {
    const int64_t rows_of_tile = direct_weight_rows(g.rows);
    blocks = groups * ((columns + kDirectColumns - 1) / kDirectColumns) * ((rows + rows_of_tile - 1) / rows_of_tile);
    shortest = kDirectPositions, sharers = direct_weight_sharers(g.rows, g.columns),
    waves = rows <= kDirectRows ? 4 : 2;
  } else if (implicit) {
    blocks = groups * ((rows + tile.rows - 1) / tile.rows) * ((taps + tile.columns - 1) / tile.columns), shortest = 64;
  } else if (!thin) {
    visit_tile(rows, [&]<class Tile>() {
      blocks = groups * ((rows + Tile::kRows - 1) / Tile::kRows) * ((columns + Tile::kColumns - 1) / Tile::kColumns);
      shortest = 4 * Tile::kDepth;
    });
  }
  const int64_t wanted = waves * launch.multiprocessors() / blocks;
  const int64_t splits = thin ? thin_weight_parts(*thin, g.rows, g.columns, launch)
                              : std::clamp<int64_t>(std::min(wanted, positions / shortest), 1, 1024);
  const int64_t unit = direct ? kDirectPositions : 1;
  g.per_split = static_cast<uint32_t>(((positions + splits - 1) / splits + unit - 1) / unit * unit);

  const int64_t parts = splits * sharers;
  const Scratch partial(size_of(DType::f64) * static_cast<size_t>(parts * results), dy.device);
  const void* image = x.numel() > 0 ? x.data : dy.data;  // an empty image is never inside, but something is read
  const WeightCall call{
      g, static_cast<uint32_t>(groups), static_cast<uint32_t>(splits), dy.dtype, dy.data, mask, image, partial.data()};
  if (thin) thin_weight_gradient(*thin, call, launch);
  else if (direct) direct_weight_gradient(call, launch);
  else if (implicit) implicit_weight_gradient(call, *multiplier, launch);
  else tiled_weight_gradient(call, launch);
  visit_floating(dy.dtype, [&]<class T>() {
    launch(sum_splits_kernel<T>, static_cast<uint32_t>((results + kSumOutputs - 1) / kSumOutputs), kThreads,
           static_cast<const compute_t<T>*>(partial.as<compute_t<T>>()), static_cast<uint32_t>(parts),
           static_cast<uint32_t>(results), Divisor(columns), g.kernel, g.kernel_width, Divisor(g.channels), implicit,
           g.taps, dw.as<T>(), Strides4(dw.strides), dbias ? dbias->as<T>() : static_cast<T*>(nullptr),
           dbias ? dbias->strides[0] : 0);
  });
}

}  // namespace gradus::cuda_detail
