// What a recording knows of a step's memory, and what it leaves alone.
#include <fstream>

#include <gradus/core/backend_interceptor.h>
#include <gradus/tests/changed_results.h>
#include <gradus/tests/graph/support.h>

using namespace gradus;
using test::contains;

namespace {

/// The backend "naive", except that each call needs workspace: 1000 bytes and meanwhile, one after the other, 200 bytes
/// and 300 bytes.
class NeedsWorkspace final : public BackendInterceptor<NeedsWorkspace> {
 public:
  std::string_view name() const override { return "needs_workspace"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  template <class... Params>
  void call(const char*, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    const Storage whole = Storage::allocate(1000, kCPU);
    Storage::allocate(200, kCPU);
    Storage::allocate(300, kCPU);
    (backend("naive").*method)(arguments...);
  }
};

/// The backend "naive", except that each call needs workspace for every operand that it writes: as many bytes as the
/// operand's address is above a multiple of 512.
class ShowsAlignment final : public BackendInterceptor<ShowsAlignment> {
 public:
  std::string_view name() const override { return "shows_alignment"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  template <class... Params>
  void call(const char*, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    const auto allocate = [](const auto& view) {
      if constexpr (std::is_same_v<decltype(view), const MutableView&>)
        Storage::allocate(reinterpret_cast<uintptr_t>(view.data) % 512, kCPU);
    };
    (for_each_operand(arguments, allocate), ...);
    (backend("naive").*method)(arguments...);
  }
};

/// The size of this process's address space in bytes.
int64_t address_space() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

}  // namespace

TEST_CASE("a recording knows when its arrays and the workspace of its calls are allocated and freed", "[recorder]") {
  NeedsWorkspace needs_workspace;
  const BackendGuard guard(needs_workspace);
  const Tensor x = randn({100});
  graph::Recorder recorder;
  CHECK(recorder.time() == 0);
  Tensor a = x + 1;  // 400 bytes
  CHECK(recorder.size() == 1);
  Tensor b = a * 2;
  a = Tensor();
  CHECK(recorder.time() == 2 * 7 + 1);
  const graph::Graph graph = recorder.finish();
  CHECK(graph.eager_peak() == 800 + 1300);
  CHECK(graph.peak_time() == 11);
  for (const auto& call : graph.calls()) {
    CHECK(call->workspace_bytes == 1300);
    CHECK(call->scratch.empty());  // only on a GPU
    CHECK(call->scratch_bytes == 0);
  }
  CHECK(graph.calls()[1]->number == 1);

  struct Expected {
    int64_t bytes, begin, end;
    int call;
    bool is_workspace;
  };
  constexpr int64_t kNever = graph::Allocation::kNever;
  const std::vector<Expected> expected = {{400, 0, 14, 0, false}, {1000, 1, 6, 0, true},      {200, 2, 3, 0, true},
                                          {300, 4, 5, 0, true},   {400, 7, kNever, 1, false}, {1000, 8, 13, 1, true},
                                          {200, 9, 10, 1, true},  {300, 11, 12, 1, true}};
  REQUIRE(graph.allocations().size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(i);
    const graph::Allocation& got = graph.allocations()[i];
    CHECK(got.bytes == expected[i].bytes);
    CHECK(got.begin == expected[i].begin);
    CHECK(got.end == expected[i].end);
    CHECK(got.call == expected[i].call);
    CHECK(got.is_workspace == expected[i].is_workspace);
  }
}

TEST_CASE("the time of the peak is the first time at which it is reached", "[recorder]") {
  const Tensor x = randn({100});
  const graph::Graph graph = test::graph_of([&] {
    for (int i = 0; i < 2; ++i) x + 1;
  });
  CHECK(graph.eager_peak() == 400);
  CHECK(graph.peak_time() == 0);
}

TEST_CASE("a recording writes nothing into arrays from before", "[recorder]") {
  for (const char* backend : {"openmp", "naive"}) {
    INFO(backend);
    const BackendGuard guard(backend);
    const Tensor x = randn({300, 300}), sums = zeros({}), rows = zeros({1, 300}), copies = zeros({300, 300});
    const Tensor numbers = zeros({300, 300}), last = zeros({300});
    const auto step = [&] {
      sums.copy_(x.sum()), rows.copy_(x.sum(0)), copies.copy_(x), numbers.fill_(3);
      numbers.add_(x).mul_(2), last.copy_(x.cumsum(0)[299]);
      Backend& kernels = current_backend(DeviceType::cpu);
      kernels.reduce(ReduceOp::sum, x.array(), 1, rows.array());
    };
    graph::Graph graph = test::graph_of(step);
    for (const Tensor& tensor : {sums, rows, copies, numbers, last}) CHECK(tensor.equal(zeros_like(tensor)));
    graph::Executor(std::move(graph)).run();
    CHECK(numbers.equal((x + 3) * 2));
    CHECK(rows.equal(x.sum(0, true)));
  }
}

TEST_CASE("a recording leaves large arrays from before alone in both directions", "[recorder]") {
  constexpr int64_t kElements = 1 << 20;
  // The backend "naive", except that each call writes the number 5 to both ends of its results, in no loop that a
  // recording skips.
  test::ChangedResults writes_ends(backend("naive"), [](std::string_view, const MutableView& y) {
    const auto [begin, end] = graph::extent_of(y);
    const int64_t size = sizeof(float);
    y.as<float>()[begin / size] = y.as<float>()[end / size - 1] = 5;
  });
  const Tensor small = zeros({8}), x = zeros({kElements});
  const Array backwards(x.array().storage(), kElements - 1, {kElements}, {-1}, DType::f32);
  const auto fill = [&](const Array& array) {
    const BackendGuard guard(writes_ends);
    return test::graph_of([&] {
      const Tensor of_step = ones({4});
      current_backend(DeviceType::cpu).fill(array, 3);
    });
  };
  for (const Array& array : {small.array(), x.array(), backwards}) {
    fill(array);
    CHECK(x.equal(zeros({kElements})));
    CHECK(small.equal(zeros({8})));
  }
  graph::Executor(fill(backwards)).run();
  CHECK(x.slice(0, 1, kElements - 1).equal(ones({kElements - 2}) * 3));
  CHECK(x[0].item<float>() == 5);
  CHECK(x[-1].item<float>() == 5);
}

TEST_CASE("while a recording looks for a call's workspace, the call's results keep their alignment", "[recorder]") {
  ShowsAlignment shows_alignment;
  const BackendGuard guard(shows_alignment);
  const Tensor large = zeros({1003}), small = zeros({70}, kByte);  // no multiples of 512 bytes
  for (const Tensor& results : {small, large}) {
    graph::Recorder recorder;
    for (const int64_t at : {0, 1, 16, 65}) current_backend(DeviceType::cpu).fill(results.slice(0, at).array(), 1);
    const graph::Graph graph = recorder.finish();
    for (size_t i = 0; i < 4; ++i) {
      const int64_t at = std::vector<int64_t>{0, 1, 16, 65}[i];
      CHECK(graph.calls()[i]->workspace_bytes ==
            static_cast<int64_t>(reinterpret_cast<uintptr_t>(results.slice(0, at).data_ptr()) % 512));
    }
  }
}

TEST_CASE("a recording gives its addresses back", "[recorder]") {
  constexpr int64_t kGiB = int64_t{1} << 30;
  const int64_t before = address_space();
  for (int i = 0; i < 4; ++i) {
    graph::Recorder recorder;
    const Tensor x = empty({kGiB}, kByte);
    if (i % 2 == 0) recorder.finish();
  }
  CHECK(address_space() - before < kGiB);
  graph::Recorder recorder;
  CHECK_THROWS_WITH(empty({int64_t{1} << 60}, kByte),
                    contains("no addresses left for an array of 1152921504606846976"));
}

TEST_CASE("operands from before the step that overlap are one buffer", "[recorder]") {
  const Tensor x = randn({100}), y = empty({60});
  const auto bytes_of = [](const graph::Graph& graph) {
    std::vector<size_t> bytes;
    for (const graph::Buffer& buffer : graph.buffers())
      if (buffer.external) bytes.push_back(buffer.bytes);
    std::ranges::sort(bytes);
    return bytes;
  };
  const auto buffers_of = [&](const std::vector<std::pair<int64_t, int64_t>>& ranges) {
    return bytes_of(test::graph_of([&] {
      for (const auto& [begin, end] : ranges) x.slice(0, begin, end) + 1;
    }));
  };
  CHECK(buffers_of({{0, 50}, {40, 100}}) == std::vector<size_t>{400});
  CHECK(buffers_of({{60, 70}, {40, 100}, {50, 80}}) == std::vector<size_t>{240});
  CHECK(buffers_of({{0, 50}, {50, 100}}) == std::vector<size_t>{200, 200});
  CHECK(buffers_of({{60, 70}, {10, 20}}) == std::vector<size_t>{40, 40});
  CHECK(buffers_of({{10, 10}}).empty());
  const Tensor flag = ones({1}, kBool);
  CHECK(bytes_of(test::graph_of([&] { flag.logical_not(); })) == std::vector<size_t>{1});

  // Negative strides: the first element is the last in memory.
  const Array backwards(x.array().storage(), 59, {60}, {-1}, DType::f32);
  const auto step = [&] {
    Backend& kernels = current_backend(DeviceType::cpu);
    kernels.binary_scalar(BinaryOp::add, backwards, 1, false, y.array());
    kernels.copy(y.array(), backwards);
  };
  graph::Graph graph = test::graph_of(step);
  CHECK(bytes_of(graph) == std::vector<size_t>{240, 240});
  const Tensor start = x.clone();
  graph::Executor(std::move(graph)).run();
  const Tensor got = x.clone();
  CHECK(y.equal(start.slice(0, 0, 60).flip(0) + 1));
  CHECK(x.slice(0, 0, 60).equal(start.slice(0, 0, 60) + 1));
  CHECK(x.slice(0, 60).equal(start.slice(0, 60)));
}

TEST_CASE("only buffers that a call uses are in a graph", "[recorder]") {
  Tensor kept;
  graph::Recorder recorder;
  const Tensor unused = empty({10}), none = empty({0}), one = zeros({1}, kBool);
  (none + 1).mul_(2), unused.slice(0, 3, 3).mul_(2);
  kept = one.logical_not();
  const graph::Graph graph = recorder.finish();
  REQUIRE(graph.buffers().size() == 2);
  CHECK(graph.buffers()[0].bytes == 1);
  CHECK_FALSE(graph.buffer_of(unused.data_ptr()));
  REQUIRE(graph.buffer_of(kept.data_ptr()));
  CHECK(graph.buffer_of(kept.data_ptr())->kept);
  CHECK(graph.buffer_of(kept.data_ptr())->first_use == static_cast<int>(graph.calls().size()) - 1);
}

TEST_CASE("values from the host stay constants of a graph when their arrays are gone", "[recorder]") {
  const Tensor y = empty({3});
  graph::Graph graph = test::graph_of([&] { y.copy_(tensor({1.0f, 2.0f, 3.0f}) * 2); });
  graph::Executor executor(std::move(graph));
  std::vector<Tensor> others;
  for (int i = 0; i < 100; ++i) others.push_back(full({3}, 9));
  executor.run();
  CHECK(y.equal(tensor({2.0f, 4.0f, 6.0f})));
}

TEST_CASE("observers see no kernels of a recording", "[recorder]") {
  struct Kernels final : Observer {
    Kernels() { add_observer(this); }
    ~Kernels() override { remove_observer(this); }
    void on_begin(const ObservedEvent& event) override { count += event.kind == ObservedEvent::Kind::kernel; }
    int count = 0;
  } kernels;
  const Tensor x = randn({100});
  x + 1;
  CHECK(kernels.count > 0);
  kernels.count = 0;
  test::graph_of([&] { x + 1; });
  CHECK(kernels.count == 0);
}

TEST_CASE("memory cannot be copied in a recording", "[recorder]") {
  float numbers[2] = {1, 2};
  DeviceRuntime& cpu = runtime(DeviceType::cpu);
  {
    graph::Recorder recorder;
    CHECK(cpu.capturing());
    CHECK_THROWS_WITH(cpu.copy(numbers, {}, numbers + 1, {}, 4, false), contains("a copy between devices"));
    cpu.copy(numbers, {}, numbers + 1, {}, 0, false);
  }
  CHECK(numbers[0] == 1);
  cpu.copy(numbers, {}, numbers + 1, {}, 4, false);
  CHECK(numbers[0] == 2);
}
