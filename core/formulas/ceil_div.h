// Division that rounds up, on hosts and in kernels.
#pragma once

#include <type_traits>

#include <gradus/core/array/dtype.h>

namespace gradus {

/// whole / part, rounded up, of numbers that are not negative.
template <class Whole, class Part>
GRADUS_HOST_DEVICE constexpr std::common_type_t<Whole, Part> ceil_div(Whole whole, Part part) {
  return (whole + part - 1) / part;
}

/// The smallest multiple of `part` that is not below `whole`.
template <class Whole, class Part>
GRADUS_HOST_DEVICE constexpr std::common_type_t<Whole, Part> round_up(Whole whole, Part part) {
  return ceil_div(whole, part) * part;
}

}  // namespace gradus
