// Intrusive reference counting: the object holds its count, so a Ref is one pointer and needs no control block.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include <gradus/core/scope.h>

namespace gradus {

template <class T>
class Ref;

/// Base of objects owned by Ref<T>. The count starts at zero; the first Ref takes it to one.
class RefCounted : NoCopy {
 public:
  RefCounted() = default;
  uint32_t use_count() const noexcept { return count_.load(std::memory_order_acquire); }

 protected:
  ~RefCounted() = default;

 private:
  template <class T>
  friend class Ref;
  mutable std::atomic<uint32_t> count_{0};
};

/// Shared owner of a RefCounted object. The last owner calls T::destroy(T*) if T has one, else delete.
template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  Ref(std::nullptr_t) noexcept {}  // NOLINT(google-explicit-constructor)
  explicit Ref(T* object) noexcept : object_(object) { retain(); }
  Ref(const Ref& other) noexcept : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  // clang-format off
  template <class U>
    requires std::is_convertible_v<U*, T*>
  Ref(Ref<U> other) noexcept : object_(other.leak()) {}  // NOLINT(google-explicit-constructor)
  // clang-format on
  ~Ref() { release(); }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) noexcept { return a.object_ == b.object_; }

  /// Gives up the pointer without decrementing the count.
  T* leak() noexcept { return std::exchange(object_, nullptr); }
  /// Returns a Ref to an object whose last Ref another thread may be releasing: null if the count is already zero.
  static Ref lock(T* object) noexcept {
    Ref ref;
    uint32_t count = object->count_.load(std::memory_order_relaxed);
    while (count != 0)
      if (object->count_.compare_exchange_weak(count, count + 1, std::memory_order_acq_rel)) {
        ref.object_ = object;
        break;
      }
    return ref;
  }

 private:
  void retain() noexcept {
    if (object_) object_->count_.fetch_add(1, std::memory_order_relaxed);
  }
  void release() noexcept {
    if (object_ && object_->count_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      if constexpr (requires(T * t) { T::destroy(t); }) T::destroy(object_);
      else delete object_;
    }
  }
  T* object_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace gradus
