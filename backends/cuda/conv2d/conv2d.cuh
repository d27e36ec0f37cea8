// What the convolution kernels share: convolutions as implicit GEMMs.
// fprop and dgrad have the same form:
//   fprop  y[k, (n,p,q)]  = sum over (c,r,s) of w[k,c,r,s] x[n, c, p stride - padding + r dilation, q …]
//   dgrad  dx[c, (n,h,w)] = sum over (k,r,s) of w[k,c,r,s] dy[n, k, p, q]
//          with p stride = h + padding - r dilation, …; with strides above 1, phase by phase (ConvPhase)
// Both are out[row, position] = sum over taps (channel, r, s) of weight[row, tap] times the input at position plus tap.
// wgrad has the positions and taps of fprop:
//   dw[k, (c,r,s)] = sum over (n,p,q) of dy[k, (n,p,q)] x[n, c, p stride - padding + r dilation, q …]
//   dbias[k]       = sum over (n,p,q) of dy[k, (n,p,q)]
// It is one product of dy (rows k, positions) and the input at the taps (positions, columns (c,r,s)); dbias comes from
// one more column of the input, which consists of ones. With a mask, an element of dy is replaced by 0 unless its mask
// > 0. The sum over positions is split (split-K), and the parts are added in order.
// Layout: x (N, C, H, W), w (K, C / groups, R, S), y (N, K, P, Q), any strides.
#pragma once

#include <gradus/backends/cuda/conv2d/select.h>
#include <gradus/backends/cuda/device/cp_async.cuh>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/mma_tile.cuh>

namespace gradus::cuda_detail {

/// A coordinate that is so far outside of an image that even the sum of two of them is outside.
inline constexpr int kOutside = -(1 << 29);
/// wgrad: the coordinate h that marks the column of ones (column_at).
inline constexpr int kOnes = kOutside - 1;

/// Where a position reads the input, or how far a tap is from there: the offset in elements, and the row and column.
struct Tap {
  int64_t offset;
  int h, w;
};

/// Returns true if 0 <= i < size, with one comparison.
__device__ inline bool within(int i, int size) { return static_cast<uint32_t>(i) < static_cast<uint32_t>(size); }

/// A kernel argument that describes a convolution as an implicit GEMM. Sizes are per group.
struct ImplicitGemm {
  uint32_t rows, positions, depth;  // output channels; output positions N * height * width; taps
  uint32_t in_channels;
  int in_height, in_width;
  int step[2], origin[2];         // tap row r of output row h reads input row h step[0] + origin[0]
  int tap_step[2];                // + r tap_step[0]; index 1 is the same for columns
  Divisor out_height, out_width;  // position -> (n, h, w)
  Divisor taps, tap_width;        // depth -> (channel, r, s)
  Strides4 in, out, weight;       // weight: strides along row, channel, r, s
  int64_t weight_group, bias_step;
  uint32_t columns, per_split;  // wgrad: taps, plus the column of ones if there is a bias; positions of a split

