// values = x in order along an axis, indices = where each came from; stable, NaN above all numbers. All rows are sorted at
// once: by the keys of their elements, then, which a stable sort keeps in order, by row.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/radix_sort.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::Divisor;
using cuda_detail::Geometry;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Nest;
using cuda_detail::Scratch;

/// Unsigned integers in the order of the numbers: of signed ones the sign bit is turned, of floating ones it is turned in
/// positive numbers and everything in negative ones. -0 counts as 0, every NaN as the largest.
__device__ uint64_t key_of(int64_t x) { return static_cast<uint64_t>(x) ^ (uint64_t{1} << 63); }
__device__ uint32_t key_of(int32_t x) { return static_cast<uint32_t>(x) ^ (uint32_t{1} << 31); }
__device__ uint32_t key_of(uint8_t x) { return x; }
__device__ uint32_t key_of(bool x) { return x; }
__device__ uint64_t key_of(double x) {
  if (x != x) return ~uint64_t{0};
  const auto bits = static_cast<uint64_t>(__double_as_longlong(x == 0 ? 0.0 : x));
  return bits >> 63 ? ~bits : bits | (uint64_t{1} << 63);
}
__device__ uint32_t key_of(float x) {
  if (x != x) return ~uint32_t{0};
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
  return bits >> 31 ? ~bits : bits | (uint32_t{1} << 31);
}
template <class T>
using Key = decltype(key_of(compute_t<T>{}));
template <class T>
constexpr int kKeyBits = sizeof(T) == 1 ? 8 : 8 * sizeof(Key<T>);

// Element k of row r has the place r size + k. Views of `rows`: x, indices, values.
template <class T>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const T* x, Geometry<3> rows, Divisor size, int64_t step, bool descending, uint32_t count, Key<T>* keys,
                int32_t* places) {
  for (uint32_t i = cuda_detail::thread_index(); i < count; i += cuda_detail::thread_count()) {
    uint32_t k = i;
    int64_t at[3];
    rows.offsets(size.split(k), at);
    const Key<T> key = key_of(static_cast<compute_t<T>>(x[at[0] + k * step]));
    const Key<T> most = sizeof(T) == 1 ? Key<T>{255} : ~Key<T>{0};
    keys[i] = descending ? most - key : key;
    places[i] = static_cast<int32_t>(i);
  }
}

__global__ void __launch_bounds__(kThreads)
    rows_kernel(const int32_t* places, Divisor size, uint32_t count, uint32_t* rows) {
  for (uint32_t i = cuda_detail::thread_index(); i < count; i += cuda_detail::thread_count())
    rows[i] = size.quotient(static_cast<uint32_t>(places[i]));
}

struct Steps {
  int64_t x, indices, values;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    place_kernel(const T* x, Geometry<3> rows, Divisor size, Steps steps, const int32_t* order, uint32_t count,
                 int64_t* indices, T* values) {
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
  const int64_t count = x.numel(), size = x.ndim() ? x.shape[axis] : 1;
  if (count == 0) return;
  GRADUS_CHECK(count < cuda_detail::kMaxChunk, ShapeError, "cuda sorts fewer than ", cuda_detail::kMaxChunk,
               " elements at once, got ", count, "; sort parts of the other dimensions");
  const Strides& value_strides = values.data ? values.strides : indices.strides;
  Shape others = x.shape;
  Steps steps{0, 0, 0};
  if (x.ndim()) others[axis] = 1, steps = {x.strides[axis], indices.strides[axis], value_strides[axis]};
  const Nest<3> rows(StridedLoop<3>(others, {&x.strides, &indices.strides, &value_strides}));
  const Launch launch(x.device);
  const uint32_t blocks = launch.blocks(count, kThreads), elements = static_cast<uint32_t>(count);
  const size_t place_bytes = sizeof(int32_t) * static_cast<size_t>(count);
  visit(x.dtype, [&]<class T>() {
    const size_t key_bytes = sizeof(Key<T>) * static_cast<size_t>(count);
    const Scratch keys(key_bytes, x.device), sorted_keys(key_bytes, x.device);
    const Scratch places(place_bytes, x.device), order(place_bytes, x.device);
    launch(keys_kernel<T>, blocks, kThreads, x.as<T>(), rows.geometry(), Divisor(size), steps.x, descending, elements,
           keys.as<Key<T>>(), places.as<int32_t>());
    cuda_detail::radix_sort(x.device, keys.as<Key<T>>(), sorted_keys.as<Key<T>>(), places.as<int32_t>(),
                            order.as<int32_t>(), count, kKeyBits<T>);
    const Scratch* result = &order;
    if (rows.numel > 1) {
      launch(rows_kernel, blocks, kThreads, order.as<int32_t>(), Divisor(size), elements, keys.as<uint32_t>());
      cuda_detail::radix_sort(x.device, keys.as<uint32_t>(), sorted_keys.as<uint32_t>(), order.as<int32_t>(),
                              places.as<int32_t>(), count, cuda_detail::bits_of(rows.numel));
      result = &places;
    }
    launch(place_kernel<T>, blocks, kThreads, x.as<T>(), rows.geometry(), Divisor(size), steps, result->as<int32_t>(),
           elements, indices.as<int64_t>(), values.data ? values.as<T>() : static_cast<T*>(nullptr));
  });
}

}  // namespace gradus
