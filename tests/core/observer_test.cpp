#include <string>
#include <vector>

#include <gradus/core/registry.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

struct Recorder : Observer {
  std::vector<std::string> begun;
  std::vector<ObservedEvent> ended;
  void on_begin(const ObservedEvent& event) override { begun.push_back(event.name); }
  void on_end(const ObservedEvent& event) override { ended.push_back(event); }
};

// An observer that is attached during its lifetime.
struct Observing : Recorder {
  Observing() { add_observer(this); }
  ~Observing() override { remove_observer(this); }
};

}  // namespace

TEST_CASE("events do nothing without an observer") {
  CHECK_FALSE(observing());
  EventScope op("add");
  Observing late;  // does not see events that are already open
  CHECK(observing());
}

TEST_CASE("events nest, and totals over leaves count each kernel once") {
  const Array x = Array::empty({4, 8}), y = Array::empty({4, 8}, DType::i64);
  const View in = x;
  const MutableView out = y;
  Recorder recorder;
  const double begin = observer_time();
  add_observer(&recorder);
  CHECK_FALSE(innermost_event());
  {
    EventScope op("softmax");
    {
      EventScope composite("softmax", "openmp", "primitives", {&in, &out}, 100);
      EventScope kernel("exp", "openmp", "avx2", {&in, &in}, 32);
    }
    EventScope kernel("div", "openmp", "loops", {&in}, 32);
  }
  CHECK_FALSE(innermost_event());
  remove_observer(&recorder);
  CHECK_FALSE(observing());
  const double end = observer_time();
  CHECK(recorder.begun == std::vector<std::string>{"softmax", "softmax", "exp", "div"});
  REQUIRE(recorder.ended.size() == 4);
  const ObservedEvent &exp = recorder.ended[0], &composite = recorder.ended[1], &op = recorder.ended[3];
  CHECK(exp.leaf);
  CHECK(exp.depth == 2);
  CHECK(std::string(exp.implementation) == "avx2");
  CHECK_FALSE(composite.leaf);
  CHECK(composite.depth == 1);
  CHECK(composite.bytes == 32 * 4 + 32 * 8);
  CHECK(composite.shape_count == 2);
  CHECK(composite.shapes[0] == Shape{4, 8});
  CHECK(op.kind == ObservedEvent::Kind::op);
  CHECK(op.depth == 0);
  CHECK(op.seconds >= composite.seconds);
  CHECK(recorder.ended[2].depth == 1);
  CHECK((begin <= op.start && op.start <= exp.start));
  CHECK((exp.start + exp.seconds <= op.start + op.seconds && op.start + op.seconds <= end));
  int64_t flops = 0;
  for (const ObservedEvent& event : recorder.ended) flops += event.leaf ? event.flops : 0;
  CHECK(flops == 64);
}

TEST_CASE("operands that are absent, such as a bias, are skipped, and four shapes are listed", "[observer]") {
  const View absent, x = Array::empty({4, 8}), scalar = Array::empty({});
  Observing recorder;
  { EventScope kernel("linear", "openmp", "loops", {&absent, &x, &absent, &scalar}); }
  { EventScope kernel("sum", "openmp", "loops", {&scalar, &scalar, &scalar, &scalar, &x}); }
  const ObservedEvent &linear = recorder.ended.at(0), &sum = recorder.ended.at(1);
  CHECK(linear.shape_count == 2);
  CHECK(linear.shapes[0] == Shape{4, 8});
  CHECK(linear.bytes == 32 * 4 + 4);
  CHECK(sum.shape_count == 4);
  CHECK(sum.bytes == 4 * 4 + 32 * 4);
}

TEST_CASE("several observers see the same events; a failing one does not harm the operator") {
  struct Failing : Observer {
    void on_end(const ObservedEvent&) override { throw 1; }
  } failing;
  Observing first, second;
  add_observer(&failing);
  { EventScope op("add"); }
  remove_observer(&failing);
  CHECK(first.ended.size() == 1);
  CHECK(second.ended.size() == 1);
}

TEST_CASE("observers see the primitives that a composite's default body calls") {
  const Array x = Array::empty({2, 3}), y = Array::empty({2, 3});
  Backend& naive = backend("naive");
  naive.fill(x, 1);
  Observing recorder;
  naive.Backend::softmax(x, 1, SoftmaxKind::softmax, y);
  std::vector<std::string> names;
  for (const ObservedEvent& event : recorder.ended) names.emplace_back(event.name);
  CHECK(names == std::vector<std::string>{"copy", "max", "sub", "exp", "sum", "div", "copy"});
}
