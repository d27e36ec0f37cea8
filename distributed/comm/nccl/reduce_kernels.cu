// y = finish(x_0 + x_1 + … of all ranks), summed in the order of the ranks, so that all ranks get the same bits.
//
// Blocks with the same number on all GPUs wait for each other through flags in each other's memory (exchange()). There
// are few blocks, because waiting blocks occupy multiprocessors that the backward pass needs.
#include <gradus/distributed/comm/nccl/peer_memory.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cuda/atomic>

#include <gradus/distributed/comm/reduce.h>

namespace gradus::dist {
namespace {

constexpr unsigned kBlocks = 32, kThreads = 256;

/// The beginning of each rank's memory, with a row for each block. The last row belongs to wait_kernel().
struct Flags {
  uint32_t arrived[kBlocks + 1][kMaxPeers];  // [block][r]: number of exchange() calls that this block of rank r began
  uint32_t exchanges[kBlocks + 1];           // [block]: number of exchange() calls of this block of this rank
};
static_assert(sizeof(Flags) <= kPeerFlagBytes);

__device__ Flags& flags_of(const Peers& peers, int rank) { return *reinterpret_cast<Flags*>(peers.memory[rank]); }

/// Waits until the block with this number has made the same call of exchange() on all ranks. Afterwards this block can
/// read what those blocks wrote before. Returns false if the group was stopped meanwhile; the memory of another rank
/// may then be freed.
__device__ bool exchange(const Peers& peers, unsigned block) {
  using Flag = cuda::atomic_ref<uint32_t, cuda::thread_scope_system>;
  Flags& own = flags_of(peers, peers.rank);
  const uint32_t count = own.exchanges[block] + 1;
  bool arrived = true;
  __syncthreads();
  if (const int r = static_cast<int>(threadIdx.x); r < peers.size && r != peers.rank) {
    Flag(flags_of(peers, r).arrived[block][peers.rank]).store(count, cuda::memory_order_release);
    const Flag other(own.arrived[block][r]);
    const volatile int* const stopped = peers.stopped;
    for (unsigned i = 1; static_cast<int32_t>(other.load(cuda::memory_order_acquire) - count) < 0; ++i)
      if (i % 1024 == 0 && *stopped != 0) {
        arrived = false;
        break;
      }
  }
  if (threadIdx.x == 0) own.exchanges[block] = count;
  return __syncthreads_and(arrived);
}

/// Loads a part of an array. The array may end inside the part, and may be aligned to its elements only.
template <class T>
__device__ uint4 load_part(const T* x, size_t part, size_t count) {
  constexpr size_t kElements = kPartBytes / sizeof(T);
  const size_t begin = part * kElements;
  if (begin + kElements <= count && reinterpret_cast<uintptr_t>(x) % kPartBytes == 0)
    return *reinterpret_cast<const uint4*>(x + begin);
  uint4 loaded{};
  for (size_t k = 0; k < kElements && begin + k < count; ++k) reinterpret_cast<T*>(&loaded)[k] = x[begin + k];
  return loaded;
}

template <class T>
__device__ void store_part(T* y, size_t part, size_t count, const uint4& value) {
  constexpr size_t kElements = kPartBytes / sizeof(T);
  const size_t begin = part * kElements;
  if (begin + kElements <= count && reinterpret_cast<uintptr_t>(y) % kPartBytes == 0) {
    *reinterpret_cast<uint4*>(y + begin) = value;
    return;
  }
  for (size_t k = 0; k < kElements && begin + k < count; ++k) y[begin + k] = reinterpret_cast<const T*>(&value)[k];
}

/// Number of parts, of kPartBytes each, that a block sums at a time: 4 for each thread, or 2 for types of less than
/// four bytes, whose parts have more elements.
template <class T>
constexpr size_t kPartsOfBlock = (sizeof(T) < 4 ? 2 : 4) * kThreads;

/// Sums the parts from `begin` to `end` in one block. load(rank, part) returns the operand of a rank, and store(part,
/// sum) stores the sum.
template <class T, ReduceKind kind, class Load, class Store>
__device__ void reduce_parts(size_t begin, size_t end, int ranks, Load load, Store store) {
  constexpr int kElements = kPartBytes / sizeof(T), kUnroll = kPartsOfBlock<T> / kThreads;
  using Sum = compute_t<T>;
  for (size_t first = begin + threadIdx.x; first < end; first += kUnroll * kThreads) {
    Sum sum[kUnroll][kElements];
    for (int r = 0; r < ranks; ++r) {
      uint4 x[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (first + u * kThreads < end) x[u] = load(r, first + u * kThreads);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
          const Sum summand = static_cast<Sum>(reinterpret_cast<const T*>(&x[u])[k]);
          sum[u][k] = r == 0 ? summand : combine<kind>(sum[u][k], summand);
        }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * kThreads >= end) break;
      uint4 y;
#pragma unroll
      for (int k = 0; k < kElements; ++k)
        reinterpret_cast<T*>(&y)[k] = static_cast<T>(finish<kind>(sum[u][k], static_cast<size_t>(ranks)));
      store(first + u * kThreads, y);
    }
  }
}

__global__ void wait_kernel(const __grid_constant__ Peers peers) { exchange(peers, kBlocks); }

/// Parts [begin, end) of a line. A block has them in its staging memory from part `staged` on.
struct Section {
  size_t begin, end, staged;
};

/// Calls f(line, section) for each line of which this block has parts. The parts of all lines are numbered
/// consecutively, and block b has the `per_block` parts from number b * per_block on.
template <class T, class F>
__device__ void for_each_section(const PeerLines& lines, size_t per_block, F f) {
  constexpr size_t kElements = kPartBytes / sizeof(T);
  const size_t low = blockIdx.x * per_block, high = low + per_block;
  size_t before = 0;
  for (int l = 0; l < lines.size && before < high; ++l) {
    const size_t parts = ceil_div(lines.count[l], kElements), begin = max(low, before);
    if (begin < before + parts) f(l, Section{begin - before, min(high - before, parts), begin - low});
    before += parts;
  }
}

// Each block has a piece of staging memory in each of the two halves. Successive calls use the halves alternately.
// Before a rank writes to a half again, it has waited for all ranks once more, so no rank still reads the old values.
template <class T, ReduceKind kind>
__global__ void __launch_bounds__(kThreads)
    all_reduce_lines_kernel(const __grid_constant__ Peers peers, const __grid_constant__ PeerLines lines,
                            size_t per_block) {
  const size_t offset =
      (flags_of(peers, peers.rank).exchanges[blockIdx.x] % 2 * kBlocks + blockIdx.x) * (peers.staging / kBlocks);
  const auto staging = [&](int r) { return reinterpret_cast<uint4*>(peers.memory[r] + kPeerFlagBytes + offset); };
  for_each_section<T>(lines, per_block, [&](int l, const Section& s) {
    for (size_t i = s.begin + threadIdx.x; i < s.end; i += kThreads)
      staging(peers.rank)[s.staged + i - s.begin] = load_part(static_cast<const T*>(lines.in[l]), i, lines.count[l]);
  });
  if (!exchange(peers, blockIdx.x)) return;
  for_each_section<T>(lines, per_block, [&](int l, const Section& s) {
    reduce_parts<T, kind>(
        s.begin, s.end, peers.size, [&](int r, size_t i) { return staging(r)[s.staged + i - s.begin]; },
        [&](size_t i, const uint4& sum) { store_part(static_cast<T*>(lines.out[l]), i, lines.count[l], sum); });
  });
}

template <class T, ReduceKind kind>
__global__ void __launch_bounds__(kThreads)
    reduce_slots_kernel(const __grid_constant__ Peers peers, const T* in, T* out, size_t count) {
  constexpr size_t kElements = kPartBytes / sizeof(T);
  const size_t begin = blockIdx.x * kPartsOfBlock<T>, parts = ceil_div(count, kElements);
  const auto slot = [&](int r) { return reinterpret_cast<uint4*>(peers.slot_of(peers.rank, r)); };
  reduce_parts<T, kind>(
      begin, min(begin + kPartsOfBlock<T>, parts), peers.size,
      [&](int r, size_t i) { return r == peers.rank ? load_part(in, i, count) : slot(r)[i]; },
      [&](size_t i, const uint4& sum) {
        store_part(out, i, count, sum);
        slot(peers.rank)[i] = sum;
      });
}

cudaStream_t cuda_stream(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle); }

