// Vectors of the widest size of the machine for which this is compiled.
#pragma once

#include <cstdint>
#include <cstring>

namespace gradus::ladders {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kVectorRegisters = 32;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kVectorRegisters = 16;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16, kVectorRegisters = 32;
#else
constexpr int kVectorBytes = 16, kVectorRegisters = 16;
#endif
constexpr int64_t kVectorFloats = kVectorBytes / 4;

typedef float FloatVector __attribute__((vector_size(kVectorBytes)));

inline FloatVector load(const float* from) {
  FloatVector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store(float* to, FloatVector v) { std::memcpy(to, &v, sizeof v); }
/// Stores the first `count` lanes, or all lanes if there are fewer.
inline void store_first(float* to, FloatVector v, int64_t count) {
  if (count >= kVectorFloats) store(to, v);
  else if (count > 0) std::memcpy(to, &v, static_cast<size_t>(count) * sizeof(float));
}

inline FloatVector relu(FloatVector v) { return v > 0 ? v : FloatVector{}; }

}  // namespace gradus::ladders
