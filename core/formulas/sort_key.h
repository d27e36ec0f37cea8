// Keys to sort by: unsigned integers that are in order as the numbers are.
#pragma once

#include <cstdint>
#include <type_traits>

#include <gradus/core/array/dtype.h>

namespace gradus {

/// Of as many bits as the type has that a T is computed in, 32 at least.
template <class T>
using SortKey = std::conditional_t<sizeof(compute_t<T>) == 8, uint64_t, uint32_t>;

/// The key by which `element` comes in ascending, or descending, order. Both zeros have one key, and every NaN is above
/// all numbers. Of signed integers the sign bit is turned; of floating-point numbers it is turned in positive ones and
/// everything in negative ones. Keys of single bytes differ in their lowest 8 bits alone.
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
