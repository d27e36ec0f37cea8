// Helpers of classes whose objects change something until the end of a scope.
#pragma once

#include <utility>

namespace gradus {

/// Base of classes that can be neither copied nor moved.
struct NoCopy {
  NoCopy() = default;
  NoCopy(const NoCopy&) = delete;
  NoCopy& operator=(const NoCopy&) = delete;
};

/// Sets a variable to a value, and back to its previous value at the end of the scope.
template <class T>
class ScopedValue : NoCopy {
 public:
  ScopedValue(T& variable, T value) : variable_(variable), previous_(std::exchange(variable, value)) {}
  ~ScopedValue() { variable_ = previous_; }

 private:
  T& variable_;
  const T previous_;
};

}  // namespace gradus
