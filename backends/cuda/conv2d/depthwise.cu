// Depthwise convolutions: fprop, dgrad and wgrad of float32 and half types. M filters read each channel; usually M
// is 1. The multiply-adds run on the FMA units.
//   y[n,cM+m,p,q]   = sum over r,s of w[cM+m,r,s] x[n,c,p stride - padding + r dilation, q …]
//   dx[n,c,h,w]     = sum over m,r,s of w[cM+m,r,s] dy[n,cM+m,p,q]  with p stride = h + padding - r dilation, …
//   dw[cM+m,r,s]    = sum over n,p,q of dy[n,cM+m,p,q] x[n,c,p stride - padding + r dilation, q …]
// Memory limits these kernels: a 3x3 filter does nine multiply-adds per pixel. So each operand should be loaded once.
//
// NHWC.  Neighbouring threads have neighbouring vectors of channels. A thread moves along the taps' row: a vector that
// it loads serves all taps of four neighbouring pixels. For other rows of taps it loads from the first-level cache.
// Grid: x = slabs of up to 64 channels x tiles of rows and of strips of four pixels.  wgrad: slabs x rows of taps (if a
// block cannot have all) x parts of the rows of all images.  Block: up to 256 threads: vectors x strips x rows; wgrad:
// vectors x rows of taps x strips.
// NCHW.  A block copies one or several planes, or a band of rows, unchanged into shared memory. A thread computes 4 x 4
// pixels, for which it reads the rows once; outside of the image and, for dgrad with a stride, between the pixels it
// reads a zero. wgrad copies planes of x and dy while it multiplies the ones before.
// Grid: x = bands x tiles of planes; wgrad: tiles of filters x parts of the images' bands.  Block: up to 256 threads.
// A multiprocessor has registers for at least two blocks.
//
// wgrad: a thread keeps its sums in registers. A block adds the sums of its threads in order, and a kernel in conv2d.cu
// adds those of the blocks. Results are deterministic: one thread computes a result, or a part of it that is added in a
// fixed order.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::cuda_detail {
namespace {

constexpr int kPixels = kDepthwisePixels;

template <int kVec, class T>
__device__ void load_floats(const T* from, float (&to)[kVec]) {
  const Vec<T, kVec> vec = load<kVec>(from);
#pragma unroll
  for (int e = 0; e < kVec; ++e) to[e] = static_cast<float>(vec.value[e]);
}

template <int N>
__device__ void add_products(float (&sums)[N], const float (&a)[N], const float (&b)[N]) {
#pragma unroll
  for (int e = 0; e < N; ++e) sums[e] += a[e] * b[e];
}

/// Adds bias, applies ReLU and rounds.
template <class T>
__device__ T finished(float sum, const T* bias, int64_t bias_at, bool relu) {
  if (bias) sum += static_cast<float>(bias[bias_at]);
  if (relu && sum < 0) sum = 0;
  return static_cast<T>(sum);
}

// ---- NHWC ----

/// Returns the position in `in` that pixel `at` of `out` reads with a tap along an axis, or -1 if it reads nothing.
template <bool kBackward>
__device__ int input_of(const DepthwiseTiling::Axis& axis, int at, int tap) {
  const int stride = static_cast<int>(axis.stride.divisor);
  const int offset = tap * axis.dilation - axis.padding;
  int from = kBackward ? at - offset : at * stride + offset;
  if (kBackward && from >= 0) {
    uint32_t rest = u32(from);
    from = static_cast<int>(axis.stride.split(rest));
    if (rest != 0) return -1;
  }
  return within(from, axis.in) ? from : -1;
}

/// Calls f(j, s, values) for the pixels x0 + j of a strip and the taps s, where `values` is the vector that they read
/// in the row at `from`. If kSide is not 0, each vector of the row is loaded once for all taps. Otherwise s runs from
/// `first` to `last` - 1.
template <int kVec, bool kBackward, int kSide, int kStride, class T, class F>
__device__ void for_strip(const DepthwiseTiling& d, const T* from, int x0, int first, int last, const F& f) {
  if constexpr (kSide > 0) {
    // Pixel x0 + j and tap s read `base` + i, where j stride + s = i or, for dgrad, j - s = i stride.
    const int base = kBackward ? (x0 + d.w.padding) / kStride : x0 * kStride - d.w.padding;
    constexpr int kLow = kBackward ? -((kSide - 1) / kStride) : 0;
    constexpr int kHigh = kBackward ? (kPixels - 1) / kStride : (kPixels - 1) * kStride + kSide - 1;
#pragma unroll
    for (int i = kLow; i <= kHigh; ++i) {
      float values[kVec] = {};
      if (within(base + i, d.w.in)) load_floats(from + (base + i) * d.in_channels, values);
#pragma unroll
      for (int j = 0; j < kPixels; ++j)
#pragma unroll
        for (int s = 0; s < kSide; ++s)
          if (kBackward ? j - s == i * kStride : j * kStride + s == i) f(j, s, values);
    }
  } else {
    for (int s = first; s < last; ++s)
#pragma unroll
      for (int j = 0; j < kPixels; ++j) {
        const int column = input_of<kBackward>(d.w, x0 + j, s);
        if (column < 0) continue;
        float values[kVec];
        load_floats(from + column * d.in_channels, values);
        f(j, s, values);
      }
  }
}

/// fprop and dgrad. If kSide is not 0, a row of the filter has kSide taps without a dilation; 0 stands for any filter.
template <class T, int kVec, bool kBackward, int kSide, int kStride>
__global__ void __launch_bounds__(kThreads, 2)
    depthwise_nhwc_kernel(DepthwiseTiling d, const T* in, const T* weight, const T* bias, int64_t bias_step, bool relu,
                          T* out) {
  extern __shared__ float4 shared[];
  float* const weights = reinterpret_cast<float*>(shared);  // (sums, taps, channels of the slab)
  uint32_t slab = blockIdx.x, vector = threadIdx.x;
  uint32_t across = d.slabs.split(slab), strip = d.vectors.split(vector);
  const uint32_t down = d.across.split(across), place = d.strips.split(strip);
  const uint32_t width = d.vectors.divisor * kVec, first = slab * width, channel = first + vector * kVec;
  const uint32_t taps = d.taps.divisor, sums_over = d.sums.divisor;
  for (uint32_t i = threadIdx.x; i < width * sums_over * taps; i += blockDim.x) {
    uint32_t tap = i, filter = d.taps.split(tap);  // i = (c sums + filter) taps + tap
    const uint32_t c = d.sums.split(filter);
    const bool exists = first + c < d.out_channels;
    weights[(filter * taps + tap) * width + c] = exists ? static_cast<float>(weight[first * sums_over * taps + i]) : 0;
  }
  __syncthreads();
  const int x0 = static_cast<int>(across * d.strips.divisor + strip) * kPixels - d.shift;
  if (channel >= d.out_channels || x0 >= d.w.out) return;
  const uint32_t first_line = down * d.split, end = min(first_line + d.split, d.lines);
  for (uint32_t line = first_line + place; line < end; line += d.tile_lines) {
    uint32_t row = line;
    const uint32_t image = d.height.split(row);
    float sums[kPixels][kVec] = {};
    for (uint32_t m = 0; m < sums_over; ++m) {
      const uint32_t from_channel = kBackward ? channel * sums_over + m : d.multiplier.quotient(channel);
      for (int r = 0; r < d.h.taps; ++r) {
        const int from_row = input_of<kBackward>(d.h, static_cast<int>(row), r);
        if (from_row < 0) continue;
        const T* const from = in + (image * d.h.in + from_row) * d.w.in * d.in_channels + from_channel;
        const float* const of_row = weights + (m * taps + r * d.w.taps) * width + vector * kVec;
        float row_weights[kSide > 0 ? kSide : 1][kVec];
#pragma unroll
        for (int s = 0; s < kSide; ++s) load_floats(of_row + s * width, row_weights[s]);
        for_strip<kVec, kBackward, kSide, kStride>(d, from, x0, 0, d.w.taps,
                                                   [&](int j, int s, const float(&values)[kVec]) {
                                                     if (kSide == 0) load_floats(of_row + s * width, row_weights[0]);
                                                     add_products(sums[j], values, row_weights[kSide > 0 ? s : 0]);
                                                   });
      }
    }
#pragma unroll
    for (int j = 0; j < kPixels; ++j) {
      if (!within(x0 + j, d.w.out)) continue;
      Vec<T, kVec> result;
#pragma unroll
      for (int e = 0; e < kVec; ++e) result.value[e] = finished(sums[j][e], bias, (channel + e) * bias_step, relu);
      store<kVec>(out + (line * d.w.out + x0 + j) * d.out_channels + channel, result);
    }
  }
}

/// Stores the sums of wgrad in `partial` (parts, filters, columns). The columns are the taps and, if there is a bias,
/// dbias. A thread sums a row of taps or, if kSide is 0, one tap.
template <class T, int kVec, int kSide, int kStride>
__global__ void __launch_bounds__(kThreads, 2)
    depthwise_nhwc_wgrad_kernel(DepthwiseTiling d, const T* x, const T* dy, uint32_t columns, float* partial) {
  constexpr int kTaps = kSide > 0 ? kSide : 1;
  extern __shared__ float4 shared[];
  float* const sums_of_threads = reinterpret_cast<float*>(shared);
  uint32_t slab = blockIdx.x, vector = threadIdx.x;
  uint32_t tap_block = d.slabs.split(slab), group = d.vectors.split(vector);
  const uint32_t part = d.tap_blocks.split(tap_block), lane = d.groups.split(group);
  const uint32_t channel = (slab * d.vectors.divisor + vector) * kVec, taps = d.taps.divisor;
  group += tap_block * d.groups.divisor;
  const uint32_t first_tap = group * kTaps;
  const int r = static_cast<int>(first_tap) / d.w.taps;
  const int first_s = static_cast<int>(first_tap) % d.w.taps;
  const bool counts = first_tap < taps && channel < d.out_channels;
  const bool sums_bias = columns > taps && group == 0;
  const uint32_t begin = part * d.split, end = min(begin + d.split, d.lines);
  const uint32_t items = counts ? (end - begin) * d.strips.divisor : 0;
  float sums[kTaps + 1][kVec] = {};  // the last: dbias
  for (uint32_t item = lane; item < items; item += d.lanes.divisor) {
    uint32_t strip = item;
    const uint32_t line = begin + d.strips.split(strip);
    uint32_t row = line;
    const uint32_t image = d.height.split(row);
    const int from_row = input_of<false>(d.h, static_cast<int>(row), r);
    const int x0 = static_cast<int>(strip) * kPixels;
    if (from_row < 0 && !sums_bias) continue;
    float gradients[kPixels][kVec] = {};
#pragma unroll
    for (int j = 0; j < kPixels; ++j)
      if (x0 + j < d.w.out) load_floats(dy + (line * d.w.out + x0 + j) * d.out_channels + channel, gradients[j]);
    if (sums_bias)
#pragma unroll
      for (int j = 0; j < kPixels; ++j)
#pragma unroll
        for (int e = 0; e < kVec; ++e) sums[kTaps][e] += gradients[j][e];
    if (from_row < 0) continue;
    const T* const from = x + (image * d.h.in + from_row) * d.w.in * d.in_channels + d.multiplier.quotient(channel);
    const auto add = [&]<bool kWhole>() {
      for_strip<kVec, false, kSide, kStride>(d, from, x0, first_s, first_s + 1,
                                             [&](int j, int s, const float(&values)[kVec]) {
                                               if (kWhole || x0 + j < d.w.out)
                                                 add_products(sums[kSide > 0 ? s : 0], gradients[j], values);
                                             });
    };
    // Pixels beyond the row add nothing, not even zeros times elements of x, which may be infinite.
    x0 + kPixels <= d.w.out ? add.template operator()<true>() : add.template operator()<false>();
  }
#pragma unroll
  for (int i = 0; i <= kTaps; ++i) {
    if (i == kTaps && columns == taps) break;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kVec; ++e) sums_of_threads[threadIdx.x * kVec + e] = sums[i][e];
    __syncthreads();
    if (lane > 0 || !counts || (i == kTaps && !sums_bias)) continue;
    const uint32_t of_lane = d.vectors.divisor * d.groups.divisor * kVec;
    const uint32_t column = i == kTaps ? taps : first_tap + i;
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      float sum = 0;
      for (uint32_t other = 0; other < d.lanes.divisor; ++other)
        sum += sums_of_threads[other * of_lane + threadIdx.x * kVec + e];
      partial[(static_cast<int64_t>(part) * d.out_channels + channel + e) * columns + column] = sum;
    }
  }
}

