// Runs of graphs: which calls the backend gets, and where results are.
#include <gradus/core/backend_interceptor.h>
#include <gradus/tests/graph/support.h>

using namespace gradus;
using test::contains;

namespace {

/// The backend "naive" that counts its calls.
class CountsCalls final : public BackendInterceptor<CountsCalls> {
 public:
  std::string_view name() const override { return "counts_calls"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  template <class... Params>
  void call(const char*, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    ++count;
    (backend("naive").*method)(arguments...);
  }
  int count = 0;
};

}  // namespace

TEST_CASE("a run consists of the recorded calls, and one more if they draw random numbers", "[executor]") {
  CountsCalls counting;
  const BackendGuard guard(counting);
  const Tensor x = randn({4}), y = empty({4});
  for (const bool draws : {false, true}) {
    graph::Graph graph = test::graph_of([&] { y.copy_(draws ? rand({4}) : x * 2); });
    const auto calls = static_cast<int>(graph.calls().size());
    graph::Executor executor(std::move(graph));
    counting.count = 0;
    executor.run();
    CHECK(counting.count == calls + draws);
    executor.for_each_call([](const graph::Call&) {});
    CHECK(counting.count == calls + 2 * draws);
  }
}

TEST_CASE("random numbers of runs continue the generator's sequence", "[executor]") {
  const Tensor y = empty({4});
  const auto draw = [&] { y.copy_(rand({4}) + randn({4})); };
  manual_seed(3);
  TensorList expected;
  for (int i = 0; i < 2; ++i) draw(), expected.push_back(y.clone());
  manual_seed(3);
  graph::Executor executor(test::graph_of(draw));
  for (int i = 0; i < 2; ++i) {
    executor.run();
    CHECK(y.equal(expected[static_cast<size_t>(i)]));
  }
}

TEST_CASE("results are in the arena at the places of the recorded arrays, also after the executor", "[executor]") {
  const Tensor x = randn({6}), later = empty({6});
  Tensor part, whole, untouched;
  Array result, of_input, of_untouched;
  {
    graph::Graph graph = test::graph_of([&] {
      whole = x * 2;
      part = whole.slice(0, 1, 6, 2);
      part.add_(1);
      untouched = empty({3});
      later.copy_((x + 3) * 4);  // uses other memory
    });
    for (const Tensor& tensor : {part, x, untouched}) graph.set_result(tensor.array());
    CHECK(graph.buffer_of(whole.data_ptr())->result);
    CHECK_FALSE(graph.buffer_of(x.data_ptr())->result);  // is kept in any case
    graph::Executor executor(std::move(graph));
    executor.run();
    result = executor.result(part.array()), of_input = executor.result(x.array());
    of_untouched = executor.result(untouched.array());
  }
  CHECK(Tensor(result).equal((x * 2 + 1).slice(0, 1, 6, 2)));
  CHECK(result.strides() == Strides{2});
  CHECK(of_input.data() == x.data_ptr());
  CHECK(of_untouched.data() == untouched.data_ptr());  // no call uses it

  Tensor constant;
  graph::Executor executor(test::graph_of([&] {
    constant = tensor({1.0f, 2.0f, 3.0f});
    constant.slice(0, 1) * 2;
  }));
  executor.run();
  CHECK(Tensor(executor.result(constant.slice(0, 1).array())).equal(tensor({2.0f, 3.0f})));
}
