// Putting numbers in the order of keys, for whatever has to be sorted on the device.
#pragma once

#include <cstdint>

#include <gradus/core/device.h>

namespace gradus::cuda_detail {

/// order = the places 0 … count - 1 (`places`, in any order) by ascending key; of equal keys the earlier one comes
/// first. Only the lowest `bits` bits of a key count. The four arrays lie on `device` and are different ones;
/// `sorted_keys` is written too. Runs on this thread's stream. At most 2^31 - 1 keys.
void radix_sort(Device device, const uint32_t* keys, uint32_t* sorted_keys, const int32_t* places, int32_t* order,
                int64_t count, int bits);
void radix_sort(Device device, const uint64_t* keys, uint64_t* sorted_keys, const int32_t* places, int32_t* order,
                int64_t count, int bits);

/// Bits of the largest of `count` numbers 0 … count - 1.
constexpr int bits_of(int64_t count) {
  int bits = 0;
  while (bits < 63 && (int64_t{1} << bits) < count) ++bits;
  return bits;
}

}  // namespace gradus::cuda_detail
