// Profiler: where the time, the memory and the arithmetic of a run go.
//
//   training::Profiler profiler;
//   train_one_epoch();
//   profiler.stop();
//   std::cout << profiler.table();
//   profiler.save_trace("trace.json");      // open in chrome://tracing or https://ui.perfetto.dev
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gradus/core/runtime/device.h>
#include <gradus/core/runtime/observer.h>

namespace gradus::training {

struct ProfilerOptions {
  /// Events and points of the memory curve that the trace holds at most; later ones are counted in the tables alone.
  size_t max_trace_events = 1'000'000;
  /// Whose memory is watched.
  Device device;
};

/// An observer of all threads from its construction to stop(). Times are the host's; what a GPU does meanwhile is not
/// seen. Bytes are what kernels read and write at least; FLOPs are counted where a kernel says them.
class Profiler final : public Observer {
 public:
  explicit Profiler(const ProfilerOptions& options = {});
  ~Profiler() override;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Ends the profile; events that are open are left out.
  void stop();
  /// From the beginning to stop(), or to now.
  double seconds() const;

  struct Row {
    std::string name;                     ///< of the operator or kernel
    std::string backend, implementation;  ///< of a kernel
    int64_t calls = 0;
    double total_seconds = 0;      ///< with all that it calls
    double self_seconds = 0;       ///< operators: without other operators; kernels: without other kernels
    int64_t bytes = 0, flops = 0;  ///< of its own kernels
  };
  struct ModuleRow {
    std::string path;                                  ///< "" for what is done outside of layers
    double forward_seconds = 0, backward_seconds = 0;  ///< with those of the modules inside
    int64_t bytes = 0, flops = 0;
  };
  struct MemoryPoint {
    double seconds;  ///< since the beginning
    int64_t bytes;   ///< allocated
  };
  struct MemoryPeak {
    int64_t bytes = 0;
    double seconds = 0;
    std::string name, module;  ///< what ran
  };

  /// What users call, the most costly (by self time) first. "backward" is one of them; the nodes that it runs are
  /// others.
  std::vector<Row> operators() const;
  std::vector<Row> kernels() const;
  /// Layers and the modules around them, in order of their first use.
  std::vector<ModuleRow> modules() const;
  std::vector<MemoryPoint> memory_timeline() const;
  MemoryPeak memory_peak() const;

  /// All this as text: the `rows` most costly operators and kernels, every module, the peak of memory.
  std::string table(size_t rows = 20) const;
  /// Every event and the memory curve in the format of Chrome's trace viewer (JSON, "Trace Event Format"). IoError
  /// where it cannot be written.
  void save_trace(const std::string& path) const;

  void on_begin(const ObservedEvent& event) override;
  void on_end(const ObservedEvent& event) override;

 private:
  struct State;  // profiler_state.h
  std::unique_ptr<State> state_;
};

}  // namespace gradus::training
