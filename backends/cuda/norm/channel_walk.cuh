// Walks over dense images channel by channel, for batch norm: a thread stays with its channels, so that it reads once
// what belongs to them, and takes a vector of neighbours at a time. A sum over channels is cut into splits, one for
// each block of a group of channels; the blocks of the launch that uses the sums join the splits' parts themselves,
// each those of its own channels: the parts are few, lie in the cache, and a launch for them would take longer than
// reading them again. The order of all sums depends on shapes and device alone. Tried on an H200, and slower or no
// faster: vectors of 16 bytes of half types, groups of 16 or 64 channels, blocks of 256 threads, and to load the first
// vectors before the parts are joined.
#pragma once

#include <cooperative_groups.h>

#include <bit>
#include <optional>

#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>
#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus::cuda_detail {

/// How the channels (axis 1) of a dense array lie, where a ChannelWalk serves it: each in planes of its own, or all of
/// a pixel side by side.
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

/// True when the axes are all but that of the channels.
inline bool all_but_channels(uint32_t axes, int ndim) { return axes == (((1u << ndim) - 1) & ~2u); }

/// True when all operands (null: none) are broadcast along all axes but that of the channels.
inline bool vary_by_channel(const Shape& shape, std::initializer_list<const View*> operands) {
  for (const View* operand : operands)
    for (int i = 0; operand && i < shape.size(); ++i)
      if (i != 1 && shape[i] != 1 && operand->strides[i] != 0) return false;
  return true;
}

/// A statistic or parameter of the channels.
template <class T>
struct PerChannel {
  Either<T> values;
  int64_t stride = 0;

  explicit PerChannel(const View* view) : values(view), stride(view && view->shape[1] != 1 ? view->strides[1] : 0) {}
  __device__ compute_t<T> at_or(compute_t<T> otherwise, uint32_t channel) const {
    return values.at_or(otherwise, channel * stride);
  }
};

/// Where a number for each channel goes; null data: nowhere.
struct ChannelResult {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t stride = 0;

  explicit ChannelResult(const MutableView* view) {
    if (view) data = view->data, dtype = view->dtype, stride = view->strides[1];
  }
  __device__ void store(uint32_t channel, auto value) const {
    if (data) store_as(data, dtype, channel * stride, value);
  }
};

inline constexpr uint32_t kChannelThreads = 512;
/// Blocks of a multiprocessor: a thread may have 64 registers, of double 128.
template <class T>
inline constexpr int kChannelBlocks = sizeof(T) == 8 ? 1 : 2;

/// The part of a block and thread: `count` vectors of four elements of each channel (planes), or of each four channels
/// (columns), are cut into `splits`. There is one wave of blocks.
template <bool kColumns>
struct ChannelWalk {
  static constexpr int kChannels = kColumns ? 4 : 1;  ///< of a thread
  /// So many vectors of a thread stay in its registers from one pass to the next, where channels are `whole`.
  static constexpr uint32_t kWhole = 4;
  uint32_t channels, count;
  Divisor vectors;                            ///< of a plane; columns: of a pixel
  uint32_t outputs_log2 = 0, lanes_log2 = 0;  ///< vectors of a pixel that a block has; threads for each
  uint32_t splits = 1, per_split = 0;
  bool whole = false;  ///< a block, or all blocks of a cluster, have their channels in registers

  /// Columns: the fewer channels a group of blocks has, the fewer parts each of them joins; but 32 of them are 64 bytes
  /// or more at a place, and where pixels are few wider groups keep all threads busy. Where a block, or of columns a
  /// cluster of so many, can have its channels whole, one launch does what else takes two. On an H200, in us: 128
  /// images of 512x4x4 in planes 4.4 instead of 12.5; channels-last 6.1 instead of 8.2, 32 of them 3.4 instead of 5.6,
  /// 32 of 256x8x8 4.2 instead of 7.0. Clusters of planes, and of images with more pixels, were slower than two
  /// launches.
  ChannelWalk(const Shape& shape, int64_t blocks, uint32_t most_of_cluster)
      : channels(static_cast<uint32_t>(shape[1])) {
    int64_t plane = 1;
    for (int i = 2; i < shape.size(); ++i) plane *= shape[i];
    vectors = Divisor((kColumns ? channels : plane) / 4);
    count = static_cast<uint32_t>(shape[0] * (kColumns ? plane : plane / 4));
    uint32_t outputs = kColumns ? std::min(std::bit_ceil(vectors.divisor), count <= kChannelThreads ? 4u : 8u) : 1;
    while (kColumns && outputs < 32 && outputs < vectors.divisor && kChannelThreads / outputs > count) outputs *= 2;
    outputs_log2 = std::countr_zero(outputs), lanes_log2 = std::countr_zero(kChannelThreads / outputs);
    const uint32_t of_cluster = std::bit_ceil((of_thread(count) + kWhole - 1) / kWhole);
    whole = of_cluster <= (kColumns ? most_of_cluster : 1);
    const int64_t wanted =
        whole ? of_cluster : std::clamp<int64_t>(blocks / groups(), 1, std::max(count >> lanes_log2, 1u));
    per_split = static_cast<uint32_t>((count + wanted - 1) / wanted);
    splits = (count + per_split - 1) / per_split;
  }
  uint32_t groups() const { return kColumns ? (vectors.divisor + (1u << outputs_log2) - 1) >> outputs_log2 : channels; }
  dim3 grid() const { return dim3(groups(), splits); }
  /// The most vectors of `size` that a thread has.
  uint32_t of_thread(uint32_t size) const { return (size + (1u << lanes_log2) - 1) >> lanes_log2; }

