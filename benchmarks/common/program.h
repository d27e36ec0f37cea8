// Program: the options of benchmark programs, errors that end the program with a message, and results as JSON. Only
// program.cpp includes CLI11 and nlohmann/json, because they take long to compile.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gradus::benchmarks {

/// The value of a field of a JSON object.
struct Value {
  Value(bool truth) : held(truth) {}
  Value(std::integral auto number) : held(static_cast<int64_t>(number)) {}
  Value(double number) : held(number) {}
  Value(const char* text) : held(std::string(text)) {}
  Value(std::string text) : held(std::move(text)) {}

  std::variant<bool, int64_t, double, std::string> held;
};
using Fields = std::vector<std::pair<std::string, Value>>;

/// Returns a JSON object on one line, with its fields in this order.
std::string to_json(const Fields& fields);

class Program {
 public:
  /// Adds an option --threads.
  Program(const std::string& name, const std::string& description);
  ~Program();

  /// Adds an option. `value` has the default, and gets the value from the command line. T is int, int64_t, double,
  /// std::string, or a std::vector of size_t or std::string, whose elements may also be separated by commas. If
  /// `choices` is not empty, other values are an error.
  template <class T>
  void option(const std::string& flags, T& value, const std::string& help,
              const std::vector<std::string>& choices = {});
  void flag(const std::string& flags, bool& value, const std::string& help);
  /// Adds the option --json FILE. record() appends to this file.
  void json_option();
  void record(const Fields& fields) const;

  /// Parses the command line, sets the number of threads and calls work(). Returns the program's exit code.
  int run(int argc, char** argv, const std::function<void()>& work);

 private:
  struct CommandLine;
  std::string name_, json_;
  int threads_ = 0;
  std::unique_ptr<CommandLine> line_;
};

}  // namespace gradus::benchmarks
