// The fields of a struct of arguments, listed once: calls are recorded, printed and read back without knowing it.
#pragma once

#include <string_view>
#include <tuple>

namespace gradus::detail {
struct FieldTie {
  template <class... Fields>
  static std::tuple<Fields&...> of(Fields&... fields) {
    return {fields...};
  }
};
}  // namespace gradus::detail

/// fields(): references to all fields of a struct, in order; field_names(): "x, w, bias". By way of a template's
/// parameter, so that who does not call them does not compile std::tuple of them.
#define GRADUS_FIELDS(...)                        \
  template <class Tie = gradus::detail::FieldTie> \
  auto fields() {                                 \
    return Tie::of(__VA_ARGS__);                  \
  }                                               \
  template <class Tie = gradus::detail::FieldTie> \
  auto fields() const {                           \
    return Tie::of(__VA_ARGS__);                  \
  }                                               \
  static constexpr std::string_view field_names() { return #__VA_ARGS__; }
