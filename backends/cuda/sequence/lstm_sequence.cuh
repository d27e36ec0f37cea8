// An LSTM's steps over whole sequences in one launch. Sequences do not depend on each other, so nothing waits for the
// whole device: a cluster of kBlocks blocks walks kSequences sequences through all steps. Its threads hold w_hh in
// their registers, each block the rows (backward: columns) of the units whose cells it computes, and after each step
// every warp sends what it made of its four units to all blocks of the cluster (st.async), whose barriers count the
// bytes. Two buffers take turns: what goes into one needs what every warp made of the other, so none is overwritten
// unread.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <gradus/core/scalar_ops.h>

namespace gradus::cuda_detail::lstm {

constexpr int kUnits = 4, kGates = 4;  // units of a warp
constexpr uint32_t kWarp = 32, kEveryLane = 0xffffffff;

/// Threads of a block.
constexpr int threads_of(int size, int blocks) { return size / blocks / kUnits * static_cast<int>(kWarp); }

/// (length, batch, size) are the hidden states' sizes; all arrays are contiguous.
struct Sizes {
  int length, batch, size;
  bool reverse;

  __device__ int step(int i) const { return reverse ? length - 1 - i : i; }
  __device__ int64_t state(int t, int sequence, int unit) const {
    return (static_cast<int64_t>(t) * batch + sequence) * size + unit;
  }
  __device__ int64_t gate(int t, int sequence, int gate, int unit) const {
    return ((static_cast<int64_t>(t) * batch + sequence) * kGates + gate) * size + unit;
  }
};

#if __CUDA_ARCH__ >= 900

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

/// The address of the same place in the shared memory of a block of the cluster.
__device__ inline uint32_t address_in(uint32_t address, int block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// A barrier that opens when one thread has announced a number of bytes and so many have come.
struct Mbarrier {
  uint64_t state;

  __device__ void init() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(this)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void expect_tx(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                 : "memory");
  }
  /// Until it has opened for the time with this parity (the first time's is 0).
  __device__ void wait(uint32_t parity) {
    uint32_t open;
    do {
      asm volatile(
          "{\n\t.reg .pred open;\n\t"
          "mbarrier.try_wait.parity.shared::cta.b64 open, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, open;\n\t}"
          : "=r"(open)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
    } while (!open);
  }
};

/// Writes a number into the shared memory of a block and tells that block's barrier.
__device__ inline void send(float value, uint32_t address, uint32_t barrier, int block) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address_in(address, block)),
      "r"(__float_as_uint(value)), "r"(address_in(barrier, block))
      : "memory");
}

/// Sums of kCount values over kLanes neighbouring lanes. The lane keeps the sum whose number is the highest bits of its
/// own number among them.
template <int kLanes, int kCount>
__device__ __forceinline__ float group_reduce_scatter(const float (&values)[kCount], int lane) {
  if constexpr (kLanes == 1) {
    return values[0];
  } else {
    constexpr int kDistance = kLanes / 2, kKept = kCount > 1 ? kCount / 2 : 1;
    const bool upper = lane & kDistance;
    float kept[kKept];
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const float low = values[i], high = values[kCount > 1 ? i + kKept : i];
      kept[i] = (upper ? high : low) + __shfl_xor_sync(kEveryLane, upper ? low : high, kDistance);
    }
    return group_reduce_scatter<kDistance>(kept, lane);
  }
}

/// What went through the cluster after the step before, kWidth numbers of each sequence.
template <int kSequences, int kWidth>
struct Exchange {
  alignas(16) float numbers[2][kSequences][kWidth];
  Mbarrier full[2];

  __device__ void init() {
    if (threadIdx.x >= kWarp) return;
    if (threadIdx.x == 0)
      for (Mbarrier& barrier : full) barrier.init();
    __syncwarp();  // init is compiled to an instruction of the whole warp, expect_tx to one of lane 0
    if (threadIdx.x == 0)
      for (Mbarrier& barrier : full) barrier.expect_tx(sizeof(numbers[0]));
  }
  /// Until the numbers that were sent in step i - 1 are there.
  __device__ const float (&received(int i))[kSequences][kWidth] {
    full[i & 1].wait((i - 1) / 2 & 1);
    if (threadIdx.x == 0) full[i & 1].expect_tx(sizeof(numbers[0]));  // in step i + 1
    return numbers[i & 1];
  }
  __device__ void send(int i, int sequence, int at, float value, int block) {
    lstm::send(value, shared_address(&numbers[(i + 1) & 1][sequence][at]), shared_address(&full[(i + 1) & 1]), block);
  }
};

#endif

