// gather: y[i] = x[i with index[i] at an axis].  scatter: y[i with index[i] at the axis] = x[i], or += x[i]. For an
// index outside of the axis, gather returns 0 and scatter stores nothing. It is no error, because the host would have
// to wait for the indices to check them.
// Layout: any strides. Where neighbours along the last axis have the same index, 16 bytes of them are one element.
// gather: grid: x = blocks of a grid-stride loop over y (for_each); block: 256 threads; a thread copies one element a
//   step.
// scatter: the items x[i] are sorted by their place in y. If the index does not vary along the other axes, as in the
//   gradient of an embedding, an item is a whole slice, otherwise an element. Grid: x = blocks of a grid-stride loop
//   over items x elements of an item; block: 256 threads; the thread of the first item of a place adds all items of
//   that place, or stores the last one.
// Deterministic: the sort is stable, and one thread adds all items of a place, in order.
//
// nonzero: positions = the indices of the true elements of x in row-major order.  Layout: any strides. CUB's
// DeviceSelect, which chooses grid and block, selects the running indices of the true elements in one pass. Its output
// iterator converts each running index to a row of positions.
// Deterministic: the results are integers in a defined order.

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/tabulate_output_iterator.h>
#include <cub/device/device_select.cuh>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/device/radix_sort.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// The number of elements of x and y that are moved together: 16 bytes of neighbours along the last axis, or 1.
int64_t vector_size(const View& x, int axis, const View& index, const View& y) {
  const int last = y.ndim() - 1;
  const int64_t vec = 16 / static_cast<int64_t>(size_of(y.dtype));
  const bool same_index = axis < last && index.strides[last] == 0;
  return same_index && has_vectors_along(x, last, vec) && has_vectors_along(y, last, vec) ? vec : 1;
}
// A view of vectors of `vec` neighbours along the last axis.
template <class AnyView>
AnyView vectors_of(AnyView view, int64_t vec) {
  if (vec == 1) return view;
  for (int64_t& stride : view.strides) stride /= vec;
  view.shape[view.ndim() - 1] /= vec, view.strides[view.ndim() - 1] = 1;
  return view;
}

// The axis along which the index selects: its size, and its stride in x (gather) or in the logical order in which the
// places of y are numbered (scatter).
struct Axis {
  int64_t size, step;
  __device__ bool holds(int64_t index) const { return index >= 0 && index < size; }
};

Strides without(Strides strides, int axis) {
  strides[axis] = 0;
  return strides;
}

template <class T>
struct Gather {
  Axis axis;
  const T* x;
  const int64_t* index;
  T* y;
  __device__ void operator()(uint32_t, const int64_t (&at)[3]) const {  // offsets in y, x (at index 0), index
    const int64_t place = index[at[2]];
    y[at[0]] = axis.holds(place) ? x[at[1] + place * axis.step] : T{};
  }
};

constexpr uint32_t kNowhere = ~uint32_t{0};

// Computes the place in y, numbered in logical order, of each item of x. `at` has the item's offset in the index, and
// the number of the place that the item would have with index 0.
struct FindPlace {
  Axis axis;
  const int64_t* index;
  uint32_t* places;
  int32_t* numbers;
  __device__ void operator()(uint32_t i, const int64_t (&at)[2]) const {
    const int64_t place = index[at[0]];
    places[i] = axis.holds(place) ? u32(at[1] + place * axis.step) : kNowhere;
    numbers[i] = static_cast<int32_t>(i);
  }
};

