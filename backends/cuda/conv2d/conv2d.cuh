// What the convolution kernels share. Forward and the gradient with respect to the input are one problem, a gather:
//   forward        y[k, (n,p,q)]  = sum over (c,r,s) of w[k,c,r,s] x[n, c, p stride - padding + r dilation, q …]
//   backward data  dx[c, (n,h,w)] = sum over (k,r,s) of w[k,c,r,s] dy[n, k, p, q]
//                  with p stride = h + padding - r dilation, …
// Both are out[row, position] = sum over taps (channel, r, s) of a weight and the input element at position plus tap.
// x (N, C, H, W), w (K, C / groups, R, S), y (N, K, P, Q), any strides.
#pragma once

#include <limits>
#include <optional>

#include <gradus/core/backend.h>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {

/// Throws unless the view's elements can be counted in 31 bits.
inline void check_countable(int64_t numel, const char* what) {
  GRADUS_CHECK(numel < int64_t{1} << 31, ShapeError, "cuda convolves tensors of less than 2^31 elements, ", what,
               " has ", numel, "; split the batch");
}

/// Coordinates so far outside that no sum of two of them is inside.
inline constexpr int kOutside = -(1 << 29);

/// A tap's distance from the position that it is added to, in elements of the input and in rows and columns.
struct Tap {
  int64_t offset;
  int h, w;
};

/// 0 <= i < size in one comparison.
__device__ inline bool within(int i, int size) { return static_cast<uint32_t>(i) < static_cast<uint32_t>(size); }

/// The gather as a kernel argument. Sizes are per group.
struct Gather {
  uint32_t rows, positions, depth;  // channels of the output; N * height * width of it; taps
  uint32_t in_channels;
  int in_height, in_width;
  int step[2], origin[2];  // position (h, w) of the output reads around (h step + origin, …) …
  int tap_step[2];         // … plus (r, s) tap_step
  int stride[2];           // backward of a strided convolution: only multiples of the stride were read, else 1
  Divisor stride_h, stride_w;
  Divisor out_height, out_width;  // position -> (n, h, w)
  Divisor taps, tap_width;        // depth -> (channel, r, s)
  Strides4 in, out;
  int64_t weight_row, weight_channel, weight_r, weight_s, weight_group;

  /// Where an output position reads, before the tap is added: `kStrided` where stride is not 1.
  template <bool kStrided>
  __device__ Tap position_at(uint32_t position) const {
    if (position >= positions) return {0, kOutside, kOutside};
    uint32_t w = position;
    uint32_t h = out_width.split(w);
    const uint32_t n = out_height.split(h);
    Tap at{n * in.n, static_cast<int>(h) * step[0] + origin[0], static_cast<int>(w) * step[1] + origin[1]};
    if constexpr (!kStrided) at.offset += at.h * in.h + at.w * in.w;
    return at;
  }
  template <bool kStrided>
  __device__ Tap tap_at(uint32_t index) const {
    if (index >= depth) return {0, kOutside, kOutside};
    uint32_t s = index;
    const uint32_t channel = taps.split(s), r = tap_width.split(s);
    Tap tap{channel * in.c, static_cast<int>(r) * tap_step[0], static_cast<int>(s) * tap_step[1]};
    if constexpr (!kStrided) tap.offset += tap.h * in.h + tap.w * in.w;
    return tap;
  }
  template <class T>
  __device__ compute_t<T> weight_at(const T* weight, uint32_t row, uint32_t index) const {
    const bool inside = row < rows && index < depth;
    uint32_t s = index;
    const uint32_t channel = taps.split(s), r = tap_width.split(s);
    const int64_t at = row * weight_row + channel * weight_channel + r * weight_r + s * weight_s;
    const auto value = static_cast<compute_t<T>>(weight[inside ? at : 0]);
    return inside ? value : compute_t<T>(0);
  }
  /// The input element at position plus tap, 0 outside the image. Without branches, so that a thread's loads are all
  /// under way at once: what is outside reads element 0 instead.
  template <bool kStrided, class T>
  __device__ compute_t<T> input_at(const T* input, const Tap& position, const Tap& tap) const {
    using C = compute_t<T>;
    int h = position.h + tap.h, w = position.w + tap.w;
    bool inside = true;
    int64_t at = position.offset + tap.offset;
    if constexpr (kStrided) {
      const int p = static_cast<int>(stride_h.quotient(max(h, 0))), q = static_cast<int>(stride_w.quotient(max(w, 0)));
      inside = p * stride[0] == h && q * stride[1] == w;
      h = p, w = q;
      at += h * in.h + w * in.w;
    }
    inside = inside && within(h, in_height) && within(w, in_width);
    const C value = static_cast<C>(input[inside ? at : 0]);
    return inside ? value : C(0);
  }
  /// Writes the sum for (row, position) with bias and ReLU. The position exists.
  template <class T>
  __device__ void store(T* output, const T* bias, bool relu, uint32_t group, uint32_t row, uint32_t position,
                        compute_t<T> sum) const {
    using C = compute_t<T>;
    uint32_t w = position;
    uint32_t h = out_width.split(w);
    const uint32_t n = out_height.split(h);
    const uint32_t channel = group * rows + row;
    if (bias) sum += static_cast<C>(bias[channel]);
    if (relu && sum < C(0)) sum = C(0);
    output[n * out.n + channel * out.c + h * out.h + w * out.w] = static_cast<T>(sum);
  }
};

