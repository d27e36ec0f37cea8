#include <gradus/core/array/scalar.h>

#include <algorithm>

namespace gradus {

static constexpr struct {
  std::string_view name, type_name;
} kNames[] = {{"float32", "Float"},     {"float64", "Double"}, {"float16", "Half"},
              {"bfloat16", "BFloat16"}, {"int64", "Long"},     {"int32", "Int"},
              {"uint8", "Byte"},        {"bool", "Bool"},      {"unknown", "unknown"}};

static const auto& names_of(DType dtype) { return kNames[std::min(static_cast<int>(dtype), kDTypeCount)]; }

std::string_view name(DType dtype) { return names_of(dtype).name; }
std::string_view type_name(DType dtype) { return names_of(dtype).type_name; }

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
