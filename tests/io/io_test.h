// Shared by the tests of file formats.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/core/platform/file.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

namespace gradus::test {

inline io::ByteSpan bytes_of(const std::string& text) { return std::as_bytes(std::span<const char>(text)); }

/// The `size` little-endian bytes of `value`.
inline std::string little_endian(uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

/// A gzip file with `text` as its only member.
inline std::string gzip(const std::string& text) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// Runs `refused`, which must throw an IoError, in a child process. Returns by how many MiB it raises the process's
/// peak memory, or 255 if it does not throw.
template <class Function>
int peak_memory_of(const Function& refused) {
  const auto peak = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;  // KiB to MiB
  };
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const long before = peak();
    try {
      refused();
    } catch (const IoError&) { _exit(static_cast<int>(std::min(254L, peak() - before))); }
    _exit(255);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
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
