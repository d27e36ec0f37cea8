#include <gradus/distributed/comm/reduce.h>

#include <algorithm>

namespace gradus::dist {
namespace {

// Tells the compiler that it may vectorise a loop although the results may overwrite an operand: no iteration reads an
// element that another iteration writes.
#if defined(__clang__)
#define GRADUS_INDEPENDENT_ITERATIONS
#else
#define GRADUS_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep") _Pragma("GCC unroll 4")
#endif

/// reduce_in_order() for two ranks, the most frequent case: a single pass that writes each result to y and z, which may
/// be the same array.
template <class T, ReduceKind kind>
void reduce_two(const T* a, const T* b, T* y, T* z, size_t count) {
  using Sum = compute_t<T>;
  const auto result = [&](size_t i) {
    return static_cast<T>(finish<kind>(combine<kind>(static_cast<Sum>(a[i]), static_cast<Sum>(b[i])), 2));
  };
  if (y == z) {
    GRADUS_INDEPENDENT_ITERATIONS
    for (size_t i = 0; i < count; ++i) y[i] = result(i);
  } else {
    GRADUS_INDEPENDENT_ITERATIONS
    for (size_t i = 0; i < count; ++i) {
      const T both = result(i);
      y[i] = both;
      z[i] = both;
    }
  }
}
#undef GRADUS_INDEPENDENT_ITERATIONS

/// Works block by block, so that the sums stay in the first-level cache while the elements of all ranks are added.
template <class T, ReduceKind kind>
void reduce_many(std::span<const void* const> x, std::span<void* const> y, size_t count) {
  constexpr size_t kBlock = 512;
  using Sum = compute_t<T>;
  Sum sums[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(x[0]) + begin;
    for (size_t i = 0; i < size; ++i) sums[i] = static_cast<Sum>(first[i]);
    for (const void* rank : x.subspan(1)) {
      const T* next = static_cast<const T*>(rank) + begin;
      for (size_t i = 0; i < size; ++i) sums[i] = combine<kind>(sums[i], static_cast<Sum>(next[i]));
    }
    for (void* place : y) {
      T* to = static_cast<T*>(place) + begin;
      for (size_t i = 0; i < size; ++i) to[i] = static_cast<T>(finish<kind>(sums[i], x.size()));
    }
  }
}

}  // namespace

Range part_of(size_t count, int parts, int index) {
  constexpr size_t kAlign = 16;
  const size_t aligned = round_up(ceil_div(count, static_cast<size_t>(parts)), kAlign);
  return {std::min(count, aligned * static_cast<size_t>(index)),
          std::min(count, aligned * static_cast<size_t>(index + 1))};
}

void check_reduction(DType dtype, ReduceKind kind) {
  GRADUS_CHECK(dtype != DType::boolean || kind != ReduceKind::avg, DTypeError,
               "booleans have no average: convert them to a number first");
}

void reduce_in_order(DType dtype, ReduceKind kind, std::span<const void* const> x, std::span<void* const> y,
                     size_t count) {
  visit_reduction(dtype, kind, [&]<class T, ReduceKind known_kind> {
    const auto elements = [](const void* vector) { return static_cast<const T*>(vector); };
    if (x.size() == 2 && y.size() <= 2)
      reduce_two<T, known_kind>(elements(x[0]), elements(x[1]), static_cast<T*>(y.front()), static_cast<T*>(y.back()),
                                count);
    else reduce_many<T, known_kind>(x, y, count);
  });
}

void reduce_step(DType dtype, ReduceKind kind, const void* x, void* y, size_t count) {
  const void* both[] = {x, y};
  reduce_in_order(dtype, kind == ReduceKind::avg ? ReduceKind::sum : kind, both, y, count);
}

void divide(DType dtype, void* y, size_t count, int ranks) {
  visit(dtype, [&]<class T> {
    using Sum = compute_t<T>;
    T* elements = static_cast<T*>(y);
    if constexpr (!std::is_same_v<T, bool>)
      for (size_t i = 0; i < count; ++i)
        elements[i] = static_cast<T>(static_cast<Sum>(elements[i]) / static_cast<Sum>(ranks));
  });
}

}  // namespace gradus::dist
