// Integer arithmetic for host and device code: division that rounds up, and sums and products that wrap around instead
// of overflowing, which is undefined. Wrapped results stored in a narrower type wrap anyway.
#pragma once

#include <cstdint>
#include <type_traits>

#include <gradus/core/array/dtype.h>

namespace gradus {

/// whole / part rounded up, for non-negative numbers.
template <class Whole, class Part>
GRADUS_HOST_DEVICE constexpr std::common_type_t<Whole, Part> ceil_div(Whole whole, Part part) {
  return (whole + part - 1) / part;
}

/// The smallest multiple of `part` that is at least `whole`.
template <class Whole, class Part>
GRADUS_HOST_DEVICE constexpr std::common_type_t<Whole, Part> round_up(Whole whole, Part part) {
  return ceil_div(whole, part) * part;
}

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