/// h and c of every step from `gates` (W x + biases), which is left with the gates' values.
template <class T, int kSize, int kBlocks, int kSequences>
__global__ void __launch_bounds__(threads_of(kSize, kBlocks))
    sequence_kernel(Sizes sizes, T* gates, const T* w_hh, const T* h0, const T* c0, T* cells, T* hidden) {
#if __CUDA_ARCH__ >= 900
  // Half a warp multiplies the rows of two units; a lane has the states 4 (part + 16 chunk) + 0 … 3.
  constexpr int kParts = 16, kChunks = kSize / (4 * kParts), kRows = 2 * kGates;
  __shared__ Exchange<kSequences, kSize> exchange;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, part = lane % kParts;
  const int block = blockIdx.x % kBlocks, first = blockIdx.x / kBlocks * kSequences;
  const int warps_unit = block * (kSize / kBlocks) + warp * kUnits;

  float weights[kRows][4 * kChunks];
#pragma unroll
  for (int row = 0; row < kRows; ++row)
#pragma unroll
    for (int i = 0; i < 4 * kChunks; ++i) {
      const int to = warps_unit + lane / kParts * 2 + row / kGates, from = 4 * (part + kParts * (i / 4)) + i % 4;
      const bool inside = to < sizes.size && from < sizes.size;
      weights[row][i] = inside ? static_cast<float>(w_hh[(row % kGates * sizes.size + to) * sizes.size + from]) : 0.0f;
    }
  for (int i = threadIdx.x; i < kSequences * kSize; i += blockDim.x) {
    const int sequence = first + i / kSize, unit = i % kSize;
    const bool inside = sequence < sizes.batch && unit < sizes.size;
    exchange.numbers[0][i / kSize][unit] = inside ? static_cast<float>(h0[sequence * sizes.size + unit]) : 0.0f;
  }
  exchange.init();

  // What the lane has in the end: one gate of one unit, in one sequence; with one sequence, so does its neighbour.
  const int own = lane & 1, sequence = first + own % kSequences, gate = lane / 2 % kGates, unit = warps_unit + lane / 8;
  const bool inside = sequence < sizes.batch && unit < sizes.size, speaks = kSequences == 2 || own == 0;
  float c = inside ? static_cast<float>(c0[sequence * sizes.size + unit]) : 0.0f;
  float from_input = inside ? static_cast<float>(gates[sizes.gate(sizes.step(0), sequence, gate, unit)]) : 0.0f;
  cluster_sync();

  for (int i = 0; i < sizes.length; ++i) {
    const int t = sizes.step(i);
    const float sum_of_input = from_input;
    if (inside && i + 1 < sizes.length)
      from_input = static_cast<float>(gates[sizes.gate(sizes.step(i + 1), sequence, gate, unit)]);
    const auto& h_before = i == 0 ? exchange.numbers[0] : exchange.received(i);
    float sums[kRows * kSequences] = {};
#pragma unroll
    for (int s = 0; s < kSequences; ++s)
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const float4 h = reinterpret_cast<const float4*>(h_before[s])[part + kParts * chunk];
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          float& sum = sums[row * kSequences + s];
          sum = fmaf(weights[row][4 * chunk], h.x, sum), sum = fmaf(weights[row][4 * chunk + 1], h.y, sum);
          sum = fmaf(weights[row][4 * chunk + 2], h.z, sum), sum = fmaf(weights[row][4 * chunk + 3], h.w, sum);
        }
      }
    const float sum = sum_of_input + group_reduce_scatter<kParts>(sums, lane);
    const float value = gate == 2 ? ::tanhf(sum) : scalar::Unary<UnaryOp::sigmoid>::apply(sum, {});
    const auto of_gate = [&](int k) { return __shfl_sync(kEveryLane, value, (lane & ~6) | k << 1); };
    const float input = of_gate(0), forget = of_gate(1), candidate = of_gate(2), output = of_gate(3);
    c = forget * c + input * candidate;
    const T h = static_cast<T>(output * ::tanhf(c));
    c = static_cast<float>(static_cast<T>(c));
    if (speaks) {
      if (i + 1 < sizes.length)
        for (int to = gate; to < kBlocks; to += kGates)
          exchange.send(i, own % kSequences, unit, static_cast<float>(h), to);
      if (inside) {
        gates[sizes.gate(t, sequence, gate, unit)] = static_cast<T>(value);
        if (gate == 0) cells[sizes.state(t, sequence, unit)] = static_cast<T>(c);
        if (gate == 1) hidden[sizes.state(t, sequence, unit)] = h;
      }
    }
  }
  cluster_sync();  // nobody leaves while others write into its memory
#endif
}

