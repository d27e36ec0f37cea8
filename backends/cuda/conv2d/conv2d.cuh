// What the convolution kernels share. Forward and the gradient with respect to the input are one problem, a gather:
//   forward        y[k, (n,p,q)]  = sum over (c,r,s) of w[k,c,r,s] x[n, c, p stride - padding + r dilation, q …]
//   backward data  dx[c, (n,h,w)] = sum over (k,r,s) of w[k,c,r,s] dy[n, k, p, q]
//                  with p stride = h + padding - r dilation, …
// Both are out[row, position] = sum over taps (channel, r, s) of a weight and the input element at position plus tap.
// x (N, C, H, W), w (K, C / groups, R, S), y (N, K, P, Q), any strides.
#pragma once

#include <gradus/backends/cuda/conv2d/tile_sizes.h>
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

/// Where an operand is, or null: a pointer of the type that a kernel takes.
struct Address {
  const void* data;
  template <class T>
  operator T*() const {  // NOLINT(google-explicit-constructor)
    return static_cast<T*>(const_cast<void*>(data));
  }
  explicit operator bool() const { return data; }
};

/// A gather that is planned, with its operands. `bias` and `mask` may be null.
struct GatherCall {
  const ConvProblem& problem;
  const ConvPlan& plan;
  Gather gather;
  Address input, mask, weight, bias, output;
  std::byte* workspace;  // plan.workspace_bytes

  uint32_t groups() const { return static_cast<uint32_t>(problem.geometry.groups); }
};

/// Calls f.template operator()<Tile>() for the one of Tiles that is the plan's.
template <class... Tiles, class F>
void visit_tiles(const ConvTile& tile, F&& f) {
  const bool found =
      ((tile == ConvTile{Tiles::kRows, Tiles::kColumns} && (f.template operator()<Tiles>(), true)) || ...);
  GRADUS_CHECK(found, Error, "no kernel for tiles of ", tile.rows, " x ", tile.columns);
}

// The kernels of ConvAlgorithm, by the plan.
void direct(const GatherCall& call, const Launch& launch);
void few_channel_mma_fprop(const GatherCall& call, const Launch& launch);
void implicit_gemm_async(const GatherCall& call, const Launch& launch);
void implicit_gemm(const GatherCall& call, const Launch& launch);
void implicit_gemm_generic(const GatherCall& call, const Launch& launch);

/// dw and, unless null, dbias.
struct WeightOperands {
  const View &dy, &x;
  const void* mask;  // or null
  const MutableView& dw;
  const MutableView* dbias;
};
void run_weight(const ConvProblem& problem, const ConvPlan& plan, const WeightOperands& operands, std::byte* workspace,
                const Launch& launch);

}  // namespace gradus::cuda_detail
