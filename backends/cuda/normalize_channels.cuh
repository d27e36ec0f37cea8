// Walks over dense images channel by channel, for batch norm: a thread stays with its channels, so that it reads once what
// belongs to them, and takes four neighbours at a time.
#pragma once

#include <gradus/backends/cuda/normalize.cuh>

namespace gradus::cuda_detail {

/// How the channels (axis 1) of a dense array lie, where a ChannelWalk serves it: each in planes of its own, or all of a
/// pixel side by side.
enum class ChannelOrder { other, planes, columns };

inline ChannelOrder channel_order(const Shape& shape, const Strides& strides) {
  const int n = shape.size();
  if (n < 2) return ChannelOrder::other;
  const auto lies_like = [&](const Strides& expected) {
    for (int i = 0; i < n; ++i)
      if (shape[i] != 1 && strides[i] != expected[i]) return false;
    return true;
  };
  int64_t plane = 1;
  for (int i = 2; i < n; ++i) plane *= shape[i];
  const bool contiguous = lies_like(contiguous_strides(shape));
  if (contiguous && plane % 4 == 0) return ChannelOrder::planes;
  const bool columns = n == 4 ? lies_like(channels_last_strides(shape)) : contiguous && plane == 1;
  return columns && shape[1] % 4 == 0 ? ChannelOrder::columns : ChannelOrder::other;
}

/// That of several arrays of one shape.
inline ChannelOrder common_channel_order(const Shape& shape, std::initializer_list<const Strides*> all) {
  const ChannelOrder order = channel_order(shape, **all.begin());
  for (const Strides* strides : all)
    if (channel_order(shape, *strides) != order) return ChannelOrder::other;
  return order;
}

/// True when the axes are all but that of the channels.
inline bool all_but_channels(uint32_t axes, int ndim) { return axes == (((1u << ndim) - 1) & ~2u); }

/// True when an operand is broadcast along all axes but that of the channels.
inline bool varies_by_channel(const Shape& shape, const Strides& strides) {
  for (int i = 0; i < shape.size(); ++i)
    if (i != 1 && shape[i] != 1 && strides[i] != 0) return false;
  return true;
}

/// A statistic or parameter of the channels.
template <class T>
struct PerChannel {
  Either<T> values;
  int64_t stride;

  PerChannel(const Either<T>& values, const Strides& strides) : values(values), stride(strides[1]) {}
  __device__ compute_t<T> at_or(compute_t<T> otherwise, uint32_t channel) const {
    return values.at_or(otherwise, channel * stride);
  }
};

/// What a thread has of each of its channels.
template <class Partial, int kCount>
struct Several {
  Partial of[kCount];

  static __device__ Several join(const Several& a, const Several& b) {
    Several joined;
#pragma unroll
    for (int c = 0; c < kCount; ++c) joined.of[c] = Partial::join(a.of[c], b.of[c]);
    return joined;
  }
};

/// The part of a block and thread: `count` packets of four elements of each channel (planes), or of each four channels
/// (columns), are cut into plan.splits. Columns: a block takes at most 64 packets of a pixel, 1 KiB of float32.
template <bool kColumns>
struct ChannelWalk {
  static constexpr int kChannels = kColumns ? 4 : 1;  ///< of a thread
  uint32_t channels, count;
  Divisor packets;  ///< of a plane; columns: of a pixel
  ReducePlan plan;
  uint32_t outputs_log2 = 0, lanes_log2 = 0;  // powers of two: shifts instead of divisions

  ChannelWalk(const Shape& shape, int multiprocessors) : channels(static_cast<uint32_t>(shape[1])) {
    int64_t plane = 1;
    for (int i = 2; i < shape.size(); ++i) plane *= shape[i];
    packets = Divisor(kColumns ? shape[1] / 4 : plane / 4);
    count = static_cast<uint32_t>(shape[0] * (kColumns ? plane : plane / 4));
    plan.outputs_adjacent = true;
    plan.outputs = kColumns ? std::min(std::bit_ceil(packets.divisor), 64u) : 1;
    plan.lanes = kThreads / plan.outputs;
    outputs_log2 = std::countr_zero(plan.outputs), lanes_log2 = std::countr_zero(plan.lanes);
    const int64_t wanted = 4 * multiprocessors / groups(), at_most = count / (8 * plan.lanes);
    plan.splits = static_cast<uint32_t>(std::clamp<int64_t>(std::min(wanted, at_most), 1, 1024));
    plan.per_split = (count + plan.splits - 1) / plan.splits;
  }
  int64_t groups() const { return kColumns ? plan.blocks(packets.divisor) : channels; }
  dim3 grid() const { return dim3(static_cast<uint32_t>(groups()), plan.splits); }

