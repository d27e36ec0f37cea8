// The fields of a struct of arguments, listed once: calls are recorded and printed without code for each
// struct.
#pragma once

#include <string_view>

/// with_fields(f): f(all fields of a struct, in order); field_names(): "x, w, bias".
#define GRADUS_FIELDS(...)                  \
  template <class F>                        \
  decltype(auto) with_fields(F&& f) {       \
    return f(__VA_ARGS__);                  \
  }                                         \
  template <class F>                        \
  decltype(auto) with_fields(F&& f) const { \
    return f(__VA_ARGS__);                  \
  }                                         \
  static constexpr std::string_view field_names() { return #__VA_ARGS__; }