  /// The indices (n, h, w) of an output position, or (channel, r, s) of a tap.
  struct Place {
    uint32_t outer, h, w;
  };
  __device__ Place place_of(uint32_t position) const {
    const uint32_t line = out_width.split(position);
    Place at{0, line, position};
    at.outer = out_height.split(at.h);
    return at;
  }
  __device__ Place place_of_tap(uint32_t index) const {
    const uint32_t channel = taps.split(index), r = tap_width.split(index);
    return {channel, r, index};
  }
  __device__ int64_t out_offset(const Place& at) const { return at.outer * out.n + at.h * out.h + at.w * out.w; }
  /// Where an output position reads the input, before a tap is added.
  __device__ Tap corner_of(const Place& at) const {
    const int h = static_cast<int>(at.h) * step[0] + origin[0];
    const int w = static_cast<int>(at.w) * step[1] + origin[1];
    return {at.outer * in.n + h * in.h + w * in.w, h, w};
  }
  __device__ Tap position_at(uint32_t position, uint32_t end) const {
    return position < end ? corner_of(place_of(position)) : Tap{0, kOutside, kOutside};
  }
  __device__ Tap tap_at(uint32_t index) const {
    if (index >= depth) return {0, kOutside, kOutside};
    const Place at = place_of_tap(index);
    const int h = static_cast<int>(at.h) * tap_step[0], w = static_cast<int>(at.w) * tap_step[1];
    return {at.outer * in.c + h * in.h + w * in.w, h, w};
  }
  __device__ int64_t weight_offset(uint32_t row, const Place& tap) const {
    return row * weight.n + tap.outer * weight.c + tap.h * weight.h + tap.w * weight.w;
  }
  template <class T>
  __device__ compute_t<T> weight_at(const T* weights, uint32_t row, uint32_t index) const {
    const bool inside = row < rows && index < depth;
    const int64_t at = weight_offset(row, place_of_tap(index));
    const auto value = static_cast<compute_t<T>>(weights[inside ? at : 0]);
    return inside ? value : compute_t<T>(0);
  }
  /// The input element at position plus tap, 0 outside the image. There are no branches, so that all loads of a thread
  /// are in flight at once: outside the image, element 0 is loaded and discarded.
  template <class T>
  __device__ compute_t<T> input_at(const T* input, const Tap& position, const Tap& tap) const {
    using C = compute_t<T>;
    const bool inside = within(position.h + tap.h, in_height) && within(position.w + tap.w, in_width);
    const C value = static_cast<C>(input[inside ? position.offset + tap.offset : 0]);
    return inside ? value : C(0);
  }
  /// Stores the sum for (row, position) with bias and ReLU. The position must exist.
  template <class T>
  __device__ void store(T* output, const T* bias, bool relu, uint32_t group, uint32_t row, uint32_t position,
                        compute_t<T> sum) const {
    using C = compute_t<T>;
    const uint32_t channel = group * rows + row;
    if (bias) sum += static_cast<C>(bias[channel * bias_step]);
    if (relu && sum < C(0)) sum = C(0);
    output[out_offset(place_of(position)) + channel * out.c] = static_cast<T>(sum);
  }

  // ---- wgrad ----
  __device__ Tap column_at(uint32_t column) const {
    return column == depth && column < columns ? Tap{0, kOnes, 0} : tap_at(column);
  }
  /// The element of x that a column multiplies at a position: 0 outside the image, 1 in the column of ones.
  template <class T>
  __device__ compute_t<T> column_element(const T* input, const Tap& position, const Tap& column) const {
    const auto value = input_at(input, position, column);
    return column.h == kOnes && position.h != kOutside ? compute_t<T>(1) : value;
  }
  /// The element of dy at (row, position), or 0 if there is no such row or the position is not before `end`, the end of
  /// the split.
  template <class T>
  __device__ compute_t<T> gradient_at(const T* gradient, uint32_t row, uint32_t position, uint32_t end) const {
    using C = compute_t<T>;
    const bool counts = position < end && row < rows;
    const C value = static_cast<C>(gradient[counts ? out_offset(place_of(position)) + row * out.c : 0]);
    return counts ? value : C(0);
  }
  /// The address of the sums (rows, columns) of a split and a group in the array `partial` (splits, groups, rows,
  /// columns).
  template <class C>
  __device__ C* partial_of(C* partial, uint32_t split, uint32_t group) const {
    return partial + (static_cast<int64_t>(split) * gridDim.y + group) * rows * columns;
  }
};

/// The address of an operand, or null. It converts to the pointer type of any kernel parameter.
struct Address {
  const void* data;
  template <class T>
  operator T*() const {  // NOLINT(google-explicit-constructor)
    return static_cast<T*>(const_cast<void*>(data));
  }
  explicit operator bool() const { return data; }
};

/// A phase of a planned convolution, with its operands. For wgrad, `out` is dy, `in` is x, and `weight` and `bias` are
/// results. `bias` and `mask`, the mask of dy, may be null.
struct ConvCall {
  const ConvProblem& problem;
  const ConvPlan& plan;
  const ConvPhase& phase;
  ImplicitGemm gemm;
  Address in, mask, masked, weight, bias, out;  // masked: where wgmma_wgrad stores the masked dy, or null
  std::byte* workspace;                         // plan.workspace_bytes