void check(const char* what, cudaError_t error) {
  GRADUS_CHECK(error == cudaSuccess, DeviceError, "a reduction on the GPU: ", what, ": ", cudaGetErrorName(error), " (",
               cudaGetErrorString(error), ")");
}
void check_launch() { check("a kernel was not launched", cudaGetLastError()); }

/// Calls f.operator()<T, kind>(), where T is the C++ type of `dtype` and `kind` is the constant sum or avg.
template <class F>
void visit_floating_sum(DType dtype, ReduceKind kind, F f) {
  visit_floating(dtype, [&]<class T> {
    if (kind == ReduceKind::avg) f.template operator()<T, ReduceKind::avg>();
    else f.template operator()<T, ReduceKind::sum>();
  });
}

/// Waits until all ranks have reached this point of their streams.
void wait_for_peers(const Stream& stream, const Peers& peers) {
  wait_kernel<<<1, 32, 0, cuda_stream(stream)>>>(peers);
  check_launch();
}

/// Sums this rank's share: the `count` elements at `in` and what the other ranks have put into their slots of this
/// rank's memory. The sum goes to `out` and into the rank's own slot. Does not wait for other ranks.
void reduce_slots(const Stream& stream, const Peers& peers, DType dtype, ReduceKind kind, const void* in, void* out,
                  size_t count) {
  if (count == 0) return;
  visit_floating_sum(dtype, kind, [&]<class T, ReduceKind reduction> {
    const size_t parts = ceil_div(count * sizeof(T), kPartBytes);
    const auto blocks = static_cast<unsigned>(ceil_div(parts, kPartsOfBlock<T>));
    reduce_slots_kernel<T, reduction>
        <<<blocks, kThreads, 0, cuda_stream(stream)>>>(peers, static_cast<const T*>(in), static_cast<T*>(out), count);
  });
  check_launch();
}

