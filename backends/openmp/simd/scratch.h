// Memory of the caching allocator that a kernel uses until the end of a scope.
#pragma once

#include <gradus/core/array/array.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {

/// `count` uninitialised elements, aligned to 64 bytes.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : array_(count > 0 ? Array::empty({count}, dtype_of<T>) : Array()),
        data_(count > 0 ? array_.template data<T>() : nullptr) {}
  T* get() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  Array array_;
  T* data_;
};

/// Calls f(begin, end, memory) for the chunks of a parallel_for. `memory` has `size` elements for each thread, all
/// allocated before the loop, so that a kernel's memory use does not depend on which threads take part. It is aligned
/// to 64 bytes if `size` is a result of slot_size().
template <class T, class F>
void parallel_chunks(int64_t count, int64_t grain, int64_t size, F&& f) {
  const int slots = parallel_slots(count, grain);
  const Scratch<T> memory(slots * size);
  parallel_for(count, grain, slots,
               [&](int64_t begin, int64_t end, int slot) { f(begin, end, memory.get() + slot * size); });
}
/// Calls f(i, memory) for each i < count, with memory as in parallel_chunks().
template <class T, class F>
void parallel_each(int64_t count, int64_t grain, int64_t size, F&& f) {
  parallel_chunks<T>(count, grain, size, [&](int64_t begin, int64_t end, T* memory) {
    for (int64_t i = begin; i < end; ++i) f(i, memory);
  });
}
constexpr int64_t slot_size(int64_t count) { return round_up(count, 16); }

}  // namespace gradus::openmp_detail
