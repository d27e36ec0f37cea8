// The k first of sort, k being small.  Any strides.
// Grid: a block for each row.  Block: 32 to 1024 threads; a thread looks at every blockDim-th element of the row.
// Phases: find_last finds the last key that belongs to the k first digit by digit, from the highest (radix selection),
//   and of equal keys the last place; the elements up to it are collected in shared memory and put in order.
// Deterministic: of equal keys those with the lowest index belong to the k first; counters are integers.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/index/select.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/index/sort_keys.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

constexpr uint32_t kDigits = 256, kNoDigit = kDigits;

/// Where the element of some rank was found: its digit, its rank among the elements with this digit, and their number.
struct Found {
  uint32_t digit, rank, members;
};

/// Of the elements whose digit_at(i) is not kNoDigit, that with `rank` others before it. All threads get the result.
template <class DigitAt>
__device__ Found find_digit(uint32_t size, uint32_t rank, DigitAt&& digit_at) {
  __shared__ uint32_t counts[kDigits + 1];
  __shared__ Found found;
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t digit = threadIdx.x; digit <= kDigits; digit += blockDim.x) counts[digit] = 0;
  __syncthreads();
  constexpr uint32_t kAtOnce = 4;  // loads under way
  for (uint32_t first = threadIdx.x; first - threadIdx.x < size; first += kAtOnce * blockDim.x) {
    uint32_t digits[kAtOnce];
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint32_t i = first + k * blockDim.x;
      digits[k] = i < size ? digit_at(i) : kNoDigit;
    }
#pragma unroll
    for (const uint32_t digit : digits) {
      const uint32_t peers = __match_any_sync(0xffffffffu, digit);  // numbers of like size share their first digits
      if (lane + 1 == static_cast<uint32_t>(__ffs(peers))) atomicAdd(&counts[digit], __popc(peers));
    }
  }
  __syncthreads();
  if (threadIdx.x < 32) {  // a lane for eight digits
    uint32_t own = 0;
    for (uint32_t k = 0; k < 8; ++k) own += counts[8 * lane + k];
    uint32_t before = own;
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t left = __shfl_up_sync(0xffffffffu, before, step);
      if (lane >= step) before += left;
    }
    before -= own;
    if (before <= rank && rank < before + own) {
      uint32_t digit = 8 * lane;
      while (rank >= before + counts[digit]) before += counts[digit++];
      found = {digit, rank - before, counts[digit]};
    }
  }
  __syncthreads();
  return found;
}

/// The least number that has `rank` others of the row before it, in `bits` bits, given how to read numbers that take
/// part, or the largest number that begins as it does if no more than `rank` others begin so: the same elements are up
/// to it.
template <class Number, class NumberAt, class TakesPart>
__device__ Found find_last(uint32_t size, uint32_t rank, int bits, NumberAt&& number_at, TakesPart&& takes_part,
                           Number& last) {
  Found found{0, rank, 0};
  last = 0;
  for (int shift = bits - 8; shift >= 0; shift -= 8) {
    found = find_digit(size, found.rank, [&](uint32_t i) {
      const Number number = number_at(i);
      const bool alike = ((number ^ last) >> shift >> 8) == 0;  // in the digits before
      return takes_part(i) && alike ? static_cast<uint32_t>(number >> shift) % kDigits : kNoDigit;
    });
    last |= static_cast<Number>(found.digit) << shift;
    if (found.members == found.rank + 1) {
      last |= (Number{1} << shift) - 1;
      break;
    }
  }
  return found;
}

template <class T>
__global__ void __launch_bounds__(1024) topk_kernel(SortedRows<T> rows, uint32_t size, uint32_t k, uint32_t slots) {
  __shared__ Key<T> keys[kBlockTopk];
  __shared__ uint32_t places[kBlockTopk];
  __shared__ uint32_t taken;
  const auto row = rows[blockIdx.x];
  const auto key_at = [&](uint32_t i) { return row.key(i); };

  Key<T> last_key;
  uint32_t last_place = size - 1;
  const Found found = find_last(
      size, k - 1, kKeyBits<T>, key_at, [](uint32_t) { return true; }, last_key);
  if (found.members > found.rank + 1)  // more of the last key than belong to the k first
    find_last(
        size, found.rank, 32, [](uint32_t i) { return i; }, [&](uint32_t i) { return key_at(i) == last_key; },
        last_place);

  if (threadIdx.x == 0) taken = 0;
  for (uint32_t i = k + threadIdx.x; i < slots; i += blockDim.x) keys[i] = ~Key<T>{0}, places[i] = ~uint32_t{0};
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < size; i += blockDim.x) {
    const Key<T> key = key_at(i);
    if (key > last_key || (key == last_key && i > last_place)) continue;
    const uint32_t slot = atomicAdd(&taken, 1);  // in any order: all pairs differ, so sorting gives one result
    keys[slot] = key, places[slot] = i;
  }
  sort_in_block(keys, places, slots);
  for (uint32_t i = threadIdx.x; i < k; i += blockDim.x) row.store(i, places[i]);
}

}  // namespace

void CudaBackend::topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices) {
  if (indices.numel() == 0) return;
  const int64_t size = x.ndim() ? x.shape[axis] : 1, k = x.ndim() ? indices.shape[axis] : 1, rows = x.numel() / size;
  const TopkPlan plan = select_topk(rows, size, k, device_properties(x.device.index));
  if (plan.algorithm == TopkAlgorithm::sort) return Backend::topk(x, axis, largest, values, indices);
  EventScope event("topk", "cuda", plan.name(), {&x, &indices}, x.numel());
  visit(x.dtype, [&]<class T>() {
    Launch(x.device)(topk_kernel<T>, static_cast<uint32_t>(rows), plan.threads,
                     SortedRows<T>(x, axis, largest, values, indices), static_cast<uint32_t>(size),
                     static_cast<uint32_t>(k), plan.slots);
  });
}

}  // namespace gradus