/// y[i] = finish(combine(… combine(x[0][i], x[1][i]) …, x[ranks - 1][i])), with one thread for each element.
template <class T, ReduceKind kind>
__global__ void __launch_bounds__(kThreads) reduce_kernel(const T* x, int ranks, T* y, size_t count) {
  using Sum = compute_t<T>;
  const size_t step = static_cast<size_t>(gridDim.x) * kThreads;
  for (size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    Sum sum = static_cast<Sum>(x[i]);
    for (int r = 1; r < ranks; ++r) sum = combine<kind>(sum, static_cast<Sum>(x[static_cast<size_t>(r) * count + i]));
    y[i] = static_cast<T>(finish<kind>(sum, static_cast<size_t>(ranks)));
  }
}

}  // namespace

void reduce_in_order_on(const Stream& stream, DType dtype, ReduceKind kind, const void* x, int ranks, void* y,
                        size_t count) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<size_t>(ceil_div(count, kThreads), 4096));
  visit_reduction(dtype, kind, [&]<class T, ReduceKind reduction> {
    reduce_kernel<T, reduction>
        <<<blocks, kThreads, 0, cuda_stream(stream)>>>(static_cast<const T*>(x), ranks, static_cast<T*>(y), count);
  });
  check("a kernel was not launched", cudaGetLastError());
}

// ---- Sums in the memory of several GPUs ----

void all_reduce_lines(const Stream& stream, const Peers& peers, DType dtype, ReduceKind kind, const PeerLines& lines) {
  visit_floating_sum(dtype, kind, [&]<class T, ReduceKind reduction> {
    size_t parts = 0;
    for (int l = 0; l < lines.size; ++l) parts += ceil_div(lines.count[l] * sizeof(T), kPartBytes);
    const size_t blocks = std::clamp<size_t>(ceil_div(parts, kPartsOfBlock<T>), 1, kBlocks);
    all_reduce_lines_kernel<T, reduction>
        <<<static_cast<unsigned>(blocks), kThreads, 0, cuda_stream(stream)>>>(peers, lines, ceil_div(parts, blocks));
  });
  check_launch();
}

// No slot is written while a rank may read it. The slots that other ranks fill are read between the two waits of a
// call. The slot with this rank's sum is read by the other ranks after the second wait and before the first wait of the
// next call.
void all_reduce_shares(const Stream& stream, const Peers& peers, DType dtype, ReduceKind kind, const void* in,
                       void* out, size_t count) {
  const size_t width = size_of(dtype), unit = kPartBytes / width, ranks = static_cast<size_t>(peers.size);
  const size_t share = round_up(ceil_div(count, ranks), unit);
  const auto begin_of = [&](int r) { return std::min(static_cast<size_t>(r) * share, count); };
  const auto count_of = [&](int r) { return begin_of(r + 1) - begin_of(r); };
  const auto from = [&](int r) { return static_cast<const std::byte*>(in) + begin_of(r) * width; };
  const auto to = [&](int r) { return static_cast<std::byte*>(out) + begin_of(r) * width; };
  const auto copy = [&](void* y, const void* x, size_t elements) {
    if (elements == 0) return;
    check("cudaMemcpyAsync", cudaMemcpyAsync(y, x, elements * width, cudaMemcpyDefault, cuda_stream(stream)));
  };
  const int own = peers.rank;
  for (int r = 0; r < peers.size; ++r)
    if (r != own) copy(peers.slot_of(r, own), from(r), count_of(r));
  wait_for_peers(stream, peers);
  reduce_slots(stream, peers, dtype, kind, from(own), to(own), count_of(own));
  wait_for_peers(stream, peers);
  for (int r = 0; r < peers.size; ++r)
    if (r != own) copy(to(r), peers.slot_of(r, r), count_of(r));
}

}  // namespace gradus::dist
