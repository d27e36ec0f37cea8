// Profiler: measures the time, memory and arithmetic of operators, kernels and layers.
//
//   training::Profiler profiler;
//   train_one_epoch();
//   profiler.stop();
//   std::cout << profiler.table();
//   profiler.save_trace("trace.json");      // open in chrome://tracing or https://ui.perfetto.dev
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gradus/core/runtime/device.h>

namespace gradus::training {

struct ProfilerOptions {
  /// The trace stores at most this many events and at most this many points of the memory curve. Later events appear
  /// only in the tables.
  size_t max_trace_events = 1'000'000;
  /// The device whose allocated memory the profiler records.
  Device device;
};

/// Observes all threads from its construction to stop(). Times are measured on the host, so they do not include the
/// asynchronous work of a GPU. Bytes are the minimum that a kernel must read and write. FLOPs are 0 for kernels that do
/// not report them.
class Profiler {
 public:
  explicit Profiler(const ProfilerOptions& options = {});
  ~Profiler();

  /// Ends the profile. Operators and kernels that still run are not part of the results.
  void stop();
  /// Time from the construction to stop(), or until now if stop() was not called.
  double seconds() const;

  struct Row {
    std::string name;                     ///< name of the operator or kernel
    std::string backend, implementation;  ///< only for a kernel; empty for an operator
    int64_t calls = 0;
    double total_seconds = 0;      ///< including the operators and kernels that it calls
    double self_seconds = 0;       ///< without the other operators that it calls; for a kernel, without other kernels
    int64_t bytes = 0, flops = 0;  ///< of its kernels, without the kernels of operators that it calls
  };
  struct ModuleRow {
    std::string path;                                  ///< empty for work outside layers
    double forward_seconds = 0, backward_seconds = 0;  ///< including submodules
    int64_t bytes = 0, flops = 0;
  };
  struct MemoryPoint {
    double seconds;  ///< since the construction
    int64_t bytes;   ///< bytes that are allocated at this time
  };
  struct MemoryPeak {
    int64_t bytes = 0;
    double seconds = 0;
    std::string name, module;  ///< the operator or kernel that ran at this time, and its layer
  };

  /// The operators that the program calls, sorted by self time. A backward pass is the operator "backward"; the
  /// table has another row for each kind of node that the pass runs.
  std::vector<Row> operators() const;
  std::vector<Row> kernels() const;
  /// Layers and the modules that contain them, in the order of their first use.
  std::vector<ModuleRow> modules() const;
  std::vector<MemoryPoint> memory_timeline() const;
  MemoryPeak memory_peak() const;

  /// All results as text: the `rows` most costly operators and kernels, every module, and the memory peak.
  std::string table(size_t rows = 20) const;
  /// Writes every event and the memory curve in the format of Chrome's trace viewer (JSON, "Trace Event Format").
  /// Throws an IoError if the file cannot be written.
  void save_trace(const std::string& path) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradus::training
