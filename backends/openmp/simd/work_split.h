// How threads share a reduction: they divide the results into blocks, and the elements that each result reduces into
// segments ("stretches").
#pragma once

#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/scratch.h>

namespace gradus::openmp_detail {

inline constexpr int64_t kWantedStretches = 64;

/// Outer elements (results of a reduction) that are processed together: `count` neighbours along the innermost outer
/// axis, starting at outer element `begin`.
struct LaneBlock {
  int64_t begin, count;
};

/// Divides a reduction: the outer elements (results) into blocks of at most `most` neighbours, and the inner elements,
/// which each result reduces, into `stretches` segments. The division depends only on the shape.
struct WorkSplit {
  int64_t most, lanes, numel, blocks, inner, length, stretches;

  template <int N>
  WorkSplit(const StridedLoop<N>& outer, int64_t inner, int64_t most)
      : most(most), lanes(most > 1 ? outer.shape[outer.ndim - 1] : 1), numel(outer.numel),
        blocks(numel / lanes * ceil_div(lanes, most)), inner(inner) {
    length = std::max(std::max<int64_t>(1, kGrain / width()),
                      ceil_div(inner, ceil_div(kWantedStretches, std::max<int64_t>(blocks, 1))));
    stretches = std::max<int64_t>(1, ceil_div(inner, length));
  }
  int64_t width() const { return std::min(most, lanes); }

  /// Calls f(block, stretch, begin, end) for each block and each segment, which consists of inner elements [begin,
  /// end), on several threads.
  template <class F>
  void each(F&& f) const {
    parallel_for(blocks * stretches, ceil_div(kGrain, width() * std::clamp<int64_t>(inner, 1, length)),
                 [&](int64_t from, int64_t to) { each_of(from, to, f); });
  }

  /// each(first), then between(begin, end) for ranges of outer elements, then each(second). `slab` successive outer
  /// elements form a slab, and `between` needs the results of `first` for whole slabs only. So a thread can do all
  /// three for one slab while that is in its cache.
  template <class First, class Between, class Second>
  void each_twice(int64_t slab, First&& first, Between&& between, Second&& second) const {
    constexpr int64_t kMostInCache = int64_t{1} << 17, kSlabsPerThread = 4;
    const int64_t slabs = numel / slab, tasks = blocks * stretches / slabs;
    if (slab % lanes != 0 || slab * inner > kMostInCache || slabs < kSlabsPerThread * num_threads())
      return each(first), between(0, numel), each(second);
    parallel_for(slabs, ceil_div(kGrain, slab * inner), [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        each_of(i * tasks, (i + 1) * tasks, first);
        between(i * slab, (i + 1) * slab);
        each_of(i * tasks, (i + 1) * tasks, second);
      }
    });
  }

 private:
  template <class F>
  void each_of(int64_t from, int64_t to, F&& f) const {
    for (int64_t i = from; i < to; ++i) {
      const int64_t index = i / stretches, first = index % ceil_div(lanes, most) * most;
      const int64_t s = i % stretches, begin = s * length;
      f(LaneBlock{index / ceil_div(lanes, most) * lanes + first, std::min(most, lanes - first)}, s, begin,
        std::min(inner, begin + length));
    }
  }
};

}  // namespace gradus::openmp_detail
