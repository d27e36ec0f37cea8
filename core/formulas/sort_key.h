// Sort keys: unsigned integers that have the same order as the numbers.
#pragma once

#include <cstdint>
#include <type_traits>

#include <gradus/core/array/dtype.h>

namespace gradus {

/// An unsigned integer as wide as the type that T is computed in, at least 32 bits.
template <class T>
using SortKey = std::conditional_t<sizeof(compute_t<T>) == 8, uint64_t, uint32_t>;

/// The key of `element` for ascending or descending order. Both zeros have the same key, and every NaN is above all
/// numbers. Signed integers have their sign bit flipped; floating-point numbers have the sign bit flipped if positive
/// and all bits flipped if negative. Keys of one-byte types differ only in their lowest 8 bits.
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
