// y[i] = x[i with index[i] at an axis], and the way back, y[i with index[i] at the axis] = x[i] or += x[i].
//
// Several x[i] may go to one place of y. What is assigned last stays: every place learns the largest running number
// that goes there (integer maxima, in any order, give the same). Sums are made in the order of i: the numbers of the
// x[i] are sorted by place, which keeps equal ones in order, and one thread adds up a place. Where the index does not
// vary along the other axes, as in the gradient of an embedding, whole slices are sorted and each of their elements has
// a thread.
//
// An index outside the axis gives 0, or writes nothing: the host does not wait to look.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/device/radix_sort.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::Geometry;
using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Nest;
using cuda_detail::Scratch;

// The axis that the index stands for: its size and step in memory, and its step in the logical order of y.
struct Axis {
  int64_t size, step, logical;
  __device__ bool holds(int64_t index) const { return index >= 0 && index < size; }
};

Strides without(Strides strides, int axis) {
  strides[axis] = 0;
  return strides;
}

// Views: y, x without the axis, index.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(Geometry<3> geometry, Axis axis, const T* x, const int64_t* index, T* y) {
  for (uint32_t i = cuda_detail::thread_index(); i < geometry.numel; i += cuda_detail::thread_count()) {
    int64_t at[3];
    geometry.offsets(i, at);
    const int64_t place = index[at[2]];
    y[at[0]] = axis.holds(place) ? x[at[1] + place * axis.step] : T(0);
  }
}

// ---- y[…] = x: views are x, y without the axis, y's logical order without the axis, index. ----

__global__ void __launch_bounds__(kThreads)
    winners_kernel(Geometry<4> geometry, Axis axis, const int64_t* index, uint32_t* winners) {
  for (uint32_t i = cuda_detail::thread_index(); i < geometry.numel; i += cuda_detail::thread_count()) {
    int64_t at[4];
    geometry.offsets(i, at);
    const int64_t place = index[at[3]];
    if (axis.holds(place)) atomicMax(&winners[at[2] + place * axis.logical], i + 1);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    assign_kernel(Geometry<4> geometry, Axis axis, const T* x, const int64_t* index, const uint32_t* winners, T* y) {
  for (uint32_t i = cuda_detail::thread_index(); i < geometry.numel; i += cuda_detail::thread_count()) {
    int64_t at[4];
    geometry.offsets(i, at);
    const int64_t place = index[at[3]];
    if (axis.holds(place) && winners[at[2] + place * axis.logical] == i + 1) y[at[1] + place * axis.step] = x[at[0]];
  }
}

// ---- y[…] += x ----

constexpr uint32_t kNowhere = ~uint32_t{0};

// Views: index, y's logical order without the axis. Places are numbered in the logical order.
__global__ void __launch_bounds__(kThreads)
    places_kernel(Geometry<2> geometry, Axis axis, const int64_t* index, uint32_t* places, int32_t* numbers) {
  for (uint32_t i = cuda_detail::thread_index(); i < geometry.numel; i += cuda_detail::thread_count()) {
    int64_t at[2];
    geometry.offsets(i, at);
    const int64_t place = index[at[0]];
    places[i] = axis.holds(place) ? static_cast<uint32_t>(at[1] + place * axis.logical) : kNowhere;
    numbers[i] = static_cast<int32_t>(i);
  }
}

// Items of x in the order of their places in y; each has the elements of `inner` (views: x, y), one thread for each.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_kernel(uint32_t items, Geometry<1> x_items, Geometry<1> y_places, Geometry<2> inner, const uint32_t* places,
               const int32_t* numbers, const T* x, T* y) {
  using A = compute_t<T>;
  const uint64_t threads = uint64_t{items} * inner.numel;
  for (uint64_t i = cuda_detail::thread_index(); i < threads; i += cuda_detail::thread_count()) {
    const uint32_t first = static_cast<uint32_t>(i / inner.numel), element = static_cast<uint32_t>(i % inner.numel);
    const uint32_t place = places[first];
    if (place == kNowhere || (first > 0 && places[first - 1] == place)) continue;  // not the first one of its place
    int64_t within[2], x_at[1], y_at[1];
    inner.offsets(element, within);
    y_places.offsets(place, y_at);
    T& to = y[y_at[0] + within[1]];
    A sum = static_cast<A>(to);
    for (uint32_t k = first; k < items && places[k] == place; ++k) {
      x_items.offsets(static_cast<uint32_t>(numbers[k]), x_at);
      sum = scalar::Binary<BinaryOp::add>::apply<A>(sum, static_cast<A>(x[x_at[0] + within[0]]));
    }
    to = static_cast<T>(sum);
  }
}

// Sizes and steps of one axis, or of all others.
Nest<1> only(const Shape& shape, const Strides& strides, int axis) {
  Shape sizes = Dims::filled(shape.size(), 1);
  sizes[axis] = shape[axis];
  return Nest<1>::logical(sizes, {&strides});
}
bool varies_along(const View& index, int axis) {
  for (int i = 0; i < index.ndim(); ++i)
    if (i != axis && index.shape[i] > 1 && index.strides[i] != 0) return true;
  return false;
}

}  // namespace

