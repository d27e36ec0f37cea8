// Sorts keys on the device, and with them the positions that the keys had before the sort (places).
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include <gradus/core/runtime/device.h>

namespace gradus::cuda_detail {

/// Number of bits that the numbers 0 … count - 1 need.
constexpr int bits_of(int64_t count) { return count < 2 ? 0 : static_cast<int>(std::bit_width(uint64_t(count) - 1)); }

/// radix_array_bytes() is the size of one array in the workspace. radix_scratch_bytes() is an upper bound of the
/// scratch memory that CUB needs, in which a table takes about a kilobyte for every few thousand keys.
constexpr size_t radix_array_bytes(size_t element, int64_t count) {
  return (element * static_cast<size_t>(count) + 255) / 256 * 256;
}
constexpr size_t radix_scratch_bytes(int64_t count) { return (size_t{1} << 20) + static_cast<size_t>(count) / 2; }
/// Bytes of RadixSort's workspace.
constexpr size_t radix_sort_bytes(size_t key, int64_t count) {
  return 2 * radix_array_bytes(key, count) + 2 * radix_array_bytes(4, count) + radix_scratch_bytes(count);
}

/// Keys (uint32_t or uint64_t) and their places in device memory; at most 2^31 - 1 keys.
template <class Key>
struct RadixSort {
  Key *keys, *other_keys;
  int32_t *places, *other_places;
  void* scratch;
  int64_t count;

  RadixSort(void* workspace, int64_t count) : count(count) {
    auto* at = static_cast<char*>(workspace);
    const auto take = [&](size_t bytes) { return std::exchange(at, at + bytes); };
    const size_t key_bytes = radix_array_bytes(sizeof(Key), count), place_bytes = radix_array_bytes(4, count);
    keys = reinterpret_cast<Key*>(take(key_bytes)), other_keys = reinterpret_cast<Key*>(take(key_bytes));
    places = reinterpret_cast<int32_t*>(take(place_bytes)),
    other_places = reinterpret_cast<int32_t*>(take(place_bytes));
    scratch = at;
  }
  /// Uses the memory and the places of `other`, to sort the same items again by keys of another type.
  template <class Other>
  explicit RadixSort(const RadixSort<Other>& other)
      : keys(reinterpret_cast<Key*>(other.keys)), other_keys(reinterpret_cast<Key*>(other.other_keys)),
        places(other.places), other_places(other.other_places), scratch(other.scratch), count(other.count) {
    static_assert(sizeof(Key) <= sizeof(Other));
  }
  /// Sorts `keys` and `places` by the lowest `bits` bits of the keys, in ascending order. Equal keys keep their order.
  /// The sort is queued on this thread's stream.
  void sort(Device device, int bits);
};

}  // namespace gradus::cuda_detail
