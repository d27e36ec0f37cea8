// The kernels of batch norm and its gradients. Their template parameter Op, which normalize_channels.cu defines,
// determines what is summed and what is stored.
// Layout: images (N, C, H, W), NCHW or NHWC, dense; x may also be a slice of the channels of NHWC images.
// Grid: x = channels (NHWC: groups of up to 32 vectors of four channels), y = splits of a channel's elements, as many
// as fill one wave, and at least one.  Block: 512 threads; a thread processes vectors of four elements of its channel
// (NHWC: of its four channels; NCHW: single elements if planes do not consist of aligned vectors), a few at once, and
// loads the parameters of its channels only once.
// Pipeline: if the channels of a block or, for NHWC, of a cluster of up to eight blocks fit in its registers, one
// launch computes sums and results without reading the images twice (channel_resident_kernel). Otherwise
// channel_sums_kernel stores the sums of each split, and channel_apply_kernel adds the sums of its channels and stores
// the results, beginning with the last vectors, which are still in the cache.
// Deterministic: the order of all sums depends only on shapes and device.
#pragma once

#include <cooperative_groups.h>

#include <gradus/backends/cuda/device/warp.cuh>
#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus::cuda_detail {

/// Resident blocks of a multiprocessor. A thread may then use 64 registers; for float64 there is one block, and a
/// thread may use 128 registers.
template <class T>
inline constexpr int kChannelBlocks = sizeof(T) == 8 ? 1 : 2;

/// Iterates over the channels and vectors of a block and of a thread, for NHWC or NCHW images, in vectors of kVec
/// elements. kSliced: x is a slice of the channels of NHWC images, whose elements need not form aligned vectors.
template <bool kNhwc, int kVec_, bool kSliced = false>
struct ChannelIterator : ChannelTiling {
  static constexpr int kVec = kVec_, kChannels = kNhwc ? kVec : 1;  ///< kChannels: channels of a thread
  static constexpr int kMostLeaders = 32 * kChannels;

  explicit ChannelIterator(const ChannelTiling& tiling) : ChannelTiling(tiling) {}

  /// The number of channels of a block. Thread i is the leader of the block's channel i, and stores its results;
  /// functions whose names begin with `own` are about this channel.
  __device__ uint32_t block_channels() const { return kChannels << outputs_log2; }
  __device__ uint32_t own_channel() const { return blockIdx.x * block_channels() + threadIdx.x; }
  __device__ bool is_channel_leader() const { return threadIdx.x < block_channels() && own_channel() < channels; }
  /// For the c-th channel of this thread: channel(c) is its index in the image, slot(c) its index in the block.
  __device__ uint32_t channel(int c) const { return kNhwc ? kVec * vec() + c : blockIdx.x; }
  __device__ uint32_t slot(int c) const { return kNhwc ? kVec * (threadIdx.x & (outputs() - 1)) + c : 0; }
  /// Returns true for threads that have no channel.
  __device__ bool is_idle() const { return kNhwc && vec() >= vectors.divisor; }

  /// Number of elements of a channel.
  __device__ uint32_t elements() const { return kNhwc ? count : kVec * count; }

  /// The offset of vector i of this thread's channels.
  __device__ uint32_t offset(uint32_t i) const { return kNhwc ? kVec * (i * vectors.divisor + vec()) : in_plane(i); }
  /// The offset of the first element of the channel that this thread leads.
  __device__ uint32_t own_offset() const { return kNhwc ? own_channel() : in_plane(0); }

  /// A run of this thread's vectors: i, i + lanes, …, i + (number - 1) lanes, where lanes is 1 << lanes_log2.
  struct Run {
    uint32_t i, number;
  };
  /// All of a thread's vectors, as runs of at most kAtOnce.
  template <uint32_t kAtOnce>
  struct Runs {
    uint32_t first, end, lanes_log2, count;

