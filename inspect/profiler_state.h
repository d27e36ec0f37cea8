// The data that a Profiler collects. Internal to it.
#pragma once

#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>

#include <gradus/inspect/profiler.h>

namespace gradus::training {

struct Profiler::State {
  using Key = std::tuple<std::string, std::string, std::string>;  // name, backend, implementation
  using KeyView = std::tuple<std::string_view, std::string_view, std::string_view>;
  /// Allows lookups without copying the strings of a key.
  struct KeyOrder {
    using is_transparent = void;
    static KeyView view(const KeyView& key) { return key; }
    static KeyView view(const Key& key) { return {std::get<0>(key), std::get<1>(key), std::get<2>(key)}; }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return view(a) < view(b);
    }
  };
  using Rows = std::map<Key, Row, KeyOrder>;

  /// An event that has begun and not ended.
  struct Frame {
    const ObservedEvent* event;
    size_t module;     // index in modules
    bool backward;     // whether it is part of a backward pass
    double inner = 0;  // seconds of events of the same kind inside
    int64_t bytes = 0, flops = 0;
  };
  struct Thread {
    int number;
    std::vector<Frame> frames;
  };
  struct TraceEvent {
    const Row* row;
    size_t module;
    int thread;
    double start, seconds;
    int64_t bytes, flops;
    bool backward;
  };

  explicit State(const ProfilerOptions& options_) : options(options_) {}
  void on_begin(const ObservedEvent& event);
  void on_end(const ObservedEvent& event);
  Thread& this_thread();
  Row& row(Rows& rows, const ObservedEvent& event);
  size_t module_number(const std::string& path);
  void look_at_memory(const ObservedEvent& event, double at, size_t module);

  const ProfilerOptions options;
  double start = observer_time(), end = 0;
  bool running = true;
  std::mutex mutex;
  std::unordered_map<std::thread::id, Thread> threads;
  Rows operators, kernels;
  std::vector<ModuleRow> modules;  // each without the modules inside
  std::unordered_map<std::string, size_t> module_numbers;
  std::vector<TraceEvent> trace;
  std::vector<MemoryPoint> memory;
  MemoryPeak peak;
  int64_t left_out = 0;  // number of events beyond the trace's limit
};

}  // namespace gradus::training
