// Element types: their names, sizes, C++ types and promotion rules, and `visit`, which calls a template with the C++
// type of a DType.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include <gradus/core/error.h>

#if defined(__CUDACC__)
#define GRADUS_HOST_DEVICE __host__ __device__
#else
#define GRADUS_HOST_DEVICE
#endif

namespace gradus {

/// Element type of an array. The numeric values must never change, because they are stored in files and sent between
/// processes.
enum class DType : uint8_t { f32 = 0, f64 = 1, f16 = 2, bf16 = 3, i64 = 4, i32 = 5, u8 = 6, boolean = 7 };
inline constexpr int kDTypeCount = 8;

/// LibTorch's names.
inline constexpr DType kFloat = DType::f32, kFloat32 = DType::f32, kDouble = DType::f64, kFloat64 = DType::f64,
                       kHalf = DType::f16, kFloat16 = DType::f16, kBFloat16 = DType::bf16, kLong = DType::i64,
                       kInt64 = DType::i64, kInt = DType::i32, kInt32 = DType::i32, kByte = DType::u8,
                       kUInt8 = DType::u8, kBool = DType::boolean;

/// IEEE binary16 for storage only: arithmetic goes through float. Conversion rounds to nearest even.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  GRADUS_HOST_DEVICE Half(float value) : bits(from_float(value)) {}     // NOLINT(google-explicit-constructor)
  GRADUS_HOST_DEVICE operator float() const { return to_float(bits); }  // NOLINT(google-explicit-constructor)
  GRADUS_HOST_DEVICE static uint16_t from_float(float value);
  GRADUS_HOST_DEVICE static float to_float(uint16_t bits);
};