// ---- NCHW ----

/// The rows of `in`, or for wgrad of dy, that a block reads at a time. They are contiguous: the rows of a band of one
/// plane, or of neighbouring planes all rows from the first to the last one that is read.
template <class T>
struct PlaneRows {
  const T* from;
  int elements, first;

  /// Those of `rows` rows from `row` that are inside of the image, where the planes have `size` rows and columns.
  __device__ PlaneRows(const T* planes, uint32_t plane, uint32_t count, const int (&size)[2], int row, int rows) {
    first = min(max(row, 0), size[0]);
    const int end = min(max(row + rows, first), size[0]);
    from = planes + (static_cast<int>(plane) * size[0] + first) * size[1];
    elements = (static_cast<int>(count - 1) * size[0] + end - first) * size[1];
  }
  __device__ uint32_t bytes_before() const { return u32(reinterpret_cast<uintptr_t>(from) % 16); }
  /// The first row in the copy at `shared`.
  __device__ const T* in(const float4* shared) const {
    return reinterpret_cast<const T*>(shared) + bytes_before() / sizeof(T);
  }
  /// Starts copying this thread's share of aligned vectors, the first of which may begin before the rows, in the same
  /// allocation.
  __device__ void copy(float4* to, uint32_t thread, uint32_t threads) const {
    const char* const begin = reinterpret_cast<const char*>(from) - bytes_before();
    const auto bytes = u32(bytes_before() + elements * sizeof(T));
    for (uint32_t i = thread; i * 16 < bytes; i += threads)
      cp_async<16>(to + i, begin + i * 16, true, min(bytes - i * 16, 16U));
  }
};

