// Sorting along an axis. An element is converted to an unsigned key (core/formulas/integers.h). Since pairs of key and
// index are unique, any algorithm that sorts these pairs is stable. Threads share the rows. topk selects the first k
// elements and sorts only these; a long row is divided into segments, by its length alone, which threads share.
#include <algorithm>
#include <utility>
#include <vector>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

constexpr int64_t kStretch = 65536;  // elements of a segment of a row
constexpr int64_t kShort = 64;       // up to this size, std::sort is faster than a radix sort

// A key (upper half) and an index (lower half) in one number.
template <class Word>
struct Entry {
  using Key = std::conditional_t<sizeof(Word) == 8, uint32_t, uint64_t>;
  Word bits;
  static Entry make(Key key, int64_t index) {
    return {static_cast<Word>(key) << 8 * sizeof(Key) | static_cast<Key>(index)};
  }
  Key key_bits() const { return static_cast<Key>(bits >> 8 * sizeof(Key)); }
  int64_t index() const { return static_cast<int64_t>(static_cast<Key>(bits)); }
  bool operator<(const Entry& other) const { return bits < other.bits; }
};

// Sorts one row's entries by radix sort (Knuth, "The Art of Computer Programming", volume 3, 5.2.5). For each digit,
// beginning with the lowest, entries are moved after all entries with smaller digits; entries with equal digits keep
// their order, so the sort is stable. `room` has the size of `entries`. The result is in `entries` or in `room`; its
// address is returned.
template <class Entry>
Entry* sort_entries(Entry* entries, Entry* room, int64_t size) {
  if (size <= kShort) {
    std::sort(entries, entries + size);
    return entries;
  }
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(typename Entry::Key)); shift += 8) {
    const auto digit = [shift](const Entry& entry) { return static_cast<int>(entry.key_bits() >> shift & 255); };
    int64_t places[256] = {}, place = 0;
    for (int64_t i = 0; i < size; ++i) ++places[digit(entries[i])];
    if (places[digit(entries[0])] == size) continue;  // all entries have this digit
    for (int64_t& count : places) place += std::exchange(count, place);
    for (int64_t i = 0; i < size; ++i) room[places[digit(entries[i])]++] = entries[i];
    std::swap(entries, room);
  }
  return entries;
}

// Writes the first k (in sorted order) of elements [begin, end) to `found`, unordered; all elements if there are fewer.
// Returns their number. An entry is collected if it comes before the last of the best k so far. When there are
// `capacity` entries, all except the best k are removed.
template <class Entry, class T>
int64_t first_of(const T* in, int64_t step, int64_t begin, int64_t end, bool descending, int64_t k, Entry* found,
                 int64_t capacity) {
  using Key = typename Entry::Key;
  int64_t held = 0, last = -1;  // last: index of the k-th best element so far; -1 before the first thin()
  Key limit = 0;
  const auto key = [&](int64_t i) { return sort_key(in[i * step], descending); };
  const auto thin = [&] {
    std::nth_element(found, found + k - 1, found + held);
    held = k, last = found[k - 1].index(), limit = found[k - 1].key_bits();
  };
  const auto next = [&](int64_t i) {  // among equal elements the first is kept
    if constexpr (std::is_floating_point_v<T>)
      if (step == 1 && in[last] == in[last])  // the vector search needs a limit that is not NaN
        return i + kernels_of<T>(kernel_table()).find_beyond(in + i, in[last], descending, end - i);
    while (i < end && key(i) >= limit) ++i;
    return i;
  };
  for (int64_t i = begin; i < end; ++i) {
    if (last >= 0 && (i = next(i)) == end) break;
    found[held++] = Entry::make(key(i), i);
    if (held == capacity) thin();
  }
  if (held > k) thin();
  return held;
}

