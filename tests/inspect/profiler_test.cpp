// The profiler: its counts, and the trace it writes.
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/inspect/stepped_clock.h>
#include <gradus/tests/temporary_directory.h>

#include <cmath>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
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

/// Keeps the events that the profiler gets as well, in the order in which they end.
struct Events : Observer {
  void on_end(const ObservedEvent& event) override { list.push_back(event); }
  double seconds(size_t i) const { return list.at(i).seconds; }
  std::deque<ObservedEvent> list;
};

/// Names the layer whose events follow.
struct Layer : ModuleFrame {
  explicit Layer(const char* path)
      : ModuleFrame(path, [](const void* name) { return std::string(static_cast<const char*>(name)); }) {}
};

/// Events of two layers and of a kernel outside layers. Each kernel "k" reads 32 bytes, writes as many, and reports 100
/// operations. The comments number the events in the order in which they end.
void run_made_program() {
  static float numbers[16];
  StridedLayout layout;
  layout.shape = {8}, layout.strides = {1};
  const View read(layout, numbers), written(layout, numbers + 8);
  const auto run_kernel = [&] { const EventScope kernel("k", "made", "loops", {&read, &written}, 100); };
  {
    const Layer layer("net.0");
    const EventScope outer("outer");
    run_kernel();  // 0
    {
      const EventScope inner("inner");
      run_kernel();  // 1
      const EventScope composite("composite", "made", "calls_part", {&read}, 1000);
      const EventScope part("part", "made", "loops", {&read}, 7);
    }  // 2: part, 3: composite, 4: inner
    const Array large = Array::empty({1 << 20}, DType::f32);
    run_kernel();  // 5
  }                // 6: outer
  {
    const EventScope backward("backward");
    const Layer layer("net.1");
    const EventScope node("Node");
    run_kernel();  // 7
  }                // 8: Node, 9: backward
  run_kernel();    // 10
}

/// The words of the line of a table that begins with a name.
std::vector<std::string> line_of(const std::string& table, const std::string& name) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + " ")) continue;
    std::istringstream words(line.substr(name.size()));
    return {std::istream_iterator<std::string>(words), {}};
  }
  FAIL("no line " << name);
  return {};
}

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
  CHECK(modules["features"].backward_seconds ==
        Approx(modules["features.0"].backward_seconds + modules["features.1"].backward_seconds));
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
  std::map<int, std::string> names;
  bool conv_seen = false, kernel_seen = false, memory_seen = false;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "C") memory_seen = memory_seen || event["args"]["allocated"].get<int64_t>() > 0;
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
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
  CHECK(names == std::map<int, std::string>{{1, "thread 1"}, {2, "thread 2"}});
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
  {
    std::optional<EventScope> first(std::in_place, "first"), second(std::in_place, "second");
    Profiler profiler;
    second.reset();
    { EventScope inside("inside"); }
    first.reset();
    CHECK(profiler.operators().size() == 1);
    CHECK(find(profiler.operators(), "inside").calls == 1);
  }
  remove_observer(&other);
  CHECK_FALSE(observing());
}

TEST_CASE("a profile adds the figures of events up by operator, by kernel and by module", "[profiler]") {
  Events events;
  add_observer(&events);
  Profiler profiler;
  const int64_t before = runtime(DeviceType::cpu).memory_stats(0).allocated;
  run_made_program();
  profiler.stop();
  remove_observer(&events);
  REQUIRE(events.list.size() == 11);
  const auto s = [&](size_t i) { return events.seconds(i); };

  struct Figures {
    int64_t calls;
    double total, self;
    int64_t bytes, flops;
  };
  const auto check = [](const Profiler::Row& row, const Figures& expected) {
    INFO(row.name);
    CHECK(row.calls == expected.calls);
    CHECK(row.total_seconds == Approx(expected.total));
    CHECK(row.self_seconds == Approx(expected.self));
    CHECK(row.bytes == expected.bytes);
    CHECK(row.flops == expected.flops);
  };
  const auto operators = profiler.operators(), kernels = profiler.kernels();
  CHECK(operators.size() == 4);
  check(find(operators, "outer"), {1, s(6), s(6) - s(4), 2 * 64, 200});
  check(find(operators, "inner"), {1, s(4), s(4), 64 + 32, 107});  // the composite kernel is its part
  check(find(operators, "backward"), {1, s(9), s(9) - s(8), 0, 0});
  check(find(operators, "Node"), {1, s(8), s(8), 64, 100});
  CHECK(kernels.size() == 3);
  const double in_k = s(0) + s(1) + s(5) + s(7) + s(10);
  check(find(kernels, "k"), {5, in_k, in_k, 5 * 64, 500});
  check(find(kernels, "part"), {1, s(2), s(2), 32, 7});
  check(find(kernels, "composite"), {1, s(3), s(3) - s(2), 0, 0});
  CHECK(find(kernels, "composite").implementation == "calls_part");

  const auto modules = profiler.modules();
  const auto check_module = [&](size_t number, const std::string& path, double forward, double backward, int64_t bytes,
                                int64_t flops) {
    INFO(path);
    const Profiler::ModuleRow& row = modules.at(number);
    CHECK(row.path == path);
    CHECK(row.forward_seconds == Approx(forward));
    CHECK(row.backward_seconds == Approx(backward));
    CHECK(row.bytes == bytes);
    CHECK(row.flops == flops);
  };
  REQUIRE(modules.size() == 4);
  check_module(0, "net", s(6), s(8), 4 * 64 + 32, 407);
  check_module(1, "net.0", s(6), 0, 3 * 64 + 32, 307);
  check_module(2, "", s(10), s(9) - s(8), 64, 100);
  check_module(3, "net.1", 0, s(8), 64, 100);

  // The memory of `large` is first seen when the kernel after it begins.
  const Profiler::MemoryPeak peak = profiler.memory_peak();
  CHECK(peak.bytes == before + (4 << 20));
  CHECK(peak.name == "k");
  CHECK(peak.module == "net.0");
  const auto timeline = profiler.memory_timeline();
  REQUIRE(timeline.size() == 3);
  CHECK(timeline[0].bytes == before);
  CHECK(timeline[1].bytes == peak.bytes);
  CHECK(timeline[1].seconds == peak.seconds);
  CHECK(timeline[2].bytes == before);
  CHECK(timeline[0].seconds >= 0);
  CHECK(timeline[0].seconds < timeline[1].seconds);
  CHECK(timeline[1].seconds < timeline[2].seconds);
  CHECK(timeline[2].seconds <= profiler.seconds());
}

