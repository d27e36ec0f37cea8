// Sorting and top-k along an axis: values = x in order and indices = the position of each value in x, or only the first
// k of both. The order is stable; NaN is larger than any number.  Layout: any strides.
// block_sort (short rows): grid: x = rows; block: 32, 128 or 256 threads, with eight elements a thread, whose keys and
//   places CUB's BlockRadixSort sorts in shared memory.
// radix_sort: a kernel computes the keys of all elements, CUB's device radix sort sorts them by key and then by row,
//   and a kernel stores the elements. Grid of these kernels: x = blocks of a grid-stride loop over elements; block: 256
//   threads, one element a thread and step.
// Deterministic: both sorts are stable.
#include <cub/block/block_radix_sort.cuh>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/device/radix_sort.h>
#include <gradus/backends/cuda/index/select.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// The rows of x along an axis, and where their values and indices are stored, as a kernel argument.
template <class T>
struct SortedRows {
  Geometry<3> others;  // the other axes of x, indices and values
  struct Steps {       // strides along the axis
    int64_t x = 0, indices = 0, values = 0;
  } steps;
  const T* x;
  int64_t* indices;
  T* values;       // may be null
  uint32_t first;  // number of elements of a row that are stored
  bool descending;

  SortedRows(const View& x, int axis, bool descending, const MutableView& values, const MutableView& indices)
      : x(x.as<T>()), indices(indices.as<int64_t>()), values(values.data ? values.as<T>() : static_cast<T*>(nullptr)),
        first(indices.ndim() ? u32(indices.shape[axis]) : 1), descending(descending) {
    const Strides& value_strides = values.data ? values.strides : indices.strides;
    if (x.ndim()) steps = {x.strides[axis], indices.strides[axis], value_strides[axis]};
    others =
        Nest<3>(reduced_shape(x.shape, 1u << axis, true), {&x.strides, &indices.strides, &value_strides}).geometry();
  }

  struct Row {
    const SortedRows& rows;
    int64_t at[3];

    __device__ SortKey<T> key(uint32_t i) const { return sort_key(rows.x[at[0] + i * rows.steps.x], rows.descending); }
    // Stores element `from`, which has `rank` elements before it in the order.
    __device__ void store(uint32_t rank, uint32_t from) const {
      if (rank >= rows.first) return;
      rows.indices[at[1] + rank * rows.steps.indices] = from;
      if (rows.values) rows.values[at[2] + rank * rows.steps.values] = rows.x[at[0] + from * rows.steps.x];
    }
  };
  __device__ Row operator[](uint32_t r) const {
    Row row{*this, {}};
    others.offsets(r, row.at);
    return row;
  }
};

// Computes the keys of all elements. Element k of row r has the place r size + k.
template <class T>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(SortedRows<T> rows, Divisor size, uint32_t count, SortKey<T>* keys, int32_t* places) {
  for (uint32_t i = thread_index(); i < count; i += thread_count()) {
    uint32_t k = i;
    const uint32_t row = size.split(k);
    keys[i] = rows[row].key(k);
    places[i] = static_cast<int32_t>(i);
  }
}

__global__ void __launch_bounds__(kThreads)
    row_numbers_kernel(const int32_t* places, Divisor size, uint32_t count, uint32_t* numbers) {
  for (uint32_t i = thread_index(); i < count; i += thread_count()) numbers[i] = size.quotient(u32(places[i]));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    store_kernel(SortedRows<T> rows, Divisor size, uint32_t count, const int32_t* order) {
  for (uint32_t i = thread_index(); i < count; i += thread_count()) {
    uint32_t rank = i, from = u32(order[i]);
    size.split(from);
    const uint32_t row = size.split(rank);
    rows[row].store(rank, from);
  }
}

constexpr int kPerThread = 8;

// Sorts a row in a block. Slots beyond the row's end get the largest key; since the sort is stable, they come last.
template <uint32_t kSlots, class T>
__global__ void __launch_bounds__(kSlots / kPerThread) block_sort_kernel(SortedRows<T> rows, uint32_t size) {
  using Sort = cub::BlockRadixSort<SortKey<T>, kSlots / kPerThread, kPerThread, uint32_t>;
  __shared__ typename Sort::TempStorage memory;
  const auto row = rows[blockIdx.x];
  SortKey<T> keys[kPerThread];
  uint32_t places[kPerThread];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    places[k] = threadIdx.x * kPerThread + k;
    keys[k] = places[k] < size ? row.key(places[k]) : ~SortKey<T>{0};
  }
  Sort(memory).SortBlockedToStriped(keys, places, 0, sizeof(T) == 1 ? 8 : 8 * sizeof(SortKey<T>));
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) row.store(k * blockDim.x + threadIdx.x, places[k]);
}

template <class T>
void run(const SortPlan& plan, const SortedRows<T>& rows, int64_t size, int64_t count, Device device) {
  const Launch launch(device);
  const auto elements = u32(count);
  if (plan.algorithm == SortAlgorithm::block_sort) {
    return visit_constant<256, 1024, kBlockSort>(static_cast<int>(plan.slots), [&]<int kSlots>() {
      launch(block_sort_kernel<kSlots, T>, u32(count / size), kSlots / kPerThread, rows, u32(size));
    });
  }
  const Scratch workspace(plan.workspace_bytes, device);
  RadixSort<SortKey<T>> by_key(workspace.data(), count);
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

void sort_first(const char* name, const View& x, int axis, bool descending, const MutableView& values,
                const MutableView& indices) {
  if (indices.numel() == 0) return;
  const int64_t count = x.numel(), size = x.ndim() ? x.shape[axis] : 1;
  GRADUS_CHECK(count < kMaxChunk, ShapeError, "cuda sorts fewer than ", kMaxChunk, " elements at once, got ", count,
               "; sort parts of the other dimensions");
  const SortPlan plan = select_sort(x.dtype, count / size, size);
  EventScope event(name, "cuda", plan.name(), {&x, &indices}, count);
  visit(x.dtype,
        [&]<class T>() { run(plan, SortedRows<T>(x, axis, descending, values, indices), size, count, x.device); });
}

}  // namespace

void CudaBackend::sort(const View& x, int axis, bool descending, const MutableView& values,
                       const MutableView& indices) {
  sort_first("sort", x, axis, descending, values, indices);
}

void CudaBackend::topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices) {
  sort_first("topk", x, axis, largest, values, indices);
}

}  // namespace gradus
