// Parses numbers in text, such as a field of a file, a message or an environment variable.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace gradus::io {

/// Parses all of `text` as a number, as std::from_chars does: without spaces around it or a plus sign. An integer has
/// `base` 10 unless another one is given. Returns nothing if the text is not a number or if it does not fit in a T.
template <class T, class... Base>
std::optional<T> parse_number(std::string_view text, Base... base) {
  T value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, base...);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

}  // namespace gradus::io
