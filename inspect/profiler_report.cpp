// The results of a Profiler as lists, as text and as a trace.
#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include <gradus/core/platform/file.h>
#include <gradus/inspect/print_to.h>
#include <gradus/inspect/profiler_state.h>

namespace gradus::training {
namespace {

constexpr double kMilli = 1e3, kMicro = 1e6;

using detail::print_to;

std::vector<Profiler::Row> sorted(std::vector<Profiler::Row> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.self_seconds > b.self_seconds; });
  return rows;
}

double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }
double rate(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds / 1e9 : 0; }

/// For example "12.3 MB".
std::string bytes_text(int64_t bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1000 && unit < 4; ++unit) size /= 1000;
  std::string text;
  print_to(text, unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
  return text;
}

bool is_inside(const std::string& path, const std::string& module) {
  return path == module || (path.starts_with(module) && path[module.size()] == '.');
}

}  // namespace

std::vector<Profiler::Row> Profiler::operators() const {
  std::lock_guard lock(state_->mutex);
  std::vector<Row> rows;
  for (const auto& [key, row] : state_->operators) rows.push_back(row);
  return sorted(std::move(rows));
}

std::vector<Profiler::Row> Profiler::kernels() const {
  std::lock_guard lock(state_->mutex);
  std::vector<Row> rows;
  for (const auto& [key, row] : state_->kernels) rows.push_back(row);
  return sorted(std::move(rows));
}

std::vector<Profiler::ModuleRow> Profiler::modules() const {
  std::lock_guard lock(state_->mutex);
  // Modules that only contain other modules get rows, too.
  std::vector<ModuleRow> rows;
  const auto meet = [&](const std::string& path) {
    const bool known = std::any_of(rows.begin(), rows.end(), [&](const ModuleRow& row) { return row.path == path; });
    if (!known) rows.push_back({path});
  };
  for (const ModuleRow& module : state_->modules) {
    for (size_t dot = module.path.find('.'); dot != std::string::npos; dot = module.path.find('.', dot + 1))
      meet(module.path.substr(0, dot));
    meet(module.path);
  }
  for (ModuleRow& row : rows)
    for (const ModuleRow& module : state_->modules) {
      if (!is_inside(module.path, row.path) || (row.path.empty() && !module.path.empty())) continue;
      row.forward_seconds += module.forward_seconds;
      row.backward_seconds += module.backward_seconds;
      row.bytes += module.bytes;
      row.flops += module.flops;
    }
  return rows;
}

std::vector<Profiler::MemoryPoint> Profiler::memory_timeline() const {
  std::lock_guard lock(state_->mutex);
  return state_->memory;
}

Profiler::MemoryPeak Profiler::memory_peak() const {
  std::lock_guard lock(state_->mutex);
  return state_->peak;
}

std::string Profiler::table(size_t rows) const {
  const std::vector<Row> operators = this->operators(), kernels = this->kernels();
  const auto total_of = [](const std::vector<Row>& list) {
    double total = 0;
    for (const Row& row : list) total += row.self_seconds;
    return total;
  };
  const double in_operators = total_of(operators), in_kernels = total_of(kernels);
  std::string text;
  print_to(text, "%.3f s, of which operators %.3f s (%.1f %%) and their kernels %.3f s (%.1f %%)\n", seconds(),
           in_operators, share(in_operators, seconds()), in_kernels, share(in_kernels, seconds()));

  print_to(text, "\n%-28s %9s %11s %11s %7s %10s %9s\n", "operator", "calls", "total ms", "self ms", "self %", "bytes",
           "GFLOP");
  for (size_t i = 0; i < std::min(rows, operators.size()); ++i) {
    const Row& row = operators[i];
    print_to(text, "%-28s %9lld %11.3f %11.3f %7.2f %10s %9.3f\n", row.name.c_str(), static_cast<long long>(row.calls),
             kMilli * row.total_seconds, kMilli * row.self_seconds, share(row.self_seconds, in_operators),
             bytes_text(row.bytes).c_str(), static_cast<double>(row.flops) / 1e9);
  }
  if (operators.size() > rows) print_to(text, "and %zu more\n", operators.size() - rows);

  print_to(text, "\n%-28s %-26s %9s %11s %7s %8s %9s\n", "kernel", "implementation", "calls", "self ms", "self %",
           "GB/s", "GFLOP/s");
  for (size_t i = 0; i < std::min(rows, kernels.size()); ++i) {
    const Row& row = kernels[i];
    print_to(text, "%-28s %-26s %9lld %11.3f %7.2f %8.2f %9.2f\n", row.name.c_str(),
             (row.backend + "/" + row.implementation).c_str(), static_cast<long long>(row.calls),
             kMilli * row.self_seconds, share(row.self_seconds, in_kernels), rate(row.bytes, row.self_seconds),
             rate(row.flops, row.self_seconds));
  }
  if (kernels.size() > rows) print_to(text, "and %zu more\n", kernels.size() - rows);

  print_to(text, "\n%-28s %11s %11s %7s %10s %9s\n", "module", "forward ms", "backward ms", "%", "bytes", "GFLOP");
  for (const ModuleRow& row : modules())
    print_to(text, "%-28s %11.3f %11.3f %7.2f %10s %9.3f\n",
             row.path.empty() ? "(outside of layers)" : row.path.c_str(), kMilli * row.forward_seconds,
             kMilli * row.backward_seconds, share(row.forward_seconds + row.backward_seconds, in_operators),
             bytes_text(row.bytes).c_str(), static_cast<double>(row.flops) / 1e9);

  const MemoryPeak peak = memory_peak();
  print_to(text, "\npeak memory: %s, at %.3f s, in %s%s%s\n", bytes_text(peak.bytes).c_str(), peak.seconds,
           peak.name.empty() ? "nothing" : peak.name.c_str(), peak.module.empty() ? "" : " of layer ",
           peak.module.c_str());
  return text;
}

void Profiler::save_trace(const std::string& path) const {
  std::lock_guard lock(state_->mutex);
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  std::string text =
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"gradus\"}}";
  for (const auto& [id, thread] : state_->threads)
    print_to(text, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"thread %d\"}}",
             thread.number, thread.number);
  for (const State::TraceEvent& event : state_->trace) {
    const bool is_kernel = !event.row->backend.empty();
    text += ",\n{\"ph\":\"X\",\"pid\":1,\"name\":" + quoted(event.row->name);
    print_to(text,
             ",\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"args\":{\"pass\":\"%s\",\"module\":", event.thread,
             kMicro * event.start, kMicro * event.seconds, is_kernel ? "kernel" : "operator",
             event.backward ? "backward" : "forward");
    text += quoted(state_->modules[event.module].path);
    if (is_kernel) {
      text += ",\"implementation\":" + quoted(event.row->backend + "/" + event.row->implementation);
      print_to(text, ",\"bytes\":%lld,\"flops\":%lld", static_cast<long long>(event.bytes),
               static_cast<long long>(event.flops));
    }
    text += "}}";
  }
  for (const MemoryPoint& point : state_->memory)
    print_to(text, ",\n{\"ph\":\"C\",\"pid\":1,\"name\":\"memory\",\"ts\":%.3f,\"args\":{\"allocated\":%lld}}",
             kMicro * point.seconds, static_cast<long long>(point.bytes));
  print_to(text, "\n],\"otherData\":{\"events_left_out\":%lld}}\n", static_cast<long long>(state_->left_out));
  io::write_file(path, text);
}

}  // namespace gradus::training