/// The upper 16 bits of an IEEE binary32, for storage only. Conversion rounds to nearest even.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  GRADUS_HOST_DEVICE BFloat16(float value) : bits(from_float(value)) {}  // NOLINT(google-explicit-constructor)
  GRADUS_HOST_DEVICE operator float() const {                            // NOLINT(google-explicit-constructor)
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
  GRADUS_HOST_DEVICE static uint16_t from_float(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint16_t rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
#else
    uint32_t wide;
    memcpy(&wide, &value, 4);
    if ((wide & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((wide >> 16) | 0x0040u);  // a quiet NaN
    return static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
#endif
  }
};

GRADUS_HOST_DEVICE inline uint16_t Half::from_float(float value) {
#if defined(__CUDA_ARCH__)
  uint16_t rounded;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
#else
  uint32_t wide;
  memcpy(&wide, &value, 4);
  const uint32_t sign = (wide >> 16) & 0x8000u;
  const uint32_t magnitude = wide & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x33000001u) return static_cast<uint16_t>(sign);             // rounds to zero
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const int shift = exponent < -14 ? 13 + (-14 - exponent) : 13;
  const uint32_t half_ulp = 1u << (shift - 1), rest = mantissa & ((1u << shift) - 1);
  mantissa >>= shift;
  // Rounds to nearest even. If the mantissa overflows, the carry increments the exponent, which is correct.
  if (rest > half_ulp || (rest == half_ulp && (mantissa & 1u))) ++mantissa;
  const uint32_t biased = exponent < -14 ? 0u : static_cast<uint32_t>(exponent + 14) << 10;
  return static_cast<uint16_t>(sign | (biased + mantissa));
#endif
}

GRADUS_HOST_DEVICE inline float Half::to_float(uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float exact;
  asm("cvt.f32.f16 %0, %1;" : "=f"(exact) : "h"(bits));
  return exact;
#else
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu, wide;
  if (exponent == 0x1f) {
    wide = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    wide = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else if (mantissa == 0) {
    wide = sign;
  } else {  // a subnormal half is a normal float
    exponent = 113;
    while (!(mantissa & 0x400u)) mantissa <<= 1, --exponent;
    wide = sign | (exponent << 23) | ((mantissa & 0x3ffu) << 13);
  }
  float value;
  memcpy(&value, &wide, 4);
  return value;
#endif
}

namespace detail {
inline DType default_dtype = DType::f32;
[[noreturn]] void bad_dtype(DType dtype, const char* wanted);
}  // namespace detail
/// The dtype of new floating-point tensors if none is given, and of the quotient of integers. Applies to the whole
/// process; float32 at the start.
inline DType get_default_dtype() { return detail::default_dtype; }
/// Throws a DTypeError if `dtype` is not a floating type.
void set_default_dtype(DType dtype);

// clang-format off
template <class T> struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr DType value = DType::f32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::f64; };
template <> struct DTypeOf<Half> { static constexpr DType value = DType::f16; };
template <> struct DTypeOf<BFloat16> { static constexpr DType value = DType::bf16; };
template <> struct DTypeOf<int64_t> { static constexpr DType value = DType::i64; };
template <> struct DTypeOf<int32_t> { static constexpr DType value = DType::i32; };
template <> struct DTypeOf<uint8_t> { static constexpr DType value = DType::u8; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::boolean; };
template <> struct DTypeOf<long long> { static constexpr DType value = DType::i64; };
template <class T> inline constexpr DType dtype_of = DTypeOf<T>::value;
// clang-format on

/// The type in which operations on T compute: float for half types, otherwise T.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

constexpr size_t size_of(DType dtype) {
  constexpr uint8_t sizes[kDTypeCount] = {4, 8, 2, 2, 8, 4, 1, 1};
  return sizes[static_cast<int>(dtype)];
}
constexpr bool is_floating(DType dtype) { return dtype <= DType::bf16; }
constexpr bool is_integral(DType dtype) { return dtype >= DType::i64 && dtype <= DType::u8; }
/// "Float", "Double", …, as LibTorch prints them.
std::string_view type_name(DType dtype);
/// "float32", "int64", …, as NumPy and PyTorch name them.
std::string_view name(DType dtype);
/// The dtype in which an operation on operands of types a and b computes (torch.promote_types).
DType promote_types(DType a, DType b);

inline detail::Message& operator<<(detail::Message& message, DType dtype) { return message << name(dtype); }

/// Calls `f.template operator()<T>()` with the C++ type of `dtype`:  visit(dtype, [&]<class T>{ … });
template <class F>
decltype(auto) visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f.template operator()<float>();
    case DType::f64: return f.template operator()<double>();
    case DType::f16: return f.template operator()<Half>();
    case DType::bf16: return f.template operator()<BFloat16>();
    case DType::i64: return f.template operator()<int64_t>();
    case DType::i32: return f.template operator()<int32_t>();
    case DType::u8: return f.template operator()<uint8_t>();
    case DType::boolean: return f.template operator()<bool>();
  }
  detail::bad_dtype(dtype, "a known element type");
}

/// Calls f.template operator()<Bits>() with the unsigned integer type that is as wide as an element. Kernels that only
/// move elements need this type alone.
template <class F>
void visit_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
}

/// `visit` for floating types; throws a DTypeError for others.
template <class F>
decltype(auto) visit_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f.template operator()<float>();
    case DType::f64: return f.template operator()<double>();
    case DType::f16: return f.template operator()<Half>();
    case DType::bf16: return f.template operator()<BFloat16>();
    default: detail::bad_dtype(dtype, "a floating-point type");
  }
}

/// `visit` for all types except boolean, for which it throws a DTypeError.
template <class F>
decltype(auto) visit_numeric(DType dtype, F&& f) {
  if (dtype == DType::boolean) detail::bad_dtype(dtype, "a numeric type");
  return visit(dtype, [&]<class T>() -> decltype(auto) {
    if constexpr (!std::is_same_v<T, bool>) return f.template operator()<T>();
    else detail::bad_dtype(DType::boolean, "a numeric type");
  });
}

}  // namespace gradus