/// Calls f(i, value_of) for the rows i that 4 x 4 pixels of `out` read at all taps. value_of(j) is the pixel at row
/// y0 + i and column x0 + j of `plane`, with kSpread - 1 zeros between its pixels and zeros around them. Pixels are
/// read in vectors, each of which is inside of a row or outside. kSkip: rows outside of the plane are skipped.
template <int kVec, int kSide, int kStep, int kSpread, bool kSkip, class T, class F>
__device__ void for_lines(const DepthwiseTiling& d, const T* plane, const T* zeros, int y0, int x0, const F& f) {
  constexpr int kLead = (kVec - kSide / 2 % kVec) % kVec;  // columns of the vectors before x0
  constexpr int kReach = (kPixels - 1) * kStep + kSide, kVectors = ceil_div(kLead + kReach, kVec);
#pragma unroll
  for (int i = 0; i < kReach; ++i) {
    const int y = y0 + i;
    if ((kSkip && !within(y / kSpread, d.h.in)) || y % kSpread != 0) continue;
    float line[kVectors][kVec];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int x = x0 - kLead + v * kVec;
      const bool exists = within(y / kSpread, d.h.in) & within(x / kSpread, d.w.in) & (x % kSpread == 0);
      load_floats(exists ? plane + y / kSpread * d.w.in + x / kSpread : zeros, line[v]);
    }
    f(i, [&](int j) { return line[(kLead + j) / kVec][(kLead + j) % kVec]; });
  }
}

