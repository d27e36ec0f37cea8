// Formatted output for the reports of training/.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string>

namespace gradus::training::detail {

/// Appends formatted text of at most 1,023 characters to `text`.
[[gnu::format(printf, 2, 3)]] inline void print_to(std::string& text, const char* format, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  text.append(buffer, std::min<size_t>(static_cast<size_t>(std::max(length, 0)), sizeof buffer - 1));
}

}  // namespace gradus::training::detail