void CudaBackend::gather(const View& x, int axis, const View& index, const MutableView& y) {
  EventScope event("gather", "cuda", "map", {&x, &index, &y});
  const Strides others = without(x.strides, axis);
  const Nest<3> nest(StridedLoop<3>(y.shape, {&y.strides, &others, &index.strides}));
  const Launch launch(y.device);
  visit_bits(y.dtype, [&]<class T>() {
    cuda_detail::for_each_chunk(nest, [&](const Nest<3>& piece, int64_t, const int64_t* at) {
      launch(gather_kernel<T>, launch.blocks(piece.numel, kThreads), kThreads, piece.geometry(),
             Axis{x.shape[axis], x.strides[axis], 0}, x.as<T>() + at[1], index.as<int64_t>() + at[2],
             y.as<T>() + at[0]);
    });
  });
}

void CudaBackend::scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) {
  EventScope event("scatter", "cuda", accumulate ? "sorted" : "map", {&x, &index, &y}, accumulate ? x.numel() : 0);
  if (x.numel() == 0 || y.numel() == 0) return;
  GRADUS_CHECK(x.numel() < cuda_detail::kMaxChunk && y.numel() < cuda_detail::kMaxChunk, ShapeError,
               "cuda scatters fewer than ", cuda_detail::kMaxChunk, " elements into as many at once, got ", x.numel(),
               " into ", y.numel(), "; scatter parts");
  const Strides logical = contiguous_strides(y.shape);
  const Launch launch(y.device);
  if (!accumulate) {
    const Strides y_others = without(y.strides, axis), logical_others = without(logical, axis);
    const Nest<4> nest = Nest<4>::logical(x.shape, {&x.strides, &y_others, &logical_others, &index.strides});
    const Axis along{y.shape[axis], y.strides[axis], logical[axis]};
    const size_t bytes = sizeof(uint32_t) * static_cast<size_t>(y.numel());
    const Scratch winners(bytes, y.device);
    GRADUS_CUDA_CHECK(cudaMemsetAsync(winners.data(), 0, bytes, launch.stream()));
    const uint32_t blocks = launch.blocks(nest.numel, kThreads);
    launch(winners_kernel, blocks, kThreads, nest.geometry(), along, index.as<int64_t>(), winners.as<uint32_t>());
    return visit_bits(y.dtype, [&]<class T>() {
      launch(assign_kernel<T>, blocks, kThreads, nest.geometry(), along, x.as<T>(), index.as<int64_t>(),
             winners.as<uint32_t>(), y.as<T>());
    });
  }

  // Items are slices along the axis, whose places are those of the axis, or single elements.
  const bool slices = !varies_along(index, axis);
  const Strides nothing = Dims::filled(y.ndim(), 0), others = without(logical, axis);
  Shape inner_shape = x.shape;
  inner_shape[axis] = 1;
  const Nest<1> x_items = slices ? only(x.shape, x.strides, axis) : Nest<1>::logical(x.shape, {&x.strides});
  const Nest<1> y_places = slices ? only(y.shape, y.strides, axis) : Nest<1>::logical(y.shape, {&y.strides});
  const Nest<2> inner = slices ? Nest<2>(StridedLoop<2>(inner_shape, {&x.strides, &y.strides})) : Nest<2>();
  Shape index_shape = x.shape;
  if (slices)
    for (int i = 0; i < x.ndim(); ++i)
      if (i != axis) index_shape[i] = 1;
  const Nest<2> indices = Nest<2>::logical(index_shape, {&index.strides, slices ? &nothing : &others});
  const int64_t count = indices.numel, places_in_y = slices ? y.shape[axis] : y.numel();
  const size_t bytes = sizeof(uint32_t) * static_cast<size_t>(count);
  const Scratch places(bytes, y.device), sorted(bytes, y.device), numbers(bytes, y.device), order(bytes, y.device);
  launch(places_kernel, launch.blocks(count, kThreads), kThreads, indices.geometry(),
         Axis{y.shape[axis], 0, slices ? 1 : logical[axis]}, index.as<int64_t>(), places.as<uint32_t>(),
         numbers.as<int32_t>());
  // One bit more than the places need: kNowhere comes last.
  cuda_detail::radix_sort(y.device, places.as<uint32_t>(), sorted.as<uint32_t>(), numbers.as<int32_t>(),
                          order.as<int32_t>(), count, cuda_detail::bits_of(places_in_y) + 1);
  visit(y.dtype, [&]<class T>() {
    launch(add_kernel<T>, launch.blocks(count * inner.numel, kThreads), kThreads, static_cast<uint32_t>(count),
           x_items.geometry(), y_places.geometry(), inner.geometry(), sorted.as<uint32_t>(), order.as<int32_t>(),
           x.as<T>(), y.as<T>());
  });
}

}  // namespace gradus
