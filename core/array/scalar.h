// A number whose kind (bool, integer, floating) takes part in type promotion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <gradus/core/array/dtype.h>

namespace gradus {

/// A C++ number that is passed where a tensor could be passed as well (LibTorch's Scalar).
class Scalar {
 public:
  enum class Kind : uint8_t { boolean, integer, floating };
  Scalar() = default;
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T value) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_same_v<T, bool>) kind_ = Kind::boolean, integer_ = value;
    else if constexpr (std::is_integral_v<T>) kind_ = Kind::integer, integer_ = static_cast<int64_t>(value);
    else kind_ = Kind::floating, floating_ = static_cast<double>(value);
  }
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}      // NOLINT
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}  // NOLINT

  /// The kind of the C++ number from which this object was made.
  Kind kind() const { return kind_; }
  bool is_floating() const { return kind_ == Kind::floating; }
  double to_double() const { return is_floating() ? floating_ : static_cast<double>(integer_); }
  /// Truncates a floating value; values out of range saturate, NaN gives 0.
  int64_t to_int64() const {
    if (!is_floating()) return integer_;
    if (!(floating_ == floating_)) return 0;
    if (floating_ >= 9223372036854775807.0) return INT64_MAX;
    if (floating_ <= -9223372036854775808.0) return INT64_MIN;
    return static_cast<int64_t>(floating_);
  }
  bool to_bool() const { return is_floating() ? floating_ != 0 : integer_ != 0; }
  /// The value as a T. Narrowing wraps, as a C++ cast between integers does.
  template <class T>
  T cast() const {
    if constexpr (std::is_same_v<T, bool>) return to_bool();
    else if constexpr (std::is_integral_v<T>) return static_cast<T>(to_int64());
    else if constexpr (std::is_same_v<T, double>) return to_double();
    else return T(static_cast<float>(to_double()));
  }
  /// True if the value is in the range of T. T may round it or drop its fraction. As in PyTorch, only floating types
  /// hold NaN and infinities, and unsigned types accept negative integers modulo 2^bits.
  template <class T>
  bool fits() const {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double>) {
      return true;
    } else if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      constexpr double end = 2.0 * static_cast<double>(uint64_t{1} << (Limits::digits - 1));
      if (is_floating())
        return floating_ >= static_cast<double>(Limits::min()) && floating_ <= static_cast<double>(Limits::max()) &&
               floating_ < end;
      if constexpr (Limits::digits == 64) return true;
      else {
        constexpr int64_t most = static_cast<int64_t>(Limits::max());
        return integer_ >= (Limits::is_signed ? static_cast<int64_t>(Limits::min()) : -most) && integer_ <= most;
      }
    } else {
      constexpr double most = std::is_same_v<T, Half>       ? 65504
                              : std::is_same_v<T, BFloat16> ? 0x1.fep127
                                                            : double{std::numeric_limits<float>::max()};
      const double value = to_double();
      return !(value - value == 0) || (value >= -most && value <= most);
    }
  }
  /// The value as a T; throws a ValueError if it does not fit.
  template <class T>
  T to() const {
    if (!fits<T>()) [[unlikely]] {
      if constexpr (std::is_integral_v<T>) fail_conversion(std::is_signed_v<T> ? "int" : "uint", 8 * sizeof(T));
      else fail_conversion(std::is_same_v<T, BFloat16> ? "bfloat" : "float", 8 * sizeof(T));
    }
    return cast<T>();
  }
  // LibTorch's names: x.item().toFloat().
  float toFloat() const { return to<float>(); }
  double toDouble() const { return to_double(); }
  bool isFloatingPoint() const { return is_floating(); }  ///< same as is_floating()
  /// True for an integer, and for a bool if `include_bool`.
  bool isIntegral(bool include_bool) const {
    return kind_ == Kind::integer || (include_bool && kind_ == Kind::boolean);
  }
  bool isBoolean() const { return kind_ == Kind::boolean; }  ///< true if made from a bool
  int toInt() const { return to<int>(); }
  int64_t toLong() const { return to<int64_t>(); }
  bool toBool() const { return to_bool(); }
  /// Dtype of a tensor made from this number alone: bool, int64 or the default dtype.
  DType dtype() const {
    return kind_ == Kind::floating ? get_default_dtype() : kind_ == Kind::integer ? DType::i64 : DType::boolean;
  }

 private:
  [[noreturn]] void fail_conversion(const char* kind, size_t bits) const;
  union {
    int64_t integer_ = 0;
    double floating_;
  };
  Kind kind_ = Kind::integer;
};

/// Result type of `array op scalar`: the array's, unless the scalar is of a higher kind (torch.result_type).
inline DType promote_with_scalar(DType array, const Scalar& scalar) {
  if (scalar.kind() == Scalar::Kind::boolean || is_floating(array)) return array;
  if (scalar.is_floating()) return get_default_dtype();
  return array == DType::boolean ? DType::i64 : array;
}

}  // namespace gradus