    __device__ Run operator[](uint32_t run) const {
      const uint32_t i = first + (run * kAtOnce << lanes_log2);
      return {i, min((end - i + (1u << lanes_log2) - 1) >> lanes_log2, kAtOnce)};
    }
  };
  template <uint32_t kAtOnce>
  __device__ Runs<kAtOnce> runs() const {
    const uint32_t from = blockIdx.y * per_split, end = min(from + per_split, count);
    const uint32_t first = from + (threadIdx.x >> outputs_log2), stride = kAtOnce << lanes_log2;
    return {first, end, lanes_log2, first < end && !is_idle() ? (end - first + stride - 1) / stride : 0};
  }
  /// Loads a run; beyond its end the last vector is repeated. kOnce: tells the cache that the vectors are not read
  /// again soon.
  template <bool kOnce = false, class T, uint32_t kAtOnce>
  __device__ void load(Vec<T, kVec> (&values)[kAtOnce], const T* x, Run run) const {
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k)
      values[k] = load_vector<kOnce>(x + offset(run.i + (min(k, run.number - 1) << lanes_log2)));
  }
  /// Loads a run of x, which may be a slice of channels.
  template <class T, uint32_t kAtOnce>
  __device__ void load_x(Vec<T, kVec> (&values)[kAtOnce], const T* x, Run run) const {
    if constexpr (kSliced) {
#pragma unroll
      for (uint32_t k = 0; k < kAtOnce; ++k)
#pragma unroll
        for (int j = 0; j < kVec; ++j)
          values[k].value[j] = x[(run.i + (min(k, run.number - 1) << lanes_log2)) * pitch + kVec * vec() + j];
    } else {
      load(values, x, run);
    }
  }
  /// Stores the k-th vector of a run.
  template <class T>
  __device__ void store(T* y, const Vec<T, kVec>& values, Run run, uint32_t k) const {
    *reinterpret_cast<Vec<T, kVec>*>(y + offset(run.i + (k << lanes_log2))) = values;
  }

  /// Adds the sums of all threads of a block for each channel; a leader gets the sums of its channel. `shared` has
  /// kChannels * kChannelThreads values.
  template <class C>
  __device__ Sums<C> fold(const Sums<C> (&sums)[kChannels], Sums<C>* shared) const {
    constexpr uint32_t kTeam = kChannelThreads / kChannels, kWarps = kTeam / 32;
    Sums<C> sum = sums[0];
    if constexpr (kNhwc) {  // team c of kTeam threads adds the sums of the threads' c-th channels
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

  /// Adds the sums of all splits, which are the blocks of a cluster, in the order of the blocks; the leaders get the
  /// result. `shared` has 32 * kChannels values. Each block must call leave_cluster() before it ends.
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

  /// Adds the sums that all splits stored for a block's channels; each leader gets the sums of its channel. `shared`
  /// has the size that fold() requires.
  template <class C>
  __device__ Sums<C> over_splits(const Sums<C>* of_splits, Sums<C>* shared) const {
    Sums<C> sums[kChannels] = {};
    const uint32_t end = is_idle() ? 0 : splits;
#pragma unroll 4
    for (uint32_t split = threadIdx.x >> outputs_log2; split < end; split += 1u << lanes_log2)
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sums[c] = Sums<C>::join(sums[c], of_splits[split * channels + channel(c)]);
    return fold(sums, shared);
  }

 private:
  template <bool kOnce, class T>
  static __device__ Vec<T, kVec> load_vector(const T* from) {
    using Word = std::conditional_t<sizeof(Vec<T, kVec>) == 8, uint2, uint4>;
    Vec<T, kVec> vector;
    if constexpr (kOnce && sizeof(vector) == sizeof(Word)) {
      const Word word = __ldcs(reinterpret_cast<const Word*>(from));
      memcpy(&vector, &word, sizeof(word));
      return vector;
    }
    return cuda_detail::load<kVec>(from);
  }
  __device__ uint32_t outputs() const { return 1u << outputs_log2; }
  // NHWC: which vector of each pixel this thread processes. May be beyond the pixel's last vector.
  __device__ uint32_t vec() const { return (blockIdx.x << outputs_log2) + (threadIdx.x & (outputs() - 1)); }
  __device__ uint32_t in_plane(uint32_t i) const {
    const uint32_t image = vectors.split(i);
    return kVec * ((image * channels + blockIdx.x) * vectors.divisor + i);
  }
};

/// The normalised x. Forward and backward share this function, so that both round in the same way.
template <class C>
__device__ C affine(C x, C centre, C scale, C shift) {
  return ::fma(x - centre, scale, shift);
}

// An Op has the following types and functions. Functions whose names contain `own` are about the channel of which the
// thread is the leader.
//   Element
//   Own: what a leader loads before the sums are known
//   Known known(it, c): data of the thread's c-th channel that do not depend on the sums
//   Line: the coefficients of a channel's results
//   Vectors<n, kVec>: n vectors of every operand
//   load_x(vectors, it, run): loads x, which channel_sums_kernel does not change
//   load_rest(vectors, it, run): loads the other operands, which channel_sums_kernel may store
//   terms(vectors, k, j, known): what element j of vector k adds to the sums
//   result(vectors, k, j, line): the result of element j of vector k
//   Own load_own(it, writes_stats)
//   Line own_line(own, it, sums, has_sums, writes_stats): also stores the results of a channel, such as its statistics
//   store_residual(vectors, it, run): stores what the sums kernel passes on to the apply kernel, if anything

template <class Op>
using compute_of = compute_t<typename Op::Element>;

template <class Op>
__device__ void load(auto& vectors, const Op& op, const auto& it, const auto& run) {
  op.load_x(vectors, it, run);
  op.load_rest(vectors, it, run);
}

template <class Op, class It>
__device__ void load_known(typename Op::Known (&known)[It::kChannels], const Op& op, const It& it) {
#pragma unroll
  for (int c = 0; c < it.kChannels; ++c) known[c] = it.is_idle() ? typename Op::Known{} : op.known(it, c);
}

/// Adds the terms of `number` vectors to the sums.
template <uint32_t kVectors, int kVec, class Op, class C, int kChannels>
__device__ void add_terms(Sums<C> (&sums)[kChannels], const Op& op, const auto& in, uint32_t number,
                          const typename Op::Known (&known)[kChannels]) {
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k)
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      const Sums<C> terms = op.terms(in, k, j, known[j % kChannels]);
      sums[j % kChannels] = Sums<C>::join(sums[j % kChannels], k < number ? terms : Sums<C>{0, 0});
    }
}

