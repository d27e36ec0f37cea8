// The profiler: its counts, and the trace it writes.
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

using namespace gradus;
using test::contains;
using training::Profiler;

namespace {

struct NetImpl : nn::Module {
  nn::Sequential features = register_module("features", nn::Sequential(nn::Conv2d(1, 4, 3), nn::ReLU()));
  nn::Linear head = register_module("head", nn::Linear(4 * 6 * 6, 3));
  Tensor forward(const Tensor& x) { return head(features->forward(x).flatten(1)); }
};
GRADUS_MODULE(Net);

Profiler::Row find(const std::vector<Profiler::Row>& rows, const std::string& name) {
  for (const Profiler::Row& row : rows)
    if (row.name == name) return row;
  FAIL("no row " << name);
  throw 0;
}

/// Observes the same events as the profiler and adds up their figures.
struct Totals : Observer {
  int64_t flops = 0, bytes = 0, events = 0;
  void on_end(const ObservedEvent& event) override {
    ++events;
    if (event.leaf) flops += event.flops, bytes += event.bytes;
  }
};

}  // namespace

TEST_CASE("a profile lists operators, kernels, modules and memory", "[profiler]") {
  Net net;
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
  const Tensor x = randn({2, 1, 8, 8});
  Totals totals;
  add_observer(&totals);
  Profiler profiler;
  for (int i = 0; i < 3; ++i) {
    sgd.zero_grad();
    net(x).pow(2).mean().backward();
    sgd.step();
  }
  profiler.stop();
  remove_observer(&totals);
  const double seconds = profiler.seconds();
  net(x);  // not profiled
  CHECK(profiler.seconds() == seconds);

  const auto operators = profiler.operators(), kernels = profiler.kernels();
  CHECK(find(operators, "conv2d").calls == 3);
  CHECK(find(operators, "optimizer_step").calls == 3);
  const Profiler::Row backward = find(operators, "backward");
  CHECK(backward.calls == 3);
  CHECK(backward.self_seconds < backward.total_seconds);
  double self = 0;
  int64_t flops = 0, bytes = 0;
  for (size_t i = 0; i < operators.size(); ++i) {
    self += operators[i].self_seconds;
    flops += operators[i].flops;
    bytes += operators[i].bytes;
    CHECK(operators[i].self_seconds <= operators[i].total_seconds + 1e-12);
    if (i > 0) CHECK(operators[i].self_seconds <= operators[i - 1].self_seconds);
  }
  CHECK(self <= seconds);
  CHECK(flops == totals.flops);  // totals count leaves
  CHECK(bytes == totals.bytes);
  flops = bytes = 0;
  for (const Profiler::Row& row : kernels) {
    CHECK_FALSE(row.backend.empty());
    flops += row.flops;
    bytes += row.bytes;
  }
  CHECK(flops == totals.flops);
  CHECK(bytes == totals.bytes);

  std::map<std::string, Profiler::ModuleRow> modules;
  for (const Profiler::ModuleRow& row : profiler.modules()) modules[row.path] = row;
  REQUIRE(modules.contains("features"));
  CHECK(modules["features"].forward_seconds ==
        Approx(modules["features.0"].forward_seconds + modules["features.1"].forward_seconds));
  CHECK(modules["features.0"].backward_seconds > 0);
  CHECK(modules["head"].flops > 0);
  CHECK(modules[""].flops + modules["features"].flops + modules["head"].flops == totals.flops);

  const auto peak = profiler.memory_peak();
  int64_t highest = 0;
  for (const auto& point : profiler.memory_timeline()) highest = std::max(highest, point.bytes);
  CHECK(highest == peak.bytes);
  CHECK(peak.bytes > static_cast<int64_t>(x.nbytes()));
  CHECK_FALSE(peak.name.empty());
  CHECK_THAT(profiler.table(), contains("conv2d") && contains("features.0") && contains("peak memory") &&
                                   contains("GFLOP/s") && contains("(outside of layers)"));
  CHECK_THAT(profiler.table(2), contains("more\n"));
}

TEST_CASE("a trace is JSON with properly nested events", "[profiler]") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("trace.json");
  Net net;
  Profiler profiler;
  const Tensor y = net(randn({2, 1, 8, 8}));
  y.sum().backward();
  std::thread([] { randn({8}).exp(); }).join();
  profiler.stop();
  profiler.save_trace(path);
  nlohmann::json trace;
  std::ifstream(path) >> trace;

  struct Span {
    double begin, end;
  };
  std::map<int, std::vector<Span>> threads;
  bool conv_seen = false, kernel_seen = false, memory_seen = false;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "C") memory_seen = memory_seen || event["args"]["allocated"].get<int64_t>() > 0;
    if (event["ph"] != "X") continue;
    threads[event["tid"]].push_back({event["ts"], event["ts"].get<double>() + event["dur"].get<double>()});
    if (event["name"] == "conv2d" && event["cat"] == "operator") {
      conv_seen = true;
      CHECK(event["args"]["module"] == "features.0");
      CHECK(event["args"]["pass"] == "forward");
    }
    kernel_seen = kernel_seen || (event["cat"] == "kernel" && event["args"]["flops"].get<int64_t>() > 0);
  }
  CHECK(conv_seen);
  CHECK(kernel_seen);
  CHECK(memory_seen);
  CHECK(threads.size() == 2);
  for (const auto& [thread, spans] : threads)
    for (const Span& a : spans)
      for (const Span& b : spans) {
        constexpr double kRounding = 0.002;
        const bool apart = a.end <= b.begin + kRounding || b.end <= a.begin + kRounding;
        const bool inside = (a.begin >= b.begin - kRounding && a.end <= b.end + kRounding) ||
                            (b.begin >= a.begin - kRounding && b.end <= a.end + kRounding);
        if (!apart && !inside) FAIL("spans cross");
      }
  CHECK_THROWS_AS(profiler.save_trace(directory.file("no/such/folder")), IoError);
}

TEST_CASE("a full trace drops events, the tables do not", "[profiler]") {
  const test::TemporaryDirectory directory;
  training::ProfilerOptions options;
  options.max_trace_events = 5;
  Profiler profiler(options);
  const Tensor x = ones({4});
  for (int i = 0; i < 20; ++i) x.exp();
  profiler.stop();
  CHECK(find(profiler.operators(), "exp").calls == 20);
  profiler.save_trace(directory.file("trace"));
  nlohmann::json trace;
  std::ifstream(directory.file("trace")) >> trace;
  CHECK(trace["otherData"]["events_left_out"].get<int>() >= 35);
}

TEST_CASE("events that began before a profile are left out; nested events of one name count once", "[profiler]") {
  Totals other;
  add_observer(&other);
  {
    EventScope before("before");
    Profiler profiler;
    { EventScope outer("again"), inner("again"); }
    { EventScope left("left"); }
    const auto rows = profiler.operators();
    CHECK(rows.size() == 2);
    const Profiler::Row again = find(rows, "again");
    CHECK(again.calls == 2);
    CHECK(again.total_seconds == Approx(again.self_seconds));
  }
  remove_observer(&other);
  CHECK_FALSE(observing());
}
