// Integers in host and device code: division that rounds up; sums and products that wrap around, because overflow of
// signed integers is undefined in C++; and sort keys.
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

/// a + b. Integers wrap around at the limits of T.
template <class T>
GRADUS_HOST_DEVICE constexpr T wrapping_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else return a + b;
}

/// a * b. Integers wrap around at the limits of T.
template <class T>
GRADUS_HOST_DEVICE constexpr T wrapping_product(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else return a * b;
}

// ---- Sort keys: unsigned integers in the same order as the numbers. A radix sort compares only their bits. ----

/// The type of sort keys for elements of type T: an unsigned integer of 64 bits for double and int64, else of 32 bits.
template <class T>
using SortKey = std::conditional_t<sizeof(compute_t<T>) == 8, uint64_t, uint32_t>;

/// The key of `element` for ascending or descending order. 0 and -0 have the same key, and NaN counts as larger than
/// all numbers. For ascending order, the key of a signed integer has the sign bit flipped. The key of a floating-point
/// number has the sign bit flipped if the number is positive, and all bits flipped if it is negative. For descending
/// order, all bits of that key are flipped. Keys of one-byte types differ only in their lowest 8 bits.
template <class T>
GRADUS_HOST_DEVICE SortKey<T> sort_key(T element, bool descending) {
  using Key = SortKey<T>;
  constexpr Key sign = Key{1} << (8 * sizeof(Key) - 1);
  const auto x = static_cast<compute_t<T>>(element);
  Key key;
  if constexpr (std::is_floating_point_v<compute_t<T>>) {
    const auto bits = __builtin_bit_cast(Key, x == 0 ? compute_t<T>(0) : x);
    key = x != x ? ~Key{0} : bits & sign ? ~bits : bits | sign;
  } else {
    key = std::is_signed_v<T> ? static_cast<Key>(x) ^ sign : static_cast<Key>(x);
  }
  return descending ? ~key : key;
}

}  // namespace gradus