TEST_CASE("the table of a profile has the figures of its rows", "[profiler]") {
  Profiler profiler;
  CHECK_THAT(profiler.table(), contains("peak memory: 0 B, at 0.000 s, in nothing\n"));
  run_made_program();
  profiler.stop();
  const std::string table = profiler.table();
  const auto operators = profiler.operators(), kernels = profiler.kernels();
  double in_operators = 0, in_kernels = 0;
  for (const Profiler::Row& row : operators) in_operators += row.self_seconds;
  for (const Profiler::Row& row : kernels) in_kernels += row.self_seconds;
  const auto near = [](const std::string& word, double value, double rounding) {
    INFO(word << " for " << value);
    CHECK(std::abs(std::stod(word) - value) <= rounding);
  };

  std::vector<std::string> words = line_of(table, "outer");
  const Profiler::Row outer = find(operators, "outer");
  CHECK(words.at(0) == "1");
  near(words.at(1), 1e3 * outer.total_seconds, 5.1e-4);
  near(words.at(2), 1e3 * outer.self_seconds, 5.1e-4);
  near(words.at(3), 100 * outer.self_seconds / in_operators, 5.1e-3);
  CHECK(words.at(4) + words.at(5) == "128B");

  words = line_of(table, "k");
  const Profiler::Row k = find(kernels, "k");
  CHECK(words.at(0) == "made/loops");
  CHECK(words.at(1) == "5");
  near(words.at(2), 1e3 * k.self_seconds, 5.1e-4);
  near(words.at(3), 100 * k.self_seconds / in_kernels, 5.1e-3);
  near(words.at(4), 320 / k.self_seconds / 1e9, 5.1e-3);
  near(words.at(5), 500 / k.self_seconds / 1e9, 5.1e-3);

  words = line_of(table, "net.1");
  const Profiler::ModuleRow net = profiler.modules().at(3);
  near(words.at(0), 0, 0);
  near(words.at(1), 1e3 * net.backward_seconds, 5.1e-4);
  near(words.at(2), 100 * net.backward_seconds / in_operators, 5.1e-3);
  CHECK(words.at(3) + words.at(4) == "64B");

  for (const std::vector<Profiler::Row>& rows : {operators, kernels})
    for (const Profiler::Row& row : rows) CHECK_THAT(table, contains("\n" + row.name + " "));
  const auto heading = [&](const std::string& name) { return line_of(table, name); };
  CHECK(heading("operator") ==
        std::vector<std::string>{"calls", "total", "ms", "self", "ms", "self", "%", "bytes", "GFLOP"});
  CHECK(heading("kernel") ==
        std::vector<std::string>{"implementation", "calls", "self", "ms", "self", "%", "GB/s", "GFLOP/s"});
  CHECK(heading("module") == std::vector<std::string>{"forward", "ms", "backward", "ms", "%", "bytes", "GFLOP"});
  CHECK_THAT(table, contains("in k of layer net.0\n") && contains("(outside of layers)"));
  CHECK_THAT(profiler.table(3), contains("and 1 more\n"));
  CHECK(profiler.table(3).find("and 0 more") == std::string::npos);
  CHECK_THAT(profiler.table(1), contains("and 3 more\n") && contains("and 2 more\n"));
  CHECK(profiler.table(4).find(" more\n") == std::string::npos);
  const double seconds = profiler.seconds();
  std::istringstream first(table);
  std::string word;
  first >> word;
  near(word, seconds, 5.1e-4);
}