// Calls order(in, entries, room) for every row of x along the axis; the row's elements have stride step_along(x, axis).
// order() returns the row's first entries in order. write_rows() writes the values and indices of as many of them as a
// row of `indices` has elements.
template <class T, class Entry, class F>
void write_rows(const View& x, int axis, const MutableView& values, const MutableView& indices, int64_t room_size,
                F&& order) {
  constexpr int64_t words = sizeof(Entry) / sizeof(int64_t);
  const MutableView& second = values.data ? values : indices;  // values may be absent
  const RowsAlong<3> rows(x.shape, axis, {&indices.strides, &x.strides, &second.strides});
  const int64_t count = indices.ndim() ? indices.shape[axis] : 1;
  parallel_each<int64_t>(rows.nest.numel, ceil_div(kGrain, rows.size), 2 * room_size * words,
                         [&](int64_t row, int64_t* memory) {
                           const auto at = offsets_of(rows.nest, row);
                           const T* in = x.as<T>() + at[1];
                           Entry* entries = reinterpret_cast<Entry*>(memory);
                           const Entry* sorted = order(in, entries, entries + room_size);
                           int64_t* places = indices.as<int64_t>() + at[0];
                           for (int64_t i = 0; i < count; ++i) places[i * rows.along[0]] = sorted[i].index();
                           if (!values.data) return;
                           T* out = values.as<T>() + at[2];
                           for (int64_t i = 0; i < count; ++i)
                             out[i * rows.along[2]] = in[sorted[i].index() * rows.along[1]];
                         });
}

// The smallest entry that holds the keys of elements of type T.
template <class T>
using EntryFor = Entry<std::conditional_t<sizeof(T) <= 4, uint64_t, unsigned __int128>>;

// Returns true if the entries of this type hold the indices of a row of `size` elements.
bool entries_hold(DType dtype, int64_t size) { return size_of(dtype) > 4 || size <= UINT32_MAX; }

}  // namespace

void OpenmpBackend::sort(const View& x, int axis, bool descending, const MutableView& values,
                         const MutableView& indices) {
  const int64_t size = x.ndim() ? x.shape[axis] : 1, along = step_along(x, axis);
  if (!entries_hold(x.dtype, size)) return NaiveBackend::sort(x, axis, descending, values, indices);
  EventScope event("sort", "openmp", "radix", {&x, &indices}, x.numel());
  if (x.numel() == 0) return;
  visit(x.dtype, [&]<class T> {
    using Entry = EntryFor<T>;
    write_rows<T, Entry>(x, axis, values, indices, size, [&](const T* in, Entry* entries, Entry* room) {
      for (int64_t i = 0; i < size; ++i) entries[i] = Entry::make(sort_key(in[i * along], descending), i);
      return sort_entries(entries, room, size);
    });
  });
}

void OpenmpBackend::topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices) {
  const int64_t size = x.ndim() ? x.shape[axis] : 1, along = step_along(x, axis),
                k = indices.ndim() ? indices.shape[axis] : 1;
  if (!entries_hold(x.dtype, size)) return NaiveBackend::topk(x, axis, largest, values, indices);
  EventScope event("topk", "openmp", "select", {&x, &indices}, x.numel());
  if (x.numel() == 0 || k == 0) return;
  // Each segment of a row selects its own first k into separate memory; these entries are then sorted together.
  const int64_t stretches = ceil_div(size, std::max(kStretch, 8 * k)), stretch = ceil_div(size, stretches);
  const int64_t capacity = std::min(stretch, 2 * k + 32) + 1;
  visit(x.dtype, [&]<class T> {
    using Entry = EntryFor<T>;
    const auto first_k = [&](const T* in, Entry* entries, Entry* room) {
      std::vector<int64_t> found(static_cast<size_t>(stretches));
      parallel_each(stretches, 1, [&](int64_t s) {
        found[static_cast<size_t>(s)] = first_of(in, along, s * stretch, std::min(size, (s + 1) * stretch), largest, k,
                                                 room + s * capacity, capacity);
      });
      int64_t held = 0;
      for (int64_t s = 0; s < stretches; ++s)
        held = std::copy_n(room + s * capacity, found[static_cast<size_t>(s)], entries + held) - entries;
      std::nth_element(entries, entries + k - 1, entries + held);
      std::sort(entries, entries + k);
      return entries;
    };
    write_rows<T, Entry>(x, axis, values, indices, stretches * capacity, first_k);
  });
}

}  // namespace gradus
