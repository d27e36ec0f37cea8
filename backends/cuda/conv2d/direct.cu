// conv2d fprop and dgrad, few channels of the result (at most 16 a group), 3x3 or 5x5 without stride or dilation, also
// depthwise; float32 or half types, on the FMA units.
// out[n,k,p,q] = sum over c,r,s of w[k,c,r,s] in[n,c,p+r,q+s], shifted by the padding (conv2d.cuh);  any strides.
// Grid: x = tiles of all images, y = groups.  Block: up to 256 threads; a thread computes 4 neighbouring pixels of
// kRows (1 to 8) channels, and the 8 inputs that it loads for them serve a whole line of taps.
// Pipeline: the input, with zeros around the image, and the weights are converted to float32 in shared memory, as many
// channels at a time as fit.  Deterministic: one thread computes a result.
#include <gradus/backends/cuda/conv2d/conv2d.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus::cuda_detail {
namespace {

/// The weights of a thread's rows for a tap, which are loaded in vectors of 16 bytes if there are four rows or more.
template <int kRows>
struct alignas(kRows >= 4 ? 16 : 4 * kRows) RowWeights {
  float value[kRows];
};
template <int kRows>
inline constexpr uint32_t kWeightStep = direct_weight_step(kRows);

/// What a block computes: the tile of the output that begins at (image, line, column). Shared memory holds its input
/// (images, channels, lines, quads of pixels) and weights (channels, taps, rows).
template <class T, int kSize, int kRows>
struct DirectBlock {
  static constexpr uint32_t kTaps = kSize * kSize;
  const ImplicitGemm& gemm;
  const DirectTiling& tiling;
  float4* const tile;
  const uint32_t quads = tiling.quads.divisor, lines = tiling.lines.divisor;  // quads of a line; lines of a channel
  const uint32_t tile_quads = tiling.images.divisor * tiling.channels.divisor * lines * quads;
  float* const weights = reinterpret_cast<float*>(tile + tile_quads);
  const uint32_t weight_count = tiling.row_tiles * kRows * tiling.channels.divisor * kTaps;
  const uint32_t group = blockIdx.y;
  uint32_t image, line, column;

  __device__ DirectBlock(const ImplicitGemm& gemm, const DirectTiling& tiling, float4* memory)
      : gemm(gemm), tiling(tiling), tile(memory), column(blockIdx.x) {
    uint32_t band = tiling.columns.split(column);
    image = tiling.bands.split(band) * tiling.images.divisor;
    line = band * tiling.height.divisor, column *= tiling.strips.divisor * kStrip;
  }

  /// The window of output (h, w) begins at row h + corner(0) and column w + corner(1) of the input.
  __device__ int corner(int axis) const { return gemm.origin[axis] + min(gemm.tap_step[axis], 0) * (kSize - 1); }

  /// Copies `channels` channels of the input into shared memory; if kMasked, it stores 0 where the mask is not
  /// positive. Neighbouring threads copy neighbours in a row, which are adjacent in memory if kDense. All loads of a
  /// batch come before its stores.
  template <bool kMasked, bool kDense>
  __device__ void stage_input(const T* input, const T* mask, uint32_t first_channel, uint32_t channels) const {
    const int n_stride = static_cast<int>(gemm.in.n), c_stride = static_cast<int>(gemm.in.c);
    const int h_stride = static_cast<int>(gemm.in.h);
    const int w_stride = kDense ? 1 : static_cast<int>(gemm.in.w);
    for (uint32_t start = threadIdx.x; start < tile_quads; start += kQuadsAtOnce * blockDim.x) {
      T values[kQuadsAtOnce][kStrip], passes[kMasked ? kQuadsAtOnce : 1][kStrip];
#pragma unroll
      for (int b = 0; b < kQuadsAtOnce; ++b) {
        uint32_t x = start + b * blockDim.x;
        if (x >= tile_quads) break;
        uint32_t y = tiling.quads.split(x), c = tiling.lines.split(y);
        const int in_n = static_cast<int>(image + tiling.channels.split(c));
        const int in_h = static_cast<int>(line + y) + corner(0);
        const int in_w = static_cast<int>(column + x * kStrip) + corner(1);
        const bool inside = c < channels && u32(in_n) < tiling.image_count && within(in_h, gemm.in_height);
        const int at = in_n * n_stride + static_cast<int>(group * gemm.in_channels + first_channel + c) * c_stride +
                       in_h * h_stride + in_w * w_stride;
#pragma unroll
        for (int i = 0; i < static_cast<int>(kStrip); ++i) {
          const bool reads = inside && within(in_w + i, gemm.in_width);
          values[b][i] = reads ? (input + at)[i * w_stride] : T(0.0f);
          if constexpr (kMasked) passes[b][i] = reads ? (mask + at)[i * w_stride] : T(0.0f);
        }
      }
#pragma unroll
      for (int b = 0; b < kQuadsAtOnce; ++b) {
        if (start + b * blockDim.x >= tile_quads) break;
        auto staged = [&](int i) {
          return !kMasked || static_cast<float>(passes[b][i]) > 0 ? static_cast<float>(values[b][i]) : 0.0f;
        };
        tile[start + b * blockDim.x] = make_float4(staged(0), staged(1), staged(2), staged(3));
      }
    }
  }