/// The largest distance in elements between two elements of a view.
inline int64_t span_of(const StridedLayout& view) {
  int64_t span = 0;
  for (int i = 0; i < view.ndim(); ++i) span += (view.shape[i] - 1) * std::abs(view.strides[i]);
  return span;
}
/// Offsets that stay below it, with all taps added, fit in 32 bits.
inline constexpr int64_t kShortSpan = int64_t{1} << 29;

/// What multiplies elements of this type on this device in the implicit kernels, as the user allows; nothing for types
/// or devices that they are not written for.
std::optional<MathMode> math_mode_for(DType dtype, Device device);
/// "implicit_fma", "implicit_tf32" or "implicit_half", for observers.
const char* implicit_name(MathMode mode);

/// Kernels in which one thread takes all rows take at most so many.
inline constexpr uint32_t kDirectRows = 16;

/// A gather with its operands. `bias` may be null. `mask`, null unless a stencil makes the result, has the input's
/// strides: the input counts only where it is positive.
struct GatherCall {
  Gather gather;
  uint32_t groups;
  bool strided;  // gather.stride is not 1
  DType dtype;
  Device device;
  const void *input, *mask, *weight, *bias;
  bool relu;
  void* output;
};

/// Into how many parts to cut sums of so many steps, which `blocks` blocks make, for a device that has room for
/// `resident` of them at a time: the whole is done after the fewest steps, where beginning and end of a block cost
/// some, too. Parts beyond kMaxWaves rooms full of blocks even out little and take memory.
inline uint32_t balanced_splits(int64_t blocks, int64_t steps, int64_t resident) {
  constexpr int64_t kOverhead = 3, kShortest = 4, kMaxWaves = 4;
  const int64_t most = std::min(steps / kShortest, kMaxWaves * resident / blocks);
  int64_t best = 1, least = std::numeric_limits<int64_t>::max();
  for (int64_t splits = 1; splits <= std::clamp<int64_t>(most, 1, 1024); ++splits) {
    const int64_t length = (steps + splits - 1) / splits;
    if ((splits - 1) * length >= steps && splits > 1) continue;  // the last would be empty
    const int64_t cost = (blocks * splits + resident - 1) / resident * (length + kOverhead);
    if (cost < least) least = cost, best = splits;
  }
  return static_cast<uint32_t>(best);
}

/// True where stencil_gather() makes so many rows a group: few, from 3 x 3 or 5 x 5 taps without stride or dilation,
/// and not of float64.
bool has_stencil(const View& in, const View& w, int64_t rows, const Conv2dGeometry& geometry);
/// From tiles of the images in shared memory, a strip of outputs a thread.
void stencil_gather(const GatherCall& call, const Launch& launch);
/// One thread per position sums all rows: for few of them, what has no stencil.
void direct_gather(const GatherCall& call, const Launch& launch);
/// A product of matrices that are never built (implicit GEMM), tap by tap: for many channels.
void implicit_gather(const GatherCall& call, MathMode mode, const Launch& launch);
/// The same for exact float32, with channels apart, where has_exact_gather() (conv2d_exact.h) says so.
void fma_gather(const GatherCall& call, const Launch& launch);
/// The same in one walk over channels and taps; takes every call.
void tiled_gather(const GatherCall& call, const Launch& launch);

/// True unless the kernel for these operands wants dy masked beforehand; with a mask it leaves them to a slower one.
bool weight_gradient_takes_mask(const View& dy, const View& x, const StridedLayout& dw, const Conv2dGeometry& geometry);
/// dw and, unless null, dbias from dy and x, where dy counts only where `mask` (strides of dy, or null) is positive.
void conv2d_weight_gradient(const View& dy, const void* mask, const View& x, const MutableView& dw,
                            const MutableView* dbias, const Conv2dGeometry& geometry);

}  // namespace gradus::cuda_detail
