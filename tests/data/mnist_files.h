// Writes a small dataset in MNIST's format.
#pragma once

#include <gradus/core/platform/file.h>
#include <gradus/tests/temporary_directory.h>

namespace gradus::test {

inline std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

/// Returns IDX files of `count` images, whose pixels are consecutive numbers, and of their labels 0, 1, … 9, 0, …
inline std::string idx_images(uint32_t count, uint32_t height = 28, uint32_t width = 28) {
  std::string file = std::string("\0\0\x08\3", 4) + big_endian(count) + big_endian(height) + big_endian(width);
  for (uint32_t i = 0; i < count * height * width; ++i) file.push_back(static_cast<char>((i * 7 + i / 784) & 0xff));
  return file;
}
inline std::string idx_labels(uint32_t count) {
  std::string file = std::string("\0\0\x08\1", 4) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) file.push_back(static_cast<char>(i % 10));
  return file;
}

/// Writes the four files to `directory`.
inline void write_mnist(const TemporaryDirectory& directory, uint32_t train, uint32_t test) {
  io::write_file(directory.file("train-images-idx3-ubyte"), idx_images(train));
  io::write_file(directory.file("train-labels-idx1-ubyte"), idx_labels(train));
  io::write_file(directory.file("t10k-images-idx3-ubyte"), idx_images(test));
  io::write_file(directory.file("t10k-labels-idx1-ubyte"), idx_labels(test));
}

}  // namespace gradus::test
