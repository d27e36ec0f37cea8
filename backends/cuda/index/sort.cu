// values = x in order along an axis, indices = where each came from; stable, NaN above all numbers. Short rows have a
// block each. Long ones are sorted at once: by the keys of their elements, then, which a stable sort keeps in order, by
// row.
#include <bit>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/device/radix_sort.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/index/sort_keys.cuh>

namespace gradus {
namespace {

using cuda_detail::Divisor;
using cuda_detail::Geometry;
using cuda_detail::Key;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Scratch;
using cuda_detail::SortedRows;

// Element k of row r has the place r size + k. Views of `rows`: x, indices, values.
template <class T>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const T* x, Geometry<3> rows, Divisor size, int64_t step, bool descending, uint32_t count, Key<T>* keys,
                int32_t* places) {
  for (uint32_t i = cuda_detail::thread_index(); i < count; i += cuda_detail::thread_count()) {
    uint32_t k = i;
    int64_t at[3];
    rows.offsets(size.split(k), at);
    keys[i] = cuda_detail::ordered_key(x[at[0] + k * step], descending);
    places[i] = static_cast<int32_t>(i);
  }
}

__global__ void __launch_bounds__(kThreads)
    rows_kernel(const int32_t* places, Divisor size, uint32_t count, uint32_t* rows) {
  for (uint32_t i = cuda_detail::thread_index(); i < count; i += cuda_detail::thread_count())
    rows[i] = size.quotient(static_cast<uint32_t>(places[i]));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    place_kernel(const T* x, Geometry<3> rows, Divisor size, SortedRows::Steps steps, const int32_t* order,
                 uint32_t count, int64_t* indices, T* values) {
  for (uint32_t i = cuda_detail::thread_index(); i < count; i += cuda_detail::thread_count()) {
    uint32_t rank = i, from = static_cast<uint32_t>(order[i]);
    int64_t at[3];
    rows.offsets(size.split(rank), at);
    size.split(from);
    indices[at[1] + rank * steps.indices] = from;
    if (values) values[at[2] + rank * steps.values] = x[at[0] + from * steps.x];
  }
}

constexpr int64_t kShortRow = 2048;
constexpr uint32_t kMostThreads = 1024;

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    short_rows_kernel(const T* x, Geometry<3> rows, SortedRows::Steps steps, uint32_t size, uint32_t slots,
                      bool descending, int64_t* indices, T* values) {
  __shared__ Key<T> keys[kShortRow];
  __shared__ uint32_t places[kShortRow];
  int64_t at[3];
  rows.offsets(blockIdx.x, at);
  for (uint32_t i = threadIdx.x; i < slots; i += blockDim.x) {
    keys[i] = i < size ? cuda_detail::ordered_key(x[at[0] + i * steps.x], descending) : ~Key<T>{0};
    places[i] = i;
  }
  cuda_detail::sort_in_block(keys, places, slots);
  for (uint32_t i = threadIdx.x; i < size; i += blockDim.x) {
    const uint32_t from = places[i];
    indices[at[1] + i * steps.indices] = from;
    if (values) values[at[2] + i * steps.values] = x[at[0] + from * steps.x];
  }
}

// Blocks of rows of a few elements would be idle for the most part: many of those are sorted at once too.
bool by_blocks(const SortedRows& rows) {
  return rows.size <= kShortRow && (rows.size >= 64 || rows.nest.numel <= 1 << 14);
}

}  // namespace

void CudaBackend::sort(const View& x, int axis, bool descending, const MutableView& values,
                       const MutableView& indices) {
  const SortedRows rows(x, axis, values, indices);
  const bool short_rows = by_blocks(rows);
  EventScope event("sort", "cuda", short_rows ? "bitonic_sort" : "radix_sort", {&x, &indices}, x.numel());
  const int64_t count = x.numel();
  if (count == 0) return;
  GRADUS_CHECK(count < cuda_detail::kMaxChunk, ShapeError, "cuda sorts fewer than ", cuda_detail::kMaxChunk,
               " elements at once, got ", count, "; sort parts of the other dimensions");
  const Launch launch(x.device);
  if (short_rows) {
    const auto slots = static_cast<uint32_t>(std::bit_ceil(static_cast<uint64_t>(rows.size)));
    const uint32_t threads = std::clamp<uint32_t>(slots / 2, 32, kMostThreads);
    return visit(x.dtype, [&]<class T>() {
      launch(short_rows_kernel<T>, static_cast<uint32_t>(rows.nest.numel), threads, x.as<T>(), rows.nest.geometry(),
             rows.steps, static_cast<uint32_t>(rows.size), slots, descending, indices.as<int64_t>(),
             values.data ? values.as<T>() : static_cast<T*>(nullptr));
    });
  }
  const Divisor size(rows.size);
  const uint32_t blocks = launch.blocks(count, kThreads), elements = static_cast<uint32_t>(count);
  const size_t place_bytes = sizeof(int32_t) * static_cast<size_t>(count);
  visit(x.dtype, [&]<class T>() {
    const size_t key_bytes = sizeof(Key<T>) * static_cast<size_t>(count);
    const Scratch keys(key_bytes, x.device), sorted_keys(key_bytes, x.device);
    const Scratch places(place_bytes, x.device), order(place_bytes, x.device);
    launch(keys_kernel<T>, blocks, kThreads, x.as<T>(), rows.nest.geometry(), size, rows.steps.x, descending, elements,
           keys.as<Key<T>>(), places.as<int32_t>());
    cuda_detail::radix_sort(x.device, keys.as<Key<T>>(), sorted_keys.as<Key<T>>(), places.as<int32_t>(),
                            order.as<int32_t>(), count, cuda_detail::kKeyBits<T>);
    const Scratch* result = &order;
    if (rows.nest.numel > 1) {
      launch(rows_kernel, blocks, kThreads, order.as<int32_t>(), size, elements, keys.as<uint32_t>());
      cuda_detail::radix_sort(x.device, keys.as<uint32_t>(), sorted_keys.as<uint32_t>(), order.as<int32_t>(),
                              places.as<int32_t>(), count, cuda_detail::bits_of(rows.nest.numel));
      result = &places;
    }
    launch(place_kernel<T>, blocks, kThreads, x.as<T>(), rows.nest.geometry(), size, rows.steps, result->as<int32_t>(),
           elements, indices.as<int64_t>(), values.data ? values.as<T>() : static_cast<T*>(nullptr));
  });
}

}  // namespace gradus