// Stores items of x that are sorted by their place in y. `inner` has the offsets in x and y of an item's elements,
// which are vectors of kVec, and `elements` divides by their number. A thread processes one element of one item a step.
template <bool kAccumulate, class T, int kVec>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(uint32_t items, Geometry<1> x_items, Geometry<1> y_places, Geometry<2> inner, Divisor elements,
                   const uint32_t* places, const int32_t* numbers, const Vec<T, kVec>* x, Vec<T, kVec>* y) {
  using A = compute_t<T>;
  constexpr uint32_t kAtOnce = 4;
  for (uint32_t i = thread_index(); i < items * inner.numel; i += thread_count()) {
    uint32_t element = i;
    const uint32_t first = elements.split(element), place = places[first];
    if (place == kNowhere || (first > 0 && places[first - 1] == place)) continue;  // not the first item of its place
    int64_t within[2];
    inner.offsets(element, within);
    Vec<T, kVec>& to = y[y_places.offset(place) + within[1]];
    Vec<T, kVec> value = to;
    A result[kVec];
    for (int n = 0; n < kVec; ++n) result[n] = static_cast<A>(value.value[n]);
    // Loads kAtOnce items at once. Instead of those of other places, it loads the first item again.
    for (uint32_t k = first, same = kAtOnce; same == kAtOnce; k += kAtOnce) {
      uint32_t item[kAtOnce];
      Vec<T, kVec> values[kAtOnce];
      same = 0;
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        const uint32_t next = min(k + j, items - 1);
        const bool is_same = k + j < items && places[next] == place;
        item[j] = u32(numbers[is_same ? next : first]), same += is_same;
      }
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) values[j] = x[x_items.offset(item[j]) + within[0]];
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j)
        for (int n = 0; n < kVec && j < same; ++n) {
          const A term = static_cast<A>(values[j].value[n]);
          result[n] = kAccumulate ? wrapping_sum<A>(result[n], term) : term;
        }
    }
    for (int n = 0; n < kVec; ++n) value.value[n] = static_cast<T>(result[n]);
    store(to.value, value);
  }
}

// Sorts the items by place and stores them. An item is a slice of x, whose place is an index along the axis, or a
// single element.
template <bool kAccumulate>
void scatter_sorted(View x, int axis, const View& index, MutableView y) {
  bool slices = true;
  for (int i = 0; i < index.ndim(); ++i) slices &= i == axis || index.shape[i] == 1 || index.strides[i] == 0;
  const int64_t vec = slices ? vector_size(x, axis, index, y) : 1;
  x = vectors_of(x, vec), y = vectors_of(y, vec);
  const Strides logical = contiguous_strides(y.shape), others = without(logical, axis);
  const Strides nothing = Dims::filled(y.ndim(), 0);
  Shape x_shape = x.shape, y_shape = y.shape, inner_shape = Dims::filled(y.ndim(), 1);
  if (slices) {
    x_shape = y_shape = inner_shape, inner_shape = x.shape;
    std::swap(x_shape[axis], inner_shape[axis]), y_shape[axis] = y.shape[axis];
  }
  const Nest<1> x_items = Nest<1>::logical(x_shape, {&x.strides}), places = Nest<1>::logical(y_shape, {&y.strides});
  const Nest<2> inner(inner_shape, {&x.strides, &y.strides});
  const Nest<2> indices = Nest<2>::logical(x_shape, {&index.strides, slices ? &nothing : &others});
  const int64_t count = indices.numel;
  const Launch launch(y.device);
  const Scratch workspace(radix_sort_bytes(sizeof(uint32_t), count), y.device);
  RadixSort<uint32_t> by_place(workspace.data(), count);
  for_each(launch, indices, [&](const int64_t*) {
    return FindPlace{{y.shape[axis], slices ? 1 : logical[axis]}, index.as<int64_t>(), by_place.keys, by_place.places};
  });
  by_place.sort(y.device, bits_of(places.numel) + 1);  // with one bit more than places need, kNowhere comes last
  const auto run = [&]<class T>() {
    visit_constant<1, 16 / sizeof(T)>(static_cast<int>(vec), [&]<int kVec>() {
      launch(scatter_kernel<kAccumulate, T, kVec>, launch.blocks(count * inner.numel, kThreads), kThreads, u32(count),
             x_items.geometry(), places.geometry(), inner.geometry(), Divisor(inner.numel), by_place.keys,
             by_place.places, x.as<Vec<T, kVec>>(), y.as<Vec<T, kVec>>());
    });
  };
  if constexpr (kAccumulate) visit(y.dtype, run);
  else visit_bits(y.dtype, run);
}

}  // namespace