/// Gradients of the gates' sums at every step and of the first states. dc holds the gradient of the last cell and is
/// left with that of c0; dhidden may be null.
template <class T, int kSize, int kBlocks, int kSequences>
__global__ void __launch_bounds__(threads_of(kSize, kBlocks))
    sequence_backward_kernel(Sizes sizes, const T* dhidden, const T* gates, const T* w_hh, const T* c0, const T* cells,
                             T* dc, T* dgates, T* dh0) {
#if __CUDA_ARCH__ >= 900
  // A warp multiplies the columns of four units; a lane has the gates of the units lane + 32 chunk.
  constexpr int kChunks = kSize / static_cast<int>(kWarp);
  __shared__ Exchange<kSequences, kGates * kSize> exchange;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int block = blockIdx.x % kBlocks, first = blockIdx.x / kBlocks * kSequences;
  const int warps_unit = block * (kSize / kBlocks) + warp * kUnits;

  float weights[kUnits][kGates * kChunks];
#pragma unroll
  for (int column = 0; column < kUnits; ++column)
#pragma unroll
    for (int i = 0; i < kGates * kChunks; ++i) {
      const int from = warps_unit + column, to = lane + static_cast<int>(kWarp) * (i / kGates);
      const bool inside = to < sizes.size && from < sizes.size;
      weights[column][i] = inside ? static_cast<float>(w_hh[(i % kGates * sizes.size + to) * sizes.size + from]) : 0.0f;
    }
  exchange.init();

  // The lane's gate of its unit, in its sequence; with one sequence, lanes four apart have the same.
  const int own = lane / 4 & 1, sequence = first + own % kSequences, gate = lane % kGates, unit = warps_unit + lane / 8;
  const bool inside = sequence < sizes.batch && unit < sizes.size, speaks = kSequences == 2 || own == 0;
  struct Saved {
    float input = 0, forget = 0, candidate = 0, output = 0, c_before = 0, dh = 0;
  };
  const auto saved_of = [&](int i) {
    Saved saved;
    if (!inside) return saved;
    const int t = sizes.step(i);
    const auto active = [&](int k) { return static_cast<float>(gates[sizes.gate(t, sequence, k, unit)]); };
    saved.input = active(0), saved.forget = active(1), saved.candidate = active(2), saved.output = active(3);
    saved.c_before = static_cast<float>(i == 0 ? c0[sizes.state(0, sequence, unit)]
                                               : cells[sizes.state(sizes.step(i - 1), sequence, unit)]);
    if (dhidden) saved.dh = static_cast<float>(dhidden[sizes.state(t, sequence, unit)]);
    return saved;
  };
  // dgates of the step after, times w_hh
  const auto through_products = [&](int i) {
    const auto& received = exchange.received(i);
    float sums[kUnits * kSequences] = {};
#pragma unroll
    for (int s = 0; s < kSequences; ++s)
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const float4 d = reinterpret_cast<const float4*>(received[s])[lane + static_cast<int>(kWarp) * chunk];
#pragma unroll
        for (int column = 0; column < kUnits; ++column) {
          float& sum = sums[column * kSequences + s];
          sum = fmaf(weights[column][4 * chunk], d.x, sum), sum = fmaf(weights[column][4 * chunk + 1], d.y, sum);
          sum = fmaf(weights[column][4 * chunk + 2], d.z, sum), sum = fmaf(weights[column][4 * chunk + 3], d.w, sum);
        }
      }
    return group_reduce_scatter<static_cast<int>(kWarp)>(sums, lane);
  };

  const int64_t at_start = sizes.state(0, sequence, unit);
  float dcell = inside ? static_cast<float>(dc[at_start]) : 0.0f;
  float c = inside ? static_cast<float>(cells[sizes.state(sizes.step(sizes.length - 1), sequence, unit)]) : 0.0f;
  Saved next = saved_of(sizes.length - 1);
  cluster_sync();

  for (int i = 0; i < sizes.length; ++i) {  // backwards
    const int forward = sizes.length - 1 - i, t = sizes.step(forward);
    const Saved saved = next;
    if (forward > 0) next = saved_of(forward - 1);
    const float tanh_of_c = ::tanhf(c);
    const float dh = saved.dh + (i == 0 ? 0.0f : through_products(i));
    dcell += dh * saved.output * (1 - tanh_of_c * tanh_of_c);
    const auto [input, forget, candidate, output, c_before, unused] = saved;
    const float slopes[kGates] = {dcell * candidate * (input * (1 - input)), dcell * c_before * (forget * (1 - forget)),
                                  dcell * input * (1 - candidate * candidate),
                                  dh * tanh_of_c * (output * (1 - output))};
    const T slope = static_cast<T>(gate == 0 ? slopes[0] : gate == 1 ? slopes[1] : gate == 2 ? slopes[2] : slopes[3]);
    dcell = static_cast<float>(static_cast<T>(dcell * forget));
    c = c_before;
    if (kSequences == 2)
      for (int to = 0; to < kBlocks; ++to) exchange.send(i, own, unit * kGates + gate, static_cast<float>(slope), to);
    else
      for (int to = own; to < kBlocks; to += 2)
        exchange.send(i, 0, unit * kGates + gate, static_cast<float>(slope), to);
    if (speaks && inside) dgates[sizes.gate(t, sequence, gate, unit)] = slope;
  }
  const float dh = through_products(sizes.length);
  if (speaks && inside && gate == 0) dc[at_start] = static_cast<T>(dcell), dh0[at_start] = static_cast<T>(dh);
  cluster_sync();
#endif
}

}  // namespace gradus::cuda_detail::lstm
