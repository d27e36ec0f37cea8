// The fields of a struct of arguments, listed once: calls are recorded, printed and read back without knowing it.
#pragma once

#include <string_view>
#include <tuple>

/// fields(): references to all fields of a struct, in order; field_names(): "x, w, bias". Templates, so that who does
/// not call them does not compile them.
#define GRADUS_FIELDS(...)        \
  template <int = 0>              \
  auto fields() {                 \
    return std::tie(__VA_ARGS__); \
  }                               \
  template <int = 0>              \
  auto fields() const {           \
    return std::tie(__VA_ARGS__); \
  }                               \
  static constexpr std::string_view field_names() { return #__VA_ARGS__; }