  /// A block's channels, each of which has a thread of that number that speaks for it.
  __device__ uint32_t block_channels() const { return kChannels << outputs_log2; }
  __device__ uint32_t own_channel() const { return blockIdx.x * block_channels() + threadIdx.x; }
  __device__ bool speaks() const { return threadIdx.x < block_channels() && own_channel() < channels; }
  /// The number among the block's channels of this thread's c-th.
  __device__ uint32_t slot(int c) const { return kColumns ? 4 * (threadIdx.x & (outputs() - 1)) + c : 0; }
  /// True for threads that have no channel.
  __device__ bool idle() const { return kColumns && vec() >= vectors.divisor; }

  /// Vectors and elements of a channel in a split.
  __device__ uint32_t begin(uint32_t split) const { return split * per_split; }
  __device__ uint32_t size(uint32_t split) const { return min(per_split, count - begin(split)); }
  __device__ uint32_t elements(uint32_t vectors) const { return kColumns ? vectors : 4 * vectors; }

  /// Where vector i of this thread begins.
  __device__ uint32_t offset(uint32_t i) const { return kColumns ? 4 * (i * vectors.divisor + vec()) : in_planes(i); }
  /// Where vector i has its first element of the channel that this thread speaks for.
  __device__ uint32_t own_offset(uint32_t i) const { return kColumns ? i * channels + own_channel() : in_planes(i); }

  /// Calls body(i, number) for this thread's vectors: i, i + lanes and so on, `number` of them and at most kAtOnce.
  /// kBackwards: the last first, for a launch after one that went forwards finds those still in the cache.
  template <uint32_t kAtOnce, bool kBackwards, class Body>
  __device__ void for_packets(Body&& body) const {
    const uint32_t from = begin(blockIdx.y), end = from + size(blockIdx.y);
    const uint32_t first = from + (threadIdx.x >> outputs_log2), stride = kAtOnce << lanes_log2;
    const uint32_t steps = first < end && !idle() ? (end - first + stride - 1) / stride : 0;
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t i = first + (kBackwards ? steps - 1 - step : step) * stride;
      const uint32_t number = (end - i + (1u << lanes_log2) - 1) >> lanes_log2;
      body(i, min(number, kAtOnce));
    }
  }
  /// Loads the `number` vectors from i on; those behind are the last one again.
  template <class T, uint32_t kAtOnce>
  __device__ void load(Vec<T, 4> (&values)[kAtOnce], const T* x, uint32_t i, uint32_t number) const {
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k)
      values[k] = *reinterpret_cast<const Vec<T, 4>*>(x + offset(i + (min(k, number - 1) << lanes_log2)));
  }
  template <class T>
  __device__ void store(T* y, const Vec<T, 4>& values, uint32_t i) const {
    *reinterpret_cast<Vec<T, 4>*>(y + offset(i)) = values;
  }

  /// Adds up what the threads of a block have for each of their channels; the threads that speak get their channel's
  /// sums. `shared` has kChannels * kChannelThreads values.
  template <class C>
  __device__ Sums<C> fold(const Sums<C> (&sums)[kChannels], Sums<C>* shared) const {
    constexpr uint32_t kTeam = kChannelThreads / kChannels, kWarps = kTeam / 32;
    Sums<C> sum = sums[0];
    if constexpr (kColumns) {  // a team of threads for each c
#pragma unroll
      for (int c = 0; c < kChannels; ++c) shared[c * kChannelThreads + threadIdx.x] = sums[c];
      __syncthreads();
      const Sums<C>* mine = shared + threadIdx.x / kTeam * kChannelThreads + threadIdx.x % kTeam;
      sum = mine[0];
#pragma unroll
      for (int k = 1; k < kChannels; ++k) sum = Sums<C>::join(sum, mine[k * kTeam]);
      __syncthreads();
    }
    for (uint32_t step = 16; step >= outputs(); step /= 2) sum = Sums<C>::join(sum, sum.shfl_xor(step));
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane < outputs()) shared[(warp << outputs_log2) + lane] = sum;
    __syncthreads();
    if (threadIdx.x >= block_channels()) return sum;
    const Sums<C>* mine = shared + ((threadIdx.x % kChannels * kWarps) << outputs_log2) + threadIdx.x / kChannels;
    sum = mine[0];
