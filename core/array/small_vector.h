// A vector with in-place storage for N elements, for lists that are rarely longer, such as edges and gradients.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <utility>

namespace gradus {

template <class T, int N>
class SmallVector {
 public:
  SmallVector() = default;
  explicit SmallVector(size_t count) { resize(count); }
  SmallVector(std::initializer_list<T> values) { append(values); }
  SmallVector(const SmallVector& other) { append(other); }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(SmallVector other) noexcept {
    clear_and_free();
    take(other);
    return *this;
  }
  ~SmallVector() { clear_and_free(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& back() { return data_[size_ - 1]; }

  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == capacity_) {
      T value(std::forward<Args>(args)...);  // the argument may be an element of this vector
      reserve(capacity_ * 2);
      return *new (data_ + size_++) T(std::move(value));
    }
    return *new (data_ + size_++) T(std::forward<Args>(args)...);
  }
  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  void pop_back() { data_[--size_].~T(); }
  void clear() {
    while (size_) pop_back();
  }
  void resize(size_t count) {
    reserve(count);
    while (size_ > count) pop_back();
    while (size_ < count) emplace_back();
  }
  void reserve(size_t count) {
    if (count <= capacity_) return;
    T* wider = std::allocator<T>().allocate(count);
    for (size_t i = 0; i < size_; ++i) {
      new (wider + i) T(std::move(data_[i]));
      data_[i].~T();
    }
    if (data_ != in_place()) std::allocator<T>().deallocate(data_, capacity_);
    data_ = wider;
    capacity_ = count;
  }

 private:
  template <class List>
  void append(const List& values) {
    reserve(values.size());
    for (const T& value : values) push_back(value);
  }
  T* in_place() { return reinterpret_cast<T*>(room_); }
  void clear_and_free() {
    clear();
    if (data_ != in_place()) std::allocator<T>().deallocate(data_, capacity_);
    data_ = in_place();
    capacity_ = N;
  }
  // Moves `other`'s elements here and leaves `other` empty. This vector must be empty and use its in-place storage.
  void take(SmallVector& other) noexcept {
    if (other.data_ != other.in_place()) {
      data_ = std::exchange(other.data_, other.in_place());
      capacity_ = std::exchange(other.capacity_, static_cast<size_t>(N));
      size_ = std::exchange(other.size_, size_t{0});
      return;
    }
    for (size_t i = 0; i < other.size_; ++i) new (data_ + size_++) T(std::move(other.data_[i]));
    other.clear();
  }

  alignas(T) unsigned char room_[sizeof(T) * N];
  T* data_ = in_place();
  size_t size_ = 0, capacity_ = N;
};

}  // namespace gradus