  /// Weights that a thread has loaded into registers and not yet stored in shared memory.
  struct WeightBatch {
    T values[kWeightsAtOnce];
    uint32_t to[kWeightsAtOnce];
  };
  __device__ void load_weights(WeightBatch& batch, const T* weight, uint32_t start, uint32_t first_channel,
                               uint32_t channels) const {
    const int row_stride = static_cast<int>(gemm.weight.n);
    const int c_stride = static_cast<int>(gemm.weight.c);
    const int r_stride = static_cast<int>(gemm.weight.h), s_stride = static_cast<int>(gemm.weight.w);
    const T* const from = weight + group * gemm.weight_group;
#pragma unroll
    for (int b = 0; b < kWeightsAtOnce; ++b) {
      if (start + b * blockDim.x >= weight_count) break;
      const uint32_t e = start + b * blockDim.x + threadIdx.x, tap = e % kTaps;
      uint32_t c = e / kTaps;
      const uint32_t row = tiling.channels.split(c);
      const uint32_t r = gemm.tap_step[0] > 0 ? tap / kSize : kSize - 1 - tap / kSize;
      const uint32_t s = gemm.tap_step[1] > 0 ? tap % kSize : kSize - 1 - tap % kSize;
      const int at = static_cast<int>(row) * row_stride + static_cast<int>(first_channel + c) * c_stride +
                     static_cast<int>(r) * r_stride + static_cast<int>(s) * s_stride;
      batch.values[b] = row < gemm.rows && c < channels ? from[at] : T(0.0f);
      batch.to[b] = (c * kTaps + tap) * tiling.weight_pitch + row / kRows * kWeightStep<kRows> + row % kRows;
    }
  }
  __device__ void store_weights(const WeightBatch& batch, uint32_t start) const {
#pragma unroll
    for (int b = 0; b < kWeightsAtOnce; ++b)
      if (start + b * blockDim.x + threadIdx.x < weight_count)
        weights[batch.to[b]] = static_cast<float>(batch.values[b]);
  }

  /// Adds the products of `channels` channels. Lines of zeros around the image are multiplied, too, because a test for
  /// them would delay the loads of the next line.
  __device__ void multiply(float (&sums)[kRows][kStrip], const float4* from, const float* factors,
                           uint32_t channels) const {
#pragma unroll 1
    for (uint32_t c = 0; c < channels; ++c) {
#pragma unroll
      for (int r = 0; r < kSize; ++r) {
        const float4 left = from[r * quads], right = from[r * quads + 1];
        const float window[] = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};
#pragma unroll
        for (int s = 0; s < kSize; ++s) {
          const auto of_rows =
              *reinterpret_cast<const RowWeights<kRows>*>(factors + (r * kSize + s) * tiling.weight_pitch);
#pragma unroll
          for (int row = 0; row < kRows; ++row)
#pragma unroll
            for (int i = 0; i < kStrip; ++i) sums[row][i] += of_rows.value[row] * window[s + i];
        }
      }
      from += lines * quads;
      factors += kTaps * tiling.weight_pitch;
    }
  }
};

