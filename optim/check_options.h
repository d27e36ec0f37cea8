// What OptimizerOptions::check() is made of. Messages name the option and its value.
#pragma once

#include <cmath>
#include <tuple>

#include <gradus/core/error.h>
#include <gradus/core/formulas/optimizer_rules.h>

namespace gradus::optim::detail {

inline void check_not_negative(const char* option, double value) {
  GRADUS_CHECK(value >= 0 && std::isfinite(value), ValueError, option, " must be finite and not negative, got ", value);
}
inline void check_fraction(const char* option, double value) {
  GRADUS_CHECK(value >= 0 && value < 1, ValueError, option, " must be in [0, 1), got ", value);
}
inline void check_betas(const std::tuple<double, double>& betas) {
  check_fraction("betas[0]", std::get<0>(betas));
  check_fraction("betas[1]", std::get<1>(betas));
}

}  // namespace gradus::optim::detail