/// fprop, and dgrad as fprop of dy with reversed taps and stride - 1 zeros between the pixels. kSide: size of a square
/// filter without a dilation; 0: any filter.
template <class T, int kVec, bool kBackward, int kSide, int kStride>
__global__ void __launch_bounds__(kThreads, 2)
    depthwise_nchw_kernel(DepthwiseTiling d, const T* in, const T* weight, const T* bias, int64_t bias_step, bool relu,
                          T* out) {
  constexpr int kTaps = kSide > 0 ? kSide : 1;
  extern __shared__ float4 shared[];
  uint32_t strip = threadIdx.x, group = d.strips.split(strip), band = blockIdx.x;
  const uint32_t t = d.row_groups.split(group), first = d.bands.split(band) * d.tile_planes;
  const uint32_t count = min(d.tile_planes, d.planes - first), plane = first + t, channel = plane % d.out_channels;
  const int band_row = static_cast<int>(band * d.row_groups.divisor) * kPixels;
  const int row = band_row + static_cast<int>(group) * kPixels;
  const int column = static_cast<int>(strip) * kPixels;
  // The first pixel that the taps of a pixel of `out` read, among the pixels of `in` and the zeros between them.
  const auto first_read = [](const DepthwiseTiling::Axis& axis, int at) {
    if (kBackward) return at + axis.padding - (axis.taps - 1) * axis.dilation;
    return at * static_cast<int>(axis.stride.divisor) - axis.padding;
  };
  const uint32_t taps = d.taps.divisor;
  const auto pixels_before = [&](int at) {
    return kBackward ? static_cast<int>(d.h.stride.quotient(max(at, 0) + d.h.stride.divisor - 1)) : max(at, 0);
  };
  const int begin = first_read(d.h, band_row), from_row = pixels_before(begin);
  const int rows = pixels_before(begin + d.tile_rows) - from_row;
  const T* const zeros = reinterpret_cast<const T*>(shared);
  if (threadIdx.x == 0) *shared = float4{0, 0, 0, 0};
  float sums[kPixels][kPixels] = {};
  for (uint32_t m = 0; m < d.sums.divisor; ++m) {
    const T* const filter = weight + (channel * d.sums.divisor + m) * taps;
    const auto plane_of = [&](uint32_t i) {
      return kBackward ? (first + i) * d.sums.divisor + m : d.multiplier.quotient(first + i);
    };
    const PlaneRows<T> of_in(in, plane_of(0), plane_of(count - 1) - plane_of(0) + 1, {d.h.in, d.w.in}, from_row, rows);
    __syncthreads();  // other threads may still read `shared`
    of_in.copy(shared + 1, threadIdx.x, blockDim.x);
    cp_async_commit();
    float weights[kTaps][kTaps];  // loaded while the planes are copied
#pragma unroll
    for (int i = 0; i < kSide * kSide; ++i)
      weights[i / kTaps][i % kTaps] = static_cast<float>(filter[kBackward ? kSide * kSide - 1 - i : i]);
    cp_async_wait<0>();
    __syncthreads();
    if (t >= count) continue;
    const T* const from =
        of_in.in(shared + 1) + (static_cast<int>(plane_of(t) - plane_of(0)) * d.h.in - of_in.first) * d.w.in;
    if constexpr (kSide > 0) {
      constexpr int kStep = kBackward ? 1 : kStride;
      for_lines<kVec, kSide, kStep, kBackward ? kStride : 1, false>(
          d, from, zeros, first_read(d.h, row), first_read(d.w, column), [&](int i, const auto& value_of) {
#pragma unroll
            for (int p = 0; p < kPixels; ++p)
              if (const int r = i - p * kStep; r >= 0 && r < kSide)
#pragma unroll
                for (int e = 0; e < kPixels * kSide; ++e)
                  sums[p][e / kSide] += value_of(e / kSide * kStep + e % kSide) * weights[r][e % kSide];
          });
    } else {
      for (int tap = 0; tap < static_cast<int>(taps); ++tap)
#pragma unroll
        for (int i = 0; i < kPixels * kPixels; ++i) {
          const int y = input_of<kBackward>(d.h, row + i / kPixels, tap / d.w.taps);
          const int x = input_of<kBackward>(d.w, column + i % kPixels, tap % d.w.taps);
          const auto value = static_cast<float>(y < 0 || x < 0 ? *zeros : from[y * d.w.in + x]);
          sums[i / kPixels][i % kPixels] += value * static_cast<float>(filter[tap]);
        }
    }
  }
  if (t >= count) return;
#pragma unroll
  for (int p = 0; p < kPixels; ++p) {
    if (row + p >= d.h.out) break;
    T* const to = out + (plane * d.h.out + row + p) * d.w.out + column;
    Vec<T, kPixels> result;
#pragma unroll
    for (int q = 0; q < kPixels; ++q) result.value[q] = finished(sums[p][q], bias, channel * bias_step, relu);
    if (d.whole_strips) store<kPixels>(to, result);
#pragma unroll
    for (int q = 0; q < kPixels; ++q)
      if (!d.whole_strips && column + q < d.w.out) to[q] = result.value[q];
  }
}

