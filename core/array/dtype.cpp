#include <gradus/core/array/scalar.h>

namespace gradus {

std::string_view type_name(DType dtype) {
  constexpr std::string_view names[kDTypeCount] = {"Float", "Double", "Half", "BFloat16",
                                                   "Long",  "Int",    "Byte", "Bool"};
  return static_cast<int>(dtype) < kDTypeCount ? names[static_cast<int>(dtype)] : "unknown";
}

std::string_view name(DType dtype) {
  constexpr std::string_view names[kDTypeCount] = {"float32", "float64", "float16", "bfloat16",
                                                   "int64",   "int32",   "uint8",   "bool"};
  return static_cast<int>(dtype) < kDTypeCount ? names[static_cast<int>(dtype)] : "unknown";
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_floating(a)) {
    if (a == DType::f64 || b == DType::f64) return DType::f64;
    return DType::f32;  // f32 with a half type, or the two half types with each other
  }
  // boolean < u8 < i32 < i64: the enum orders integers from wide to narrow.
  return a < b ? a : b;
}

void set_default_dtype(DType dtype) {
  if (!is_floating(dtype)) detail::bad_dtype(dtype, "a floating-point type");
  detail::default_dtype = dtype;
}

void detail::bad_dtype(DType dtype, const char* wanted) { fail<DTypeError>("expected ", wanted, ", got ", dtype); }

void Scalar::fail_conversion(const char* kind, size_t bits) const {
  if (is_floating())
    detail::fail<ValueError>("value ", floating_, " cannot be converted to type ", kind, bits, " without overflow");
  detail::fail<ValueError>("value ", integer_, " cannot be converted to type ", kind, bits, " without overflow");
}

}  // namespace gradus
