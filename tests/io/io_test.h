// What the tests of file formats share.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <gradus/core/array.h>
#include <gradus/core/io/file.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

namespace gradus::test {

inline io::ByteSpan bytes_of(const std::string& text) { return std::as_bytes(std::span<const char>(text)); }

/// `value` as `size` little-endian bytes.
inline std::string little_endian(uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

/// A row-major array of the given elements.
template <class T>
Array array_of(const Shape& shape, const std::vector<T>& values) {
  const Array array = Array::empty(shape, dtype_of<T>);
  REQUIRE(array.numel() == static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) static_cast<T*>(array.data())[i] = values[i];
  return array;
}

/// The elements of a row-major array.
template <class T>
std::vector<T> values_of(const Array& array) {
  REQUIRE(array.is_contiguous());
  return std::vector<T>(array.data<T>(), array.data<T>() + array.numel());
}

}  // namespace gradus::test