/// wgrad. A block sums all taps of `tile_planes` filters or, if kSide is 0, one tap of these filters. An item is a band
/// of an image; in a step, each lane takes one item. The block copies the operands to shared memory unchanged, two
/// steps ahead of the products. Block: lanes x filters x strips x rows, so that a warp reads different banks.
template <class T, int kVec, int kSide, int kStride>
__global__ void __launch_bounds__(kThreads, 2)
    depthwise_nchw_wgrad_kernel(DepthwiseTiling d, const T* x, const T* dy, uint32_t columns, float* partial) {
  constexpr int kTaps = kSide > 0 ? kSide : 1, kPitch = kThreads + 1, kAhead = kDepthwiseBuffers - 1;
  constexpr int kLanes = 8;
  extern __shared__ float4 shared[];
  uint32_t lane = threadIdx.x, t = d.lanes.split(lane), strip = t / d.tile_planes;
  const uint32_t lanes = d.lanes.divisor, group = d.strips.split(strip);
  const uint32_t copying = blockDim.x / lanes, copy_lane = threadIdx.x / copying;  // threads that copy an item
  t %= d.tile_planes;
  uint32_t tile = blockIdx.x, tap = d.tiles.split(tile);
  const uint32_t part = d.tap_blocks.split(tap), first = tile * d.tile_planes;
  const uint32_t count = min(d.tile_planes, d.out_channels - first), taps = d.taps.divisor;
  const uint32_t begin = part * d.split;
  const uint32_t end = min(begin + d.split, d.planes / d.out_channels * d.bands.divisor);
  const uint32_t channel = d.multiplier.quotient(first);
  const uint32_t channels = d.multiplier.quotient(first + count - 1) - channel;
  const int plane = static_cast<int>(t);
  const int plane_of_x = static_cast<int>(d.multiplier.quotient(first + t) - channel);
  const int place = static_cast<int>(group) * kPixels, column = static_cast<int>(strip) * kPixels;
  const int step_h = kSide > 0 ? kStride : static_cast<int>(d.h.stride.divisor);
  const int step_w = kSide > 0 ? kStride : static_cast<int>(d.w.stride.divisor);
  const auto visit = [&](uint32_t step, uint32_t of_lane, const auto& f) {
    uint32_t band = begin + step * lanes + of_lane;
    if (of_lane >= lanes || band >= end) return;
    const uint32_t image = d.bands.split(band);
    const int rows = static_cast<int>(d.row_groups.divisor) * kPixels;
    const int row = static_cast<int>(band) * rows;
    const PlaneRows<T> of_x(x, image * d.in_channels + channel, channels + 1, {d.h.in, d.w.in},
                            row * step_h - d.h.padding, d.tile_rows);
    const PlaneRows<T> of_dy(dy, image * d.out_channels + first, count, {d.h.out, d.w.out}, row, rows);
    f(of_x, of_dy, shared + 1 + (step % kDepthwiseBuffers * lanes + of_lane) * d.buffer);
  };
  const auto start_copy = [&](uint32_t step) {
    visit(step, copy_lane, [&](const auto& of_x, const auto& of_dy, float4* to) {
      of_x.copy(to, threadIdx.x % copying, copying);
      of_dy.copy(to + d.buffer_of_x, threadIdx.x % copying, copying);
    });
    cp_async_commit();
  };
  const T* const zeros = reinterpret_cast<const T*>(shared);
  if (threadIdx.x == 0) *shared = float4{0, 0, 0, 0};
  const bool whole = d.h.out % kPixels == 0 && d.w.out % kPixels == 0;
  float sums[kTaps + 1][kTaps] = {};  // the last row: dbias
  for (int i = 0; i < kAhead; ++i) start_copy(i);
  for (uint32_t step = 0; begin + step * lanes < end; ++step) {
    cp_async_wait<kAhead - 1>();
    __syncthreads();  // all copies of the step are complete, and no thread still reads those of the step before
    start_copy(step + kAhead);
    if (t >= count || group >= d.row_groups.divisor) continue;
    visit(step, lane, [&](const auto& of_x, const auto& of_dy, const float4* buffer) {
      const int row = of_dy.first + place;
      if (row >= d.h.out) return;
      const T* const from_dy = of_dy.in(buffer + d.buffer_of_x) + (plane * d.h.out + place) * d.w.out + column;
      const int y0 = row * step_h - d.h.padding, x0 = column * step_w - d.w.padding;
      const T* const from_x = of_x.in(buffer) + (plane_of_x * d.h.in - of_x.first) * d.w.in;
      const auto zeros_of_dy = static_cast<int>(zeros - from_dy);
      const auto is_inside = [&](int p, int q) { return (row + p < d.h.out) & (column + q < d.w.out); };
      float gradients[kPixels][kPixels];
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        if (d.whole_strips) load_floats(from_dy + (is_inside(p, 0) ? p * d.w.out : zeros_of_dy), gradients[p]);
#pragma unroll
        for (int q = 0; q < kPixels; ++q)
          if (!d.whole_strips)
            gradients[p][q] = static_cast<float>(from_dy[is_inside(p, q) ? p * d.w.out + q : zeros_of_dy]);
      }
#pragma unroll
      for (int i = 0; i < kPixels * kPixels; ++i) sums[kTaps][0] += gradients[i / kPixels][i % kPixels];
      const auto add = [&]<bool kWhole>() {
        for_lines<kVec, kSide, kStride, 1, !kWhole>(d, from_x, zeros, y0, x0, [&](int i, const auto& value_of) {
          float total = 0;
#pragma unroll
          for (int j = 0; j < (kPixels - 1) * kStride + kSide; ++j) total += value_of(j);
          const auto add_line = [&]<bool kAll>() {
#pragma unroll
            for (int p = 0; p < kPixels; ++p)
              if (const int r = i - p * kStride; r >= 0 && r < kTaps)
#pragma unroll
                for (int e = 0; e < kPixels * kTaps; ++e) {
                  const int q = e / kTaps, s = e % kTaps;
                  if (kAll || is_inside(p, q)) sums[r][s] += gradients[p][q] * value_of(q * kStride + s);
                }
          };
          kWhole || 0 * total == 0 ? add_line.template operator()<true>() : add_line.template operator()<false>();
        });
      };
      // Pixels beyond dy add nothing, as in NHWC. They are zero here, but x may have elements that are not finite.
      if constexpr (kSide > 0) {
        whole ? add.template operator()<true>() : add.template operator()<false>();
      } else {
#pragma unroll
        for (int i = 0; i < kPixels * kPixels; ++i) {
          const int p = i / kPixels, q = i % kPixels;
          const int y = input_of<false>(d.h, row + p, static_cast<int>(tap) / d.w.taps);
          const int at = input_of<false>(d.w, column + q, static_cast<int>(tap) % d.w.taps);
          if (is_inside(p, q) && y >= 0 && at >= 0)
            sums[0][0] += gradients[p][q] * static_cast<float>(from_x[y * d.w.in + at]);
        }
      }
    });
  }
  float* const sums_of_threads = reinterpret_cast<float*>(shared);
  const uint32_t of_filter = d.strips.divisor * d.row_groups.divisor * lanes;  // threads that add to a filter
  const uint32_t sharing = of_filter < kLanes ? 1 : kLanes;                    // threads that add their sums