  uint32_t groups() const { return u32(problem.geometry.groups); }
  template <class Tiling>
  const Tiling& tiling() const {
    return std::get<Tiling>(plan.tiling);
  }
  /// wgrad: the partial sums that kernels store, (splits, groups, rows, columns) in the compute type.
  Address partial() const { return {workspace}; }
  /// wgrad: the number of tiles for `columns` columns.
  uint32_t tiles(uint32_t columns) const {
    return u32(ceil_div(gemm.rows, plan.tile.rows) * ceil_div(columns, plan.tile.columns));
  }
};

/// Opens the event of a convolution and calls `kernel` for each phase of its plan (conv2d.cu). Returns true, as an
/// algorithm's launch does.
bool launch_phases(void (*kernel)(const ConvCall&, const Launch&), const ConvOperands& call);

// Launches of wgrad for the algorithms whose fprop and dgrad are in another file than wgrad.
void direct_wgrad(const ConvCall& call, const Launch& launch);
void implicit_gemm_wgrad(const ConvCall& call, const Launch& launch);
void implicit_gemm_async_wgrad(const ConvCall& call, const Launch& launch);
void wgmma_wgrad(const ConvCall& call, const Launch& launch);

/// Adds the partial sums of splits, in order (conv2d.cu). wgrad: the columns of the sums have the order (r, s, c) if
/// `channels_innermost`, else (c, r, s).
void add_parts(const ConvCall& call, const Launch& launch, bool channels_innermost);

/// Calls f.template operator()<Tile>() with the one of Tiles whose size is `tile`.
template <class... Tiles, class F>
void visit_tiles(const ConvTile& tile, F&& f) {
  const bool found =
      ((tile == ConvTile{Tiles::kRows, Tiles::kColumns} && (f.template operator()<Tiles>(), true)) || ...);
  GRADUS_CHECK(found, Error, "no kernel for tiles of ", tile.rows, " x ", tile.columns);
}

// ---- the main loops of implicit_gemm.cu and implicit_gemm_wgrad.cu ----
// A loop divides a block's depth into steps, and loads a step into shared memory while earlier steps are multiplied.
// `Tile::Shared` is one stage of shared memory, the loader fills it with a step, and `mma` holds the sums of a warp.
// Each loader works with one of the loops, which it names as `Loader::Loop`.

template <class Tile, class Mma>
__device__ void multiply_stage(const typename Tile::Shared& stage, Mma& mma) {
  mma.multiply(stage.left + Tile::first_row(), stage.right + Tile::first_column());
}

/// Two stages, loaded through registers: a thread loads its share of the next step into registers, multiplies the
/// current stage, and stores the registers in the other stage.
struct RegisterLoop {
  static constexpr int kStages = 2;

  template <class Tile, class Loader, class Mma>
  static __device__ void run(typename Tile::Shared* stages, uint32_t steps, Loader& loader, Mma& mma) {
    if (steps == 0) return;
    loader.load_tile();
    loader.store_tile(stages[0]);
    __syncthreads();
    int stage = 0;
    for (uint32_t step = 0; step < steps; ++step, stage ^= 1) {
      const bool more = step + 1 < steps;
      if (more) loader.load_tile();
      multiply_stage<Tile>(stages[stage], mma);
      if (more) loader.store_tile(stages[stage ^ 1]);
      __syncthreads();
    }
  }
};

/// Three stages, which cp.async loads without registers while the two steps before are multiplied.
struct AsyncLoop {
  static constexpr int kStages = 3;

  template <class Tile, class Loader, class Mma>
  static __device__ void run(typename Tile::Shared* stages, uint32_t steps, Loader& loader, Mma& mma) {
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (stage < steps) loader.load_tile(stages[stage]);
      cp_async_commit();
    }
    int stage = 0;
    for (uint32_t step = 0; step < steps; ++step) {
      cp_async_wait<kStages - 2>();
      __syncthreads();
      if (step + kStages - 1 < steps) loader.load_tile(stages[stage == 0 ? kStages - 1 : stage - 1]);
      cp_async_commit();
      loader.add_bias(stages[stage]);
      multiply_stage<Tile>(stages[stage], mma);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
  }
};

}  // namespace gradus::cuda_detail
