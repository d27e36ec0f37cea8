// Sorting along an axis. An element becomes an unsigned key that is in order as the elements are (NaN last, zeros of both
// signs equal, all bits flipped where descending); key and index together are never equal, so any sort of them is stable.
// Rows are shared out among the threads; a long row is cut into stretches by its length alone, which are sorted apart
// and then merged two by two.
#include <algorithm>
#include <bit>
#include <cmath>

#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp;

constexpr int64_t kStretch = 16384;

// Key and index in one number, where both have 32 bits.
struct Narrow {
  using Key = uint32_t;
  uint64_t bits;
  static Narrow make(Key key, int64_t index) {
    return {static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(index)};
  }
  int64_t index() const { return static_cast<int64_t>(bits & UINT32_MAX); }
  bool operator<(const Narrow& other) const { return bits < other.bits; }
};
struct Wide {
  using Key = uint64_t;
  uint64_t key;
  int64_t place;
  static Wide make(Key key, int64_t index) { return {key, index}; }
  int64_t index() const { return place; }
  bool operator<(const Wide& other) const { return key != other.key ? key < other.key : place < other.place; }
};

template <class Key, class T>
Key key_of(T element, bool descending) {
  using Signed = std::make_signed_t<Key>;
  Signed ordered;
  if constexpr (is_floating(dtype_of<T>)) {
    using Float = std::conditional_t<sizeof(Key) == 8, double, float>;
    const Float x = static_cast<Float>(element) + Float(0);  // -0 becomes 0
    // Of negative numbers the magnitude grows downwards: flip it. NaN of either sign comes last.
    ordered = std::bit_cast<Signed>(x);
    if (ordered < 0) ordered ^= std::numeric_limits<Signed>::max();
    if (std::isnan(x)) ordered = std::numeric_limits<Signed>::max();
  } else {
    ordered = static_cast<Signed>(element);
  }
  const Key key = static_cast<Key>(ordered) ^ (Key{1} << (8 * sizeof(Key) - 1));
  return descending ? static_cast<Key>(~key) : key;
}

// One row's entries in order: stretches first, then pairs of sorted runs.
template <class Entry>
void sort_entries(Entry* entries, int64_t size) {
  if (size <= kStretch) return std::sort(entries, entries + size);
  parallel_for(divide_up(size, kStretch), 1, [&](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s)
      std::sort(entries + s * kStretch, entries + std::min(size, (s + 1) * kStretch));
  });
  const Scratch<int64_t> room(size * static_cast<int64_t>(sizeof(Entry) / sizeof(int64_t)));
  Entry *from = entries, *to = reinterpret_cast<Entry*>(room.get());
  for (int64_t run = kStretch; run < size; run *= 2, std::swap(from, to))
    parallel_for(divide_up(size, 2 * run), 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        const int64_t begin = 2 * run * p, middle = std::min(size, begin + run), end = std::min(size, begin + 2 * run);
        std::merge(from + begin, from + middle, from + middle, from + end, to + begin);
      }
    });
  if (from != entries) std::copy_n(from, size, entries);
}

}  // namespace

void OpenmpBackend::sort(const View& x, int axis, bool descending, const MutableView& values,
                         const MutableView& indices) {
  EventScope event("sort", "openmp", "merge", {&x, &indices}, x.numel());
  const int64_t size = x.ndim() ? x.shape[axis] : 1;
  Shape rows = x.shape;
  if (x.ndim()) rows[axis] = 1;
  const auto along = [&](const StridedLayout& view) { return x.ndim() ? view.strides[axis] : 0; };
  const Strides& value_strides = values.data ? values.strides : indices.strides;
  const StridedLoop<3> nest(rows, {&indices.strides, &x.strides, &value_strides});
  if (size == 0 || nest.numel == 0) return;
  const auto run_all = [&]<class T, class Entry>() {
    const int64_t x_along = along(x), index_along = along(indices), value_along = values.data ? along(values) : 0;
    parallel_for(nest.numel, divide_up(kGrain, size), [&](int64_t first, int64_t last) {
      const Scratch<int64_t> room(size * static_cast<int64_t>(sizeof(Entry) / sizeof(int64_t)));
      Entry* entries = reinterpret_cast<Entry*>(room.get());
      for_each_run(nest, first, last, [&](const int64_t* at, int64_t run) {
        for (int64_t row = 0; row < run; ++row) {
          const T* in = x.as<T>() + at[1] + row * step_of(nest, 1);
          int64_t* order = indices.as<int64_t>() + at[0] + row * step_of(nest, 0);
          for (int64_t i = 0; i < size; ++i)
            entries[i] = Entry::make(key_of<typename Entry::Key>(in[i * x_along], descending), i);
          sort_entries(entries, size);
          for (int64_t i = 0; i < size; ++i) order[i * index_along] = entries[i].index();
          if (!values.data) continue;
          T* out = values.as<T>() + at[2] + row * step_of(nest, 2);
          for (int64_t i = 0; i < size; ++i) out[i * value_along] = in[entries[i].index() * x_along];
        }
      });
    });
  };
  visit(x.dtype, [&]<class T> {
    if constexpr (sizeof(T) <= 4)
      if (size <= UINT32_MAX) return run_all.template operator()<T, Narrow>();
    run_all.template operator()<T, Wide>();
  });
}

}  // namespace gradus