void CudaBackend::gather(const View& x, int axis, const View& index, const MutableView& y) {
  EventScope event("gather", "cuda", "map", {&x, &index, &y});
  const int64_t vec = vector_size(x, axis, index, y);
  const View from = vectors_of(x, vec);
  const MutableView to = vectors_of(y, vec);
  const Strides others = without(from.strides, axis);
  const Nest<3> nest(to.shape, {&to.strides, &others, &index.strides});
  const auto run = [&]<class T>() {
    for_each(Launch(y.device), nest, [&](const int64_t* base) {
      return Gather<T>{
          {x.shape[axis], from.strides[axis]}, x.as<T>() + base[1], index.as<int64_t>() + base[2], y.as<T>() + base[0]};
    });
  };
  if (vec > 1) run.template operator()<uint4>();
  else visit_bits(y.dtype, run);
}

void CudaBackend::scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) {
  EventScope event("scatter", "cuda", "sorted", {&x, &index, &y}, accumulate ? x.numel() : 0);
  if (x.numel() == 0 || y.numel() == 0) return;
  GRADUS_CHECK(x.numel() < kMaxChunk && y.numel() < kMaxChunk, ShapeError, "cuda scatters fewer than ", kMaxChunk,
               " elements into as many at once, got ", x.numel(), " into ", y.numel(), "; scatter parts");
  if (accumulate) scatter_sorted<true>(x, axis, index, y);
  else scatter_sorted<false>(x, axis, index, y);
}

// ---- nonzero ----

namespace {

struct IsTrue {
  const bool* x;
  Geometry<1> geometry;
  __device__ bool operator()(uint32_t i) const { return x[geometry.offset(i)]; }
};

// Converts the running index of a true element to a row of positions.
struct StorePosition {
  int ndim = 0;
  Divisor size[kMaxDims];
  int64_t* positions = nullptr;
  int64_t row_step = 0, column_step = 0;
  __device__ void operator()(int64_t row, uint32_t number) const {
    for (int axis = ndim - 1; axis >= 0; --axis) {
      uint32_t index = number;
      number = size[axis].split(index);
      positions[row * row_step + axis * column_step] = index;
    }
  }
};

}  // namespace

void CudaBackend::nonzero(const View& x, const MutableView& positions) {
  EventScope event("nonzero", "cuda", "select", {&x, &positions});
  const Nest<1> nest = Nest<1>::logical(x.shape, {&x.strides});
  if (nest.numel == 0 || positions.numel() == 0) return;
  GRADUS_CHECK(nest.numel < kMaxChunk, ShapeError, "cuda looks for non-zeros in fewer than ", kMaxChunk,
               " elements at once, got ", nest.numel, "; look in parts");
  const Launch launch(x.device);
  StorePosition store{.ndim = x.ndim(),
                      .positions = positions.as<int64_t>(),
                      .row_step = positions.strides[0],
                      .column_step = positions.strides[1]};
  for (int axis = 0; axis < x.ndim(); ++axis) store.size[axis] = Divisor(x.shape[axis]);
  const Scratch found(sizeof(uint32_t), x.device);  // CUB stores the count here; it equals positions.shape[0]
  const auto select = [&](void* memory, size_t& bytes) {
    GRADUS_CUDA_CHECK(cub::DeviceSelect::If(
        memory, bytes, thrust::counting_iterator<uint32_t>(0), thrust::make_tabulate_output_iterator(store),
        found.as<uint32_t>(), static_cast<int>(nest.numel), IsTrue{x.as<bool>(), nest.geometry()}, launch.stream()));
    check_launch(launch.stream());
  };
  size_t bytes = 0;
  select(nullptr, bytes);
  const Scratch scratch(std::max<size_t>(bytes, 1), x.device);
  select(scratch.data(), bytes);
}

}  // namespace gradus
