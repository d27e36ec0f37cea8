// Reads and writes numbers in an explicit byte order, so that files and messages are the same on little-endian and
// big-endian machines.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace gradus::io {

/// Unsigned integer of sizeof(T) bytes at `bytes`, least significant byte first.
template <class T>
T read_little_endian(const std::byte* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | static_cast<T>(bytes[i]) << (8 * i));
  return value;
}
/// Unsigned integer of sizeof(T) bytes at `bytes`, most significant byte first.
template <class T>
T read_big_endian(const std::byte* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value << 8 | static_cast<T>(bytes[i]));
  return value;
}
template <class T>
void write_little_endian(T value, std::byte* bytes) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}
template <class T>
void write_big_endian(T value, std::byte* bytes) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes[sizeof(T) - 1 - i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

/// Converts `count` elements of `size` bytes between the byte order of the file and this machine's, in place.
inline void convert_byte_order(void* data, size_t count, size_t size, std::endian file_order) {
  if (file_order == std::endian::native || size == 1) return;
  std::byte* element = static_cast<std::byte*>(data);
  for (size_t i = 0; i < count; ++i, element += size) std::reverse(element, element + size);
}

}  // namespace gradus::io
