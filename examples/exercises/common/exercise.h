// What exercises and their checks are written with: everything of gradus, todo() for the holes, require() for checks.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gradus/autograd/gradcheck.h>
#include <gradus/distributed/distributed.h>
#include <gradus/gradus.h>
#include <gradus/training/plan.h>

namespace exercise {

/// Thrown by a hole that is not filled yet.
struct Todo : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Thrown by a check; its text is for the one who solves the exercise.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Stands where something is to be written.
[[noreturn]] inline void todo(const std::string& what) { throw Todo(what); }

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
using exercise::todo;
