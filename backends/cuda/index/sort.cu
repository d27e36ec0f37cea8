// values = x in order along an axis, indices = where each came from; stable, NaN above all numbers.  Any strides.
// bitonic_sort (short rows): a block of up to 1024 threads for each row, whose keys and places are in shared memory; a
//   thread compares pairs.
// radix_sort: in blocks of 256 a thread makes the key of an element, CUB sorts all of them, and then, stably, by row; a
//   thread stores an element where it belongs.
// Deterministic: no two pairs of key and place are alike.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/device/radix_sort.h>
#include <gradus/backends/cuda/index/select.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/index/sort_keys.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// Element k of row r has the place r size + k.
template <class T>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(SortedRows<T> rows, Divisor size, uint32_t count, Key<T>* keys, int32_t* places) {
  for (uint32_t i = thread_index(); i < count; i += thread_count()) {
    uint32_t k = i;
    const uint32_t row = size.split(k);
    keys[i] = rows[row].key(k);
    places[i] = static_cast<int32_t>(i);
  }
}

__global__ void __launch_bounds__(kThreads)
    row_numbers_kernel(const int32_t* places, Divisor size, uint32_t count, uint32_t* numbers) {
  for (uint32_t i = thread_index(); i < count; i += thread_count())
    numbers[i] = size.quotient(static_cast<uint32_t>(places[i]));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    store_kernel(SortedRows<T> rows, Divisor size, uint32_t count, const int32_t* order) {
  for (uint32_t i = thread_index(); i < count; i += thread_count()) {
    uint32_t rank = i, from = static_cast<uint32_t>(order[i]);
    size.split(from);
    const uint32_t row = size.split(rank);
    rows[row].store(rank, from);
  }
}

template <class T>
__global__ void __launch_bounds__(1024) bitonic_kernel(SortedRows<T> rows, uint32_t size, uint32_t slots) {
  __shared__ Key<T> keys[kBlockSort];
  __shared__ uint32_t places[kBlockSort];
  const auto row = rows[blockIdx.x];
  for (uint32_t i = threadIdx.x; i < slots; i += blockDim.x) {
    keys[i] = i < size ? row.key(i) : ~Key<T>{0};
    places[i] = i;
  }
  sort_in_block(keys, places, slots);
  for (uint32_t i = threadIdx.x; i < size; i += blockDim.x) row.store(i, places[i]);
}

template <class T>
void run(const SortPlan& plan, const SortedRows<T>& rows, int64_t size, int64_t count, Device device) {
  const Launch launch(device);
  const auto elements = static_cast<uint32_t>(count);
  if (plan.algorithm == SortAlgorithm::bitonic_sort)
    return launch(bitonic_kernel<T>, static_cast<uint32_t>(count / size), plan.threads, rows,
                  static_cast<uint32_t>(size), plan.slots);
  const Scratch workspace(plan.workspace_bytes, device);
  RadixSort<Key<T>> by_key(workspace.data(), count);
  const Divisor divisor(size);
  const uint32_t blocks = launch.blocks(count, kThreads);
  launch(keys_kernel<T>, blocks, kThreads, rows, divisor, elements, by_key.keys, by_key.places);
  by_key.sort(device, plan.key_bits);
  RadixSort<uint32_t> by_row(by_key);
  if (plan.row_bits > 0) {
    launch(row_numbers_kernel, blocks, kThreads, by_row.places, divisor, elements, by_row.keys);
    by_row.sort(device, plan.row_bits);
  }
  launch(store_kernel<T>, blocks, kThreads, rows, divisor, elements, by_row.places);
}

}  // namespace

void CudaBackend::sort(const View& x, int axis, bool descending, const MutableView& values,
                       const MutableView& indices) {
  const int64_t count = x.numel(), size = x.ndim() ? x.shape[axis] : 1;
  if (count == 0) return;
  GRADUS_CHECK(count < kMaxChunk, ShapeError, "cuda sorts fewer than ", kMaxChunk, " elements at once, got ", count,
               "; sort parts of the other dimensions");
  const SortPlan plan = select_sort(x.dtype, count / size, size);
  EventScope event("sort", "cuda", plan.name(), {&x, &indices}, count);
  visit(x.dtype,
        [&]<class T>() { run(plan, SortedRows<T>(x, axis, descending, values, indices), size, count, x.device); });
}

}  // namespace gradus