/// Computes and stores the results of a run.
template <uint32_t kVectors, class Op, class It>
__device__ void store_results(const Op& op, const auto& in, const It& it, typename It::Run run,
                              const typename Op::Line (&lines)[It::kChannels]) {
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    if (k >= run.number) break;
    Vec<typename Op::Element, It::kVec> results;
#pragma unroll
    for (int j = 0; j < It::kVec; ++j)
      results.value[j] = static_cast<typename Op::Element>(op.result(in, k, j, lines[j % It::kChannels]));
    it.store(op.out, results, run, k);
  }
}

/// Loads the coefficients of the thread's channels, which the leaders stored in `of_block`.
template <class Line, class It>
__device__ void load_lines(Line (&lines)[It::kChannels], const Line* of_block, const It& it) {
  __syncthreads();
#pragma unroll
  for (int c = 0; c < it.kChannels; ++c) lines[c] = of_block[it.slot(c)];
}

/// Stores the sums of every split. A thread loads kVectors vectors of each operand at once.
template <class Op, uint32_t kVectors, class It>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<typename Op::Element>)
    channel_sums_kernel(Op op, It it, Sums<compute_of<Op>>* of_splits) {
  using C = compute_of<Op>;
  __shared__ Sums<C> shared[it.kChannels * kChannelThreads];
  launch_dependents();
  typename Op::Known known[it.kChannels];
  load_known(known, op, it);
  Sums<C> sums[it.kChannels] = {};
  const auto runs = it.template runs<kVectors>();
  for (uint32_t r = 0; r < runs.count; ++r) {
    typename Op::template Vectors<kVectors, It::kVec> in;
    load(in, op, it, runs[r]);
    add_terms<kVectors, It::kVec>(sums, op, in, runs[r].number, known);
    op.store_residual(in, it, runs[r]);
  }
  const Sums<C> sum = it.fold(sums, shared);
  if (it.is_channel_leader()) of_splits[static_cast<int64_t>(blockIdx.y) * it.channels + it.own_channel()] = sum;
}

/// Computes and stores the results from the sums of all splits; `of_splits` is null if no sums are needed. After
/// channel_sums_kernel this kernel is launched early (LaunchOptions): while that kernel still computes the sums, this
/// one loads memory that channel_sums_kernel does not write.
template <class Op, uint32_t kVectors, class It>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<typename Op::Element>)
    channel_apply_kernel(Op op, It it, const Sums<compute_of<Op>>* of_splits) {
  using C = compute_of<Op>;
  __shared__ Sums<C> shared[it.kChannels * kChannelThreads];
  __shared__ typename Op::Line of_block[it.kMostLeaders];
  const bool leads = it.is_channel_leader(), writes_stats = leads && blockIdx.y == 0;
  typename Op::Own own;
  if (leads) own = op.load_own(it, writes_stats);
  typename Op::template Vectors<kVectors, It::kVec> last;
  const auto runs = it.template runs<kVectors>();
  const uint32_t count = op.out ? runs.count : 0;
  if (count > 0) op.load_x(last, it, runs[count - 1]);
  wait_for_grid();
  launch_dependents();
  if (count > 0) op.load_rest(last, it, runs[count - 1]);
  Sums<C> sum{0, 0};
  if (of_splits) sum = it.over_splits(of_splits, shared);
  if (leads) of_block[threadIdx.x] = op.own_line(own, it, sum, of_splits, writes_stats);
  if (!op.out) return;
  typename Op::Line lines[it.kChannels];
  load_lines(lines, of_block, it);
  if (count > 0) store_results<kVectors>(op, last, it, runs[count - 1], lines);
  for (uint32_t r = count; r-- > 1;) {
    typename Op::template Vectors<kVectors, It::kVec> in;
    load(in, op, it, runs[r - 1]);
    store_results<kVectors>(op, in, it, runs[r - 1], lines);
  }
}

