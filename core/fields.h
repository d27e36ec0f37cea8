// Lists the fields of an argument struct once, so that generic code can record, print and read back any call.
#pragma once

#include <string_view>

/// Defines with_fields(f), which calls f with all fields of the struct in order, and field_names(): "x, w, bias".
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
