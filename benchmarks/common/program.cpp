#include <gradus/benchmarks/common/program.h>

#include <cstdio>
#include <fstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <gradus/core/error.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::benchmarks {

std::string to_json(const Fields& fields) {
  nlohmann::ordered_json object;
  for (const auto& [name, value] : fields)
    std::visit([&field = object[name]](const auto& held) { field = held; }, value.held);
  return object.dump();
}

struct Program::CommandLine {
  CLI::App app;
};

Program::Program(const std::string& name, const std::string& description)
    : name_(name), line_(std::make_unique<CommandLine>()) {
  line_->app.description(description);
  option("--threads", threads_, "CPU threads; default: all");
}

Program::~Program() = default;

template <class T>
void Program::option(const std::string& flags, T& value, const std::string& help,
                     const std::vector<std::string>& choices) {
  CLI::Option* added = line_->app.add_option(flags, value, help);
  if constexpr (!std::is_arithmetic_v<T> && !std::is_same_v<T, std::string>) added->delimiter(',');
  if (!choices.empty()) added->check(CLI::IsMember(choices));
}
template void Program::option(const std::string&, int&, const std::string&, const std::vector<std::string>&);
template void Program::option(const std::string&, int64_t&, const std::string&, const std::vector<std::string>&);
template void Program::option(const std::string&, double&, const std::string&, const std::vector<std::string>&);
template void Program::option(const std::string&, std::string&, const std::string&, const std::vector<std::string>&);
template void Program::option(const std::string&, std::vector<size_t>&, const std::string&,
                              const std::vector<std::string>&);
template void Program::option(const std::string&, std::vector<std::string>&, const std::string&,
                              const std::vector<std::string>&);

void Program::flag(const std::string& flags, bool& value, const std::string& help) {
  line_->app.add_flag(flags, value, help);
}

void Program::json_option() { option("--json", json_, "append one JSON line a row to this file"); }

void Program::record(const Fields& fields) const {
  if (json_.empty()) return;
  std::ofstream file(json_, std::ios::app);
  file << to_json(fields) << '\n';
  if (!file.flush()) GRADUS_FAIL(IoError, "cannot write to ", json_);
}

int Program::run(int argc, char** argv, const std::function<void()>& work) {
  CLI11_PARSE(line_->app, argc, argv);
  try {
    if (threads_ > 0) set_num_threads(threads_);
    work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name_.c_str(), error.what());
    return 1;
  }
  return 0;
}

}  // namespace gradus::benchmarks
