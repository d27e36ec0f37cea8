// Integer arithmetic that wraps around instead of overflowing, which is undefined. Results stored in a narrower type
// wrap anyway.
#pragma once

#include <cstdint>
#include <type_traits>

#include <gradus/core/array/dtype.h>

namespace gradus {

/// a + b
template <class T>
GRADUS_HOST_DEVICE constexpr T wrapping_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else return a + b;
}

/// a * b
template <class T>
GRADUS_HOST_DEVICE constexpr T wrapping_product(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else return a * b;
}

}  // namespace gradus
