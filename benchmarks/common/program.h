// What all benchmark programs have: options, errors that end the program with a message, figures as JSON. CLI11 and
// nlohmann/json stay in program.cpp: they take longer to compile than what the programs do.
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

/// What a field of a JSON object holds.
struct Value {
  Value(bool truth) : held(truth) {}
  Value(std::integral auto number) : held(static_cast<int64_t>(number)) {}
  Value(double number) : held(number) {}
  Value(const char* text) : held(std::string(text)) {}
  Value(std::string text) : held(std::move(text)) {}

  std::variant<bool, int64_t, double, std::string> held;
};
using Fields = std::vector<std::pair<std::string, Value>>;

/// A JSON object on one line, its fields in the given order.
std::string to_json(const Fields& fields);

class Program {
 public:
  /// Has an option --threads.
  Program(const std::string& name, const std::string& description);
  ~Program();

  /// `value` holds the default and takes what is given. T: int, int64_t, double, std::string, or a std::vector of
  /// size_t or std::string, whose elements commas separate too. `choices`: all that is allowed, if not empty.
  template <class T>
  void option(const std::string& flags, T& value, const std::string& help,
              const std::vector<std::string>& choices = {});
  void flag(const std::string& flags, bool& value, const std::string& help);
  /// --json FILE, to which `record` appends.
  void json_option();
  void record(const Fields& fields) const;

  /// Reads the command line, sets the number of threads and does the work; what main returns.
  int run(int argc, char** argv, const std::function<void()>& work);

 private:
  struct CommandLine;
  std::string name_, json_;
  int threads_ = 0;
  std::unique_ptr<CommandLine> line_;
};

}  // namespace gradus::benchmarks