#pragma unroll
    for (uint32_t k = 1; k < kWarps; ++k) sum = Sums<C>::join(sum, mine[k << outputs_log2]);
    return sum;
  }

  /// Adds up the sums of all splits, which are the blocks of a cluster, in their order, for the threads that speak.
  /// `shared` has 32 * kChannels values, and no block may end before leave_cluster().
  template <class C>
  __device__ Sums<C> over_cluster(const Sums<C>& sums, Sums<C>* shared) const {
#if __CUDA_ARCH__ >= 900
    if (splits == 1) return sums;
    const auto cluster = cooperative_groups::this_cluster();
    if (threadIdx.x < block_channels()) shared[threadIdx.x] = sums;
    cluster.sync();
    Sums<C> total{0, 0};
    if (threadIdx.x < block_channels())
      for (uint32_t split = 0; split < splits; ++split)
        total = Sums<C>::join(total, *cluster.map_shared_rank(shared + threadIdx.x, split));
    cluster.barrier_arrive();
    return total;
#else
    return sums;
#endif
  }
  __device__ void leave_cluster() const {
#if __CUDA_ARCH__ >= 900
    if (splits > 1) cooperative_groups::this_cluster().barrier_wait();
#endif
  }

  /// Joins the parts of all splits, that of a channel being total_of(part, split); the threads that speak get their
  /// channel's total. Total{} joined with another is the other. `shared` has kChannelThreads values.
  template <class Total, class Part, class F>
  __device__ Total join(const Part* parts, Total* shared, F&& total_of) const {
    constexpr uint32_t kAtOnce = 8;  // loads under way together
    const uint32_t slot = threadIdx.x & (block_channels() - 1), lane = threadIdx.x / block_channels();
    const uint32_t channel = min(blockIdx.x * block_channels() + slot, channels - 1);
    const uint32_t step = kChannelThreads / block_channels();
    Total total{};
    for (uint32_t first = lane; first < splits; first += kAtOnce * step) {
      Part part[kAtOnce] = {};
#pragma unroll
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        const uint32_t split = first + k * step;
        if (split < splits) part[k] = parts[split * channels + channel];
      }
#pragma unroll
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        const uint32_t split = first + k * step;
        if (split < splits) total = Total::join(total, total_of(part[k], split));
      }
    }
    shared[threadIdx.x] = total;
    for (uint32_t width = step / 2; width > 0; width /= 2) {
      if (width >= splits) continue;  // nothing lies there
      __syncthreads();
      if (lane < width)
        shared[threadIdx.x] = total = Total::join(total, shared[threadIdx.x + width * block_channels()]);
    }
    return total;
  }

 private:
  __device__ uint32_t outputs() const { return 1u << outputs_log2; }
  // Columns: this thread's vector of every pixel; there may be none left for it.
  __device__ uint32_t vec() const { return (blockIdx.x << outputs_log2) + (threadIdx.x & (outputs() - 1)); }
  __device__ uint32_t in_planes(uint32_t i) const {
    const uint32_t image = vectors.split(i);
    return 4 * ((image * channels + blockIdx.x) * vectors.divisor + i);
  }
};

/// Calls f(walk) with the walk that serves arrays that lie like x, on a device that may have clusters; false where none
/// does.
template <class T, class F>
bool with_channel_walk(const View& x, std::initializer_list<const View*> others, int multiprocessors, bool clusters,
                       F&& f) {
  constexpr uint32_t kMostOfCluster = 8;  // that every device with clusters has
  const ChannelOrder order = channel_order(x.shape, x.strides);
  if (order == ChannelOrder::other || x.numel() == 0 || x.numel() > kMaxChunk || !aligned(x.as<T>())) return false;
  for (const View* view : others)
    if (view && (channel_order(x.shape, view->strides) != order || !aligned(view->as<T>()))) return false;
  const int blocks = kChannelBlocks<T> * multiprocessors;
  if (order == ChannelOrder::columns) f(ChannelWalk<true>(x.shape, blocks, clusters ? kMostOfCluster : 1));
  else f(ChannelWalk<false>(x.shape, blocks, 1));
  return true;
}

}  // namespace gradus::cuda_detail
