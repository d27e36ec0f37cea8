// values = x in order along an axis, indices = where each came from; stable, NaN above all numbers. All rows are sorted at
// once: by the keys of their elements, then, which a stable sort keeps in order, by row.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/radix_sort.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/sort_keys.cuh>

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

}  // namespace

void CudaBackend::sort(const View& x, int axis, bool descending, const MutableView& values,
                       const MutableView& indices) {
  EventScope event("sort", "cuda", "radix_sort", {&x, &indices}, x.numel());
  const int64_t count = x.numel();
  if (count == 0) return;
  GRADUS_CHECK(count < cuda_detail::kMaxChunk, ShapeError, "cuda sorts fewer than ", cuda_detail::kMaxChunk,
               " elements at once, got ", count, "; sort parts of the other dimensions");
  const SortedRows rows(x, axis, values, indices);
  const Divisor size(rows.size);
  const Launch launch(x.device);
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