template <class T, int kSize, int kRows>
__global__ void __launch_bounds__(kThreads, 2)
    direct_kernel(ImplicitGemm gemm, DirectTiling tiling, const T* input, const T* mask, const T* weight, const T* bias,
                  bool relu, T* output) {
  extern __shared__ float4 tile[];
  __shared__ float biases[kMaxDirectRows];
  const DirectBlock<T, kSize, kRows> block(gemm, tiling, tile);

  uint32_t strip = threadIdx.x;
  uint32_t line = tiling.strips.split(strip);
  uint32_t image = tiling.height.split(line);
  const uint32_t row_tile = tiling.images.split(image);
  const uint32_t n = block.image + image, h = block.line + line, w = block.column + strip * kStrip;
  const bool counts = row_tile < tiling.row_tiles && n < tiling.image_count && h < gemm.out_height.divisor &&
                      w < gemm.out_width.divisor;
  const uint32_t first_row = row_tile * kRows, rows = counts ? gemm.rows - first_row : 0;
  const uint32_t channel = block.group * gemm.rows + first_row;
  const bool has_bias = bias && threadIdx.x < gemm.rows;
  const T own_bias = has_bias ? bias[(block.group * gemm.rows + threadIdx.x) * gemm.bias_step] : T(0.0f);

  float sums[kRows][kStrip] = {};
  for (uint32_t first = 0; first < gemm.in_channels; first += tiling.channels.divisor) {
    const uint32_t channels = min(tiling.channels.divisor, gemm.in_channels - first);
    if (first > 0) __syncthreads();
    typename DirectBlock<T, kSize, kRows>::WeightBatch batch;
    block.load_weights(batch, weight, 0, first, channels);  // in flight while the input is copied
    const auto stage_input = [&]<bool kDense>() {
      if (mask) block.template stage_input<true, kDense>(input, mask, first, channels);
      else block.template stage_input<false, kDense>(input, mask, first, channels);
    };
    if (gemm.in.w == 1) stage_input.template operator()<true>();
    else stage_input.template operator()<false>();
    block.store_weights(batch, 0);
    if (first == 0 && threadIdx.x < kMaxDirectRows) biases[threadIdx.x] = static_cast<float>(own_bias);
    const uint32_t batch_size = kWeightsAtOnce * blockDim.x;
    for (uint32_t start = batch_size; start < block.weight_count; start += batch_size) {
      block.load_weights(batch, weight, start, first, channels);
      block.store_weights(batch, start);
    }
    __syncthreads();
    if (counts)
      block.multiply(sums, tile + (image * tiling.channels.divisor * block.lines + line) * block.quads + strip,
                     block.weights + row_tile * kWeightStep<kRows>, channels);
  }

  T* const to = output + n * gemm.out.n + channel * gemm.out.c + h * gemm.out.h + w * gemm.out.w;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    if (row >= rows) break;
    Vec<T, kStrip> strip_results;
#pragma unroll
    for (int i = 0; i < static_cast<int>(kStrip); ++i) {
      const float sum = sums[row][i] + biases[first_row + row];
      strip_results.value[i] = static_cast<T>(relu && sum < 0 ? 0.0f : sum);
    }
    if (tiling.whole_strips) {
      *reinterpret_cast<Vec<T, kStrip>*>(to + row * gemm.out.c) = strip_results;
      continue;
    }
#pragma unroll
    for (int i = 0; i < static_cast<int>(kStrip); ++i)
      if (w + i < gemm.out_width.divisor) to[row * gemm.out.c + i * gemm.out.w] = strip_results.value[i];
  }
}

template <class T, int kSize, int kRows>
void run(const ConvCall& call, const Launch& launch) {
  static_assert(kWeightStep<kRows> == sizeof(RowWeights<kRows>) / sizeof(float));
  const auto& tiling = call.tiling<DirectTiling>();
  launch.with({call.plan.shared_bytes}, direct_kernel<T, kSize, kRows>, dim3(tiling.blocks, call.groups()),
              tiling.threads, call.gemm, tiling, call.in, call.mask, call.weight, call.bias, call.problem.relu,
              call.out);
}

void direct(const ConvCall& call, const Launch& launch) {
  visit_narrow(call.problem.dtype, [&]<class T>() {
    visit_constant<8, 6, 4, 2, 1>(call.plan.tile.rows, [&]<int kRows>() {
      if (call.gemm.tap_width.divisor == 3) run<T, 3, kRows>(call, launch);
      else run<T, 5, kRows>(call, launch);
    });
  });
}

}  // namespace

bool launch_direct(const ConvOperands& call) {
  return launch_phases(call.problem.is_wgrad() ? direct_wgrad : direct, call);
}

}  // namespace gradus::cuda_detail