#pragma unroll
  for (int r = 0; r <= kTaps; ++r) {
    if (r == kTaps && columns == taps) break;
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kTaps; ++s) sums_of_threads[s * kPitch + threadIdx.x] = sums[r][s];
    __syncthreads();
    for (uint32_t from = 0; from < count * kTaps; from += blockDim.x / sharing) {
      const uint32_t i = from + threadIdx.x / sharing, filter = i / kTaps, s = i % kTaps;
      const uint32_t at = r == kTaps ? taps + s : tap + r * kTaps + s;
      const float* const of_thread = sums_of_threads + s * kPitch + filter * lanes;
      float sum = 0;
      for (uint32_t u = threadIdx.x % sharing; filter < count && u < of_filter; u += sharing)
        sum += of_thread[u + d.lanes.quotient(u) * (d.tile_planes - 1) * lanes];
      if (sharing > 1) sum = group_reduce<kLanes>(sum, [](float a, float b) { return a + b; });
      if (threadIdx.x % sharing > 0 || filter >= count || at >= columns || (r == kTaps && tap > 0)) continue;
      partial[(static_cast<int64_t>(part) * d.out_channels + first + filter) * columns + at] = sum;
    }
  }
}

// ---- launch ----

/// Calls f.template operator()<side, stride>() for filters with a specialised kernel, and <0, 1> for other filters.
template <class F>
void visit_sides(const DepthwiseTiling& d, F&& f) {
  if (d.side == 0) return f.template operator()<0, 1>();
  visit_constant<3, 5, 7>(d.side, [&]<int kSide>() {
    d.w.stride.divisor == 1 ? f.template operator()<kSide, 1>() : f.template operator()<kSide, 2>();
  });
}

