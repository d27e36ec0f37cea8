// Division that rounds up, for host and device code.
#pragma once

#include <type_traits>

#include <gradus/core/array/dtype.h>

namespace gradus {

/// whole / part rounded up, for non-negative numbers.
template <class Whole, class Part>
GRADUS_HOST_DEVICE constexpr std::common_type_t<Whole, Part> ceil_div(Whole whole, Part part) {
  return (whole + part - 1) / part;
}

/// The smallest multiple of `part` that is at least `whole`.
template <class Whole, class Part>
GRADUS_HOST_DEVICE constexpr std::common_type_t<Whole, Part> round_up(Whole whole, Part part) {
  return ceil_div(whole, part) * part;
}

}  // namespace gradus
