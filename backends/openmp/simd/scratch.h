// Working memory of a kernel, from the caching allocator, for the length of a scope.
#pragma once

#include <gradus/core/array.h>
#include <gradus/core/ceil_div.h>

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

/// `count` elements for each thread of a call of parallel_for, taken before it: what a kernel takes does not depend on
/// which threads come in time. Aligned to 64 bytes where slot_size() made `count`.
template <class T>
class Slots {
 public:
  Slots(int slots, int64_t count) : count_(count), all_(slots * count) {}
  T* operator[](int slot) const { return all_.get() + slot * count_; }

 private:
  int64_t count_;
  Scratch<T> all_;
};
constexpr int64_t slot_size(int64_t count) { return round_up(count, 16); }

constexpr int64_t kStackBytes = 8192;
/// What SmallScratch takes from the allocator.
constexpr int64_t heap_bytes(int64_t count, int64_t element) {
  return count * element > kStackBytes ? count * element : 0;
}
/// The same, on the stack where it is small.
template <class T>
class SmallScratch {
 public:
  explicit SmallScratch(int64_t count)
      : large_(count > kOnStack ? count : 0), data_(count > kOnStack ? large_.get() : small_) {}
  SmallScratch(const SmallScratch&) = delete;
  SmallScratch& operator=(const SmallScratch&) = delete;
  T* get() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  static constexpr int64_t kOnStack = kStackBytes / sizeof(T);
  alignas(64) T small_[kOnStack];
  Scratch<T> large_;
  T* data_;
};

}  // namespace gradus::openmp_detail
