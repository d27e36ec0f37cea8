#include <gradus/data/plan.h>

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace gradus::data::detail {

std::string short_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> full(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    std::free);
  std::string name = status == 0 ? full.get() : type.name();
  for (const char* anonymous : {"lambda", "$_", "(*)", "std::function<"})  // clang numbers lambdas: $_0
    if (name.find(anonymous) != std::string::npos) return "function";
  name = name.substr(0, name.find('<'));
  const size_t scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

std::string plan_line(const std::type_info& type, std::optional<size_t> size) {
  return short_name(type) + (size ? ", " + std::to_string(*size) + " samples" : ", of unknown size");
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string join_numbers(const std::vector<double>& numbers) {
  std::string text;
  for (double number : numbers) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.6g", number);
    text += (text.empty() ? "" : ", ") + std::string(digits);
  }
  return text;
}

}  // namespace gradus::data::detail
