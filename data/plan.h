// Names of pipeline steps for explain().
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

namespace gradus::data::detail {

/// "Normalize" for gradus::data::transforms::Normalize<gradus::Tensor>; "function" for a lambda.
std::string short_name(const std::type_info& type);
/// "MNIST, 60000 samples"
std::string plan_line(const std::type_info& type, std::optional<size_t> size);
std::string join_lines(const std::vector<std::string>& lines);
/// Formats numbers as a person would write them: "0.5, 1, -3".
std::string join_numbers(const std::vector<double>& numbers);

/// A transform's own description, or its name.
template <class Transform>
std::string describe(const Transform& transform) {
  if constexpr (requires { transform.describe(); }) return transform.describe();
  else return short_name(typeid(Transform));
}

}  // namespace gradus::data::detail