template <class T>
void depthwise_of_type(const ConvCall& call, const Launch& launch) {
  const auto& d = call.tiling<DepthwiseTiling>();
  const ConvPass pass = call.problem.pass;
  const auto run = [&](auto kernel, const auto&... rest) {
    launch.with({.shared_bytes = call.plan.shared_bytes}, kernel, d.blocks, d.threads, d, call.in, rest...);
  };
  const auto run_wgrad = [&](auto kernel) { run(kernel, call.out, call.gemm.columns, call.partial()); };
  const auto run_other = [&](auto kernel) {
    run(kernel, call.weight, call.bias, call.gemm.bias_step, call.problem.relu, call.out);
  };
  const auto with_planes = [&]<int kVec>() {
    visit_sides(d, [&]<int kSide, int kStride>() {
      constexpr int kColumns = kSide > 0 ? kVec : 1, kOfGradient = kStride == 1 ? kColumns : 1;
      if (pass == ConvPass::backward_weight) return run_wgrad(depthwise_nchw_wgrad_kernel<T, kColumns, kSide, kStride>);
      if (pass == ConvPass::forward) return run_other(depthwise_nchw_kernel<T, kColumns, false, kSide, kStride>);
      run_other(depthwise_nchw_kernel<T, kOfGradient, true, kSide, kStride>);
    });
  };
  const auto with_channels = [&]<int kVec>() {
    visit_sides(d, [&]<int kSide, int kStride>() {
      if (pass == ConvPass::backward_weight) return run_wgrad(depthwise_nhwc_wgrad_kernel<T, kVec, kSide, kStride>);
      if (pass == ConvPass::forward) return run_other(depthwise_nhwc_kernel<T, kVec, false, kSide, kStride>);
      run_other(depthwise_nhwc_kernel<T, kVec, true, kSide, kStride>);
    });
  };
  if (d.tile_planes > 0) visit_constant<1, 2, kPixels>(d.vec, with_planes);
  else visit_constant<1, 16 / sizeof(T)>(d.vec, with_channels);
}

void depthwise(const ConvCall& call, const Launch& launch) {
  visit_narrow(call.problem.dtype, [&]<class T>() { depthwise_of_type<T>(call, launch); });
  if (call.problem.is_wgrad()) add_parts(call, launch, false);
}

}  // namespace

bool launch_depthwise(const ConvOperands& call) { return launch_phases(depthwise, call); }

}  // namespace gradus::cuda_detail