TEST_CASE("events that take no time have no rates and no shares", "[profiler]") {
  const test::SteppedClock clock;
  Profiler profiler;
  const Tensor x = ones({4});
  {
    const View read = x.array();
    const EventScope outer("outer"), kernel("k", "made", "loops", {&read}, 100);
  }
  profiler.stop();
  CHECK(profiler.kernels().at(0).bytes == 16);
  const std::string table = profiler.table();
  CHECK(table.find("inf") == std::string::npos);
  CHECK(table.find("nan") == std::string::npos);
}

TEST_CASE("a trace has the figures of events, and as many as fit", "[profiler]") {
  const test::TemporaryDirectory directory;
  const auto traced = [&](const Profiler& profiler) {
    profiler.save_trace(directory.file("trace.json"));
    nlohmann::json trace;
    std::ifstream(directory.file("trace.json")) >> trace;
    return trace;
  };
  Events events;
  add_observer(&events);
  const double begin = observer_time();
  Profiler profiler;
  training::ProfilerOptions options;
  options.max_trace_events = 2;
  Profiler short_of_space(options);
  run_made_program();
  const double so_far = profiler.seconds();
  CHECK(so_far <= observer_time() - begin);
  profiler.stop(), short_of_space.stop();
  remove_observer(&events);
  CHECK(profiler.seconds() >= so_far);
  CHECK(profiler.seconds() <= observer_time() - begin);

  const nlohmann::json trace = traced(profiler);
  std::vector<nlohmann::json> spans, points;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") spans.push_back(event);
    if (event["ph"] == "C") points.push_back(event);
  }
  REQUIRE(spans.size() == 11);
  const double offset = spans[0]["ts"].get<double>() - 1e6 * events.list[0].start, end = 1e6 * profiler.seconds();
  const std::vector<std::string> modules = {"net.0", "net.0", "net.0", "net.0", "net.0", "net.0",
                                            "net.0", "net.1", "net.1", "",      ""};
  for (size_t i = 0; i < spans.size(); ++i) {
    INFO(i);
    const ObservedEvent& event = events.list[i];
    const bool is_kernel = event.kind == ObservedEvent::Kind::kernel;
    CHECK(spans[i]["name"] == event.name);
    CHECK(spans[i]["cat"] == (is_kernel ? "kernel" : "operator"));
    CHECK(spans[i]["tid"] == 1);
    CHECK((spans[i]["ts"] >= 0 && spans[i]["ts"].get<double>() + spans[i]["dur"].get<double>() <= end + 0.002));
    CHECK(std::abs(spans[i]["ts"].get<double>() - offset - 1e6 * event.start) < 0.002);
    CHECK(std::abs(spans[i]["dur"].get<double>() - 1e6 * event.seconds) < 0.001);
    CHECK(spans[i]["args"]["module"] == modules[i]);
    CHECK(spans[i]["args"]["pass"] == (i >= 7 && i <= 9 ? "backward" : "forward"));
    if (!is_kernel) continue;
    CHECK(spans[i]["args"]["implementation"] == "made/" + std::string(event.implementation));
    CHECK(spans[i]["args"]["bytes"] == (event.leaf ? event.bytes : 0));
    CHECK(spans[i]["args"]["flops"] == (event.leaf ? event.flops : 0));
  }
  const auto timeline = profiler.memory_timeline();
  REQUIRE(points.size() == timeline.size());
  for (size_t i = 0; i < points.size(); ++i) {
    CHECK(points[i]["args"]["allocated"] == timeline[i].bytes);
    CHECK(std::abs(points[i]["ts"].get<double>() - 1e6 * timeline[i].seconds) < 0.001);
    CHECK(std::ranges::any_of(events.list, [&](const ObservedEvent& event) {  // an event begins or ends there
      const double begin = offset + 1e6 * event.start, at = 1e6 * timeline[i].seconds;
      return std::abs(at - begin) < 0.003 || std::abs(at - begin - 1e6 * event.seconds) < 0.003;
    }));
  }
  CHECK(trace["otherData"]["events_left_out"] == 0);
  CHECK(short_of_space.memory_timeline().size() == 2);
  CHECK(traced(short_of_space)["otherData"]["events_left_out"] == 9);
}

TEST_CASE("a trace is ASCII, whatever the names of modules are", "[profiler]") {
  const test::TemporaryDirectory directory;
  Profiler profiler;
  for (const auto path : {+[](const void*) { return std::string("netz.\u00fcber"); },
                          +[](const void*) { return std::string("bytes.\xff"); }}) {
    const ModuleFrame frame(nullptr, path);
    ones({2}).exp();
  }
  profiler.stop();
  profiler.save_trace(directory.file("trace.json"));
  std::ifstream file(directory.file("trace.json"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  CHECK(std::ranges::all_of(text, [](char c) { return c > 0; }));
  std::set<std::string> modules;
  const nlohmann::json trace = nlohmann::json::parse(text);
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X") modules.insert(event["args"]["module"]);
  CHECK(modules == std::set<std::string>{"netz.\u00fcber", "bytes.\ufffd"});
}