  /// f(channel) of this thread's channels. Columns: each by one thread of the block, since what waits for one value after
  /// the other would wait for four times as many. `shared` has kThreads values.
  template <class Value, class F>
  __device__ void for_channels(Value (&values)[kChannels], Value* shared, F&& f) const {
    if constexpr (kColumns) {
      const uint32_t channel = 4 * blockIdx.x * plan.outputs + threadIdx.x;
      if (threadIdx.x < 4 * plan.outputs) shared[threadIdx.x] = f(min(channel, channels - 1));
      __syncthreads();
#pragma unroll
      for (int c = 0; c < kChannels; ++c) values[c] = shared[4 * (threadIdx.x & (plan.outputs - 1)) + c];
    } else {
      values[0] = f(blockIdx.x);
    }
  }
  /// Calls body(i, number) for this thread's packets: i, i + plan.lanes and so on, `number` of them and at most kAtOnce.
  /// kBackwards: the last first, for a launch after one that went forwards finds those still in the cache.
  template <uint32_t kAtOnce, bool kBackwards, class Body>
  __device__ void for_packets(Body&& body) const {
    const uint32_t begin = blockIdx.y * plan.per_split, end = min(begin + plan.per_split, count);
    const uint32_t first = begin + lane(), stride = kAtOnce * plan.lanes;
    const uint32_t steps = first < end && !idle() ? (end - first + stride - 1) / stride : 0;
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t i = first + (kBackwards ? steps - 1 - step : step) * stride;
      body(i, min((end - i + plan.lanes - 1) >> lanes_log2, kAtOnce));
    }
  }
  /// Where packet i begins.
  __device__ uint32_t offset(uint32_t i) const {
    if constexpr (kColumns) {
      return 4 * (i * packets.divisor + packet());
    } else {
      const uint32_t image = packets.split(i);
      return 4 * ((image * channels + blockIdx.x) * packets.divisor + i);
    }
  }
  /// Loads the `number` packets from i on; those behind are the last one again.
  template <int kAtOnce, class T>
  __device__ void load(compute_t<T> (&values)[kAtOnce][4], const T* x, uint32_t i, uint32_t number) const {
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) load_dense<4>(values[k], x + offset(i + min(k, number - 1) * plan.lanes));
  }
  /// Joins what the threads of a block have for a channel and calls store(channel, index, total) in one of them; `index`
  /// is that of the block's part among the partial results of all splits.
  template <class Partial, class Store>
  __device__ void fold(const Several<Partial, kChannels>& totals, Several<Partial, kChannels>* shared,
                       Store&& store) const {
    const auto total = fold_lanes(plan, totals, shared, Several<Partial, kChannels>::join);
    if (lane() != 0 || idle()) return;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const uint32_t channel = kColumns ? 4 * packet() + c : blockIdx.x;
      store(channel, static_cast<int64_t>(blockIdx.y) * channels + channel, total.of[c]);
    }
  }

 private:
  __device__ uint32_t lane() const { return threadIdx.x >> outputs_log2; }
  // Columns: this thread's packet of every pixel; there may be none left for it.
  __device__ uint32_t packet() const { return (blockIdx.x << outputs_log2) + (threadIdx.x & (plan.outputs - 1)); }
  __device__ bool idle() const { return kColumns && packet() >= packets.divisor; }
};

/// Calls f.operator()<kColumns>().
template <class F>
void with_columns(ChannelOrder order, F&& f) {
  if (order == ChannelOrder::columns) f.template operator()<true>();
  else f.template operator()<false>();
}

}  // namespace gradus::cuda_detail
