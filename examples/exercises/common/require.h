// Exceptions for holes and mistakes in exercises, and require() for checks.
#pragma once

#include <iomanip>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace exercise {

/// Thrown by a hole that has not been filled.
struct Todo : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Thrown by a check that fails. Its text is for the student.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Thrown by a check that cannot run on this machine. Its text says what is missing, and why: "1 CUDA device: …".
struct Missing : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
void require(bool right, const Args&... message) {
  if (right) return;
  std::ostringstream text;
  text << std::setprecision(6);
  (text << ... << message);
  throw Wrong(text.str());
}

/// "(2, 3)"
template <class List>
std::string listed(const List& numbers) {
  std::ostringstream text;
  const char* before = "(";
  for (const auto& number : numbers) text << std::exchange(before, ", ") << number;
  text << (numbers.empty() ? "()" : ")");
  return text.str();
}

}  // namespace exercise

using exercise::listed;
using exercise::require;