/// Computes sums and results in one launch. A thread keeps its vectors, at most kVectors, in registers.
template <class Op, uint32_t kVectors, class It>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks<typename Op::Element>*(kVectors == 1 ? 2 : 1))
    channel_resident_kernel(Op op, It it) {
  using C = compute_of<Op>;
  __shared__ Sums<C> shared[it.kChannels * kChannelThreads], of_blocks[it.kMostLeaders];
  __shared__ typename Op::Line of_block[it.kMostLeaders];
  const bool leads = it.is_channel_leader(), writes_stats = leads && blockIdx.y == 0;
  typename Op::template Vectors<kVectors, It::kVec> in;
  wait_for_grid();
  launch_dependents();
  const auto runs = it.template runs<kVectors>();
  const typename It::Run all = runs.count ? runs[0] : typename It::Run{};
  if (all.number > 0) load(in, op, it, all);
  typename Op::Known known[it.kChannels];
  load_known(known, op, it);
  typename Op::Own own;
  if (leads) own = op.load_own(it, writes_stats);
  Sums<C> sums[it.kChannels] = {};
  add_terms<kVectors, It::kVec>(sums, op, in, all.number, known);
  const Sums<C> sum = it.over_cluster(it.fold(sums, shared), of_blocks);
  if (leads) of_block[threadIdx.x] = op.own_line(own, it, sum, true, writes_stats);
  typename Op::Line lines[it.kChannels];
  load_lines(lines, of_block, it);
  op.store_residual(in, it, all);
  if (op.out) store_results<kVectors>(op, in, it, all, lines);
  it.leave_cluster();
}

/// Launches the kernels of the plan: the resident kernel with the Op `resident`, or the sums kernel with `sums` (a
/// thread loads kSums vectors at once) and then the apply kernel with `apply` (kApply vectors). With kOnlyNhwc, only
/// the kernels for NHWC are compiled.
template <uint32_t kSums, uint32_t kApply, bool kOnlyNhwc = false, class Resident, class SumsOp, class Apply>
void launch_channels(const Launch& launch, const NormPlan& plan, void* workspace, const Resident& resident,
                     const SumsOp& sums, const Apply& apply) {
  const ChannelTiling& tiling = plan.channels;
  const dim3 grid(tiling.groups(), tiling.splits);
  const auto of_splits = static_cast<Sums<compute_of<Apply>>*>(workspace);
  const auto run = [&]<class It>(const It& it) {
    if (tiling.resident)
      return launch.with({.cluster = dim3(1, tiling.splits), .early = true},
                         tiling.of_thread(tiling.per_split) == 1
                             ? channel_resident_kernel<Resident, 1, It>
                             : channel_resident_kernel<Resident, ChannelTiling::kResident, It>,
                         grid, kChannelThreads, resident, it);
    // channel_sums_kernel is not launched early, because its loads need the first-level cache. Blocks that are launched
    // early inherit the partition of shared memory and cache from the previous kernel; after a convolution, this
    // partition leaves little cache.
    if (of_splits) launch(channel_sums_kernel<SumsOp, kSums, It>, grid, kChannelThreads, sums, it, of_splits);
    launch.with({.early = of_splits != nullptr}, channel_apply_kernel<Apply, kApply, It>, grid, kChannelThreads, apply,
                it, of_splits);
  };
  if constexpr (kOnlyNhwc) {
    run(ChannelIterator<true, 4>(tiling));
  } else {
    if (tiling.pitch) run(ChannelIterator<true, 4, true>(tiling));
    else if (tiling.nhwc) run(ChannelIterator<true, 4>(tiling));
    else if (tiling.vec == 4) run(ChannelIterator<false, 4>(tiling));
    else run(ChannelIterator<false, 1>(tiling));
  }
}

}  // namespace gradus::cuda_detail
