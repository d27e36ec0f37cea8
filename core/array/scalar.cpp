#include <gradus/core/array/scalar.h>

namespace gradus {

void Scalar::fail_conversion(const char* kind, size_t bits) const {
  if (is_floating())
    detail::fail<ValueError>("value ", floating_, " cannot be converted to type ", kind, bits, " without overflow");
  detail::fail<ValueError>("value ", integer_, " cannot be converted to type ", kind, bits, " without overflow");
}

}  // namespace gradus
