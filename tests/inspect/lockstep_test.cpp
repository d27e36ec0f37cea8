// lockstep(): the operations of nets agree on two backends, and a wrong operation is found.
#include <limits>
#include <numeric>

#include <gradus/benchmarks/nets.h>
#include <gradus/core/backend_interceptor.h>
#include <gradus/core/io/npy.h>
#include <gradus/gradus.h>
#include <gradus/graph/recorder.h>
#include <gradus/inspect/lockstep.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/changed_results.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using test::ChangedResults;
using test::contains;

namespace {

/// The backend "naive", except that all float32 results of one operation are wrong by 0.1.
ChangedResults wrong_call(const std::string& wrong) {
  return {backend("naive"), [wrong](std::string_view operation, const MutableView& y) {
            if (operation == wrong && y.data && y.dtype == DType::f32) y.as<float>()[0] += 0.1f;
          }};
}

/// The backend "naive", except that results of unary operations are larger by a unit in the last place in every second
/// call.
ChangedResults drifting() {
  return {backend("naive"), [calls = 0](std::string_view operation, const MutableView& y) mutable {
            if (operation != "unary" || ++calls % 2 == 1) return;
            ++*static_cast<unsigned char*>(y.data);  // a larger number in these bits is a number of larger magnitude
          }};
}

/// The backend "naive", except that indices of extreme elements are wrong.
ChangedResults wrong_index() {
  return {backend("naive"), [](std::string_view operation, const MutableView& y) {
            if (operation == "arg_reduce" && y.dtype == DType::i64) ++y.as<int64_t>()[0];
          }};
}

/// The backend "openmp", except that the first element of products of half types is wrong.
ChangedResults wrong_half() {
  return {backend("openmp"), [](std::string_view operation, const MutableView& y) {
            if (operation == "linear" && y.dtype == DType::bf16) y.as<BFloat16>()[0] = BFloat16(1e3f);
          }};
}

/// The backend "naive", except that the result of unary operations has the given elements.
ChangedResults gives_elements(const Tensor& elements) {
  return {backend("naive"), [elements](std::string_view operation, const MutableView& y) {
            if (operation == "unary") backend("naive").copy(elements.array(), y);
          }};
}

class Elsewhere final : public BackendInterceptor<Elsewhere> {
 public:
  std::string_view name() const override { return "elsewhere"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  void call(const char*, auto&&...) {}
};

}  // namespace

TEST_CASE("lockstep starts on the device of the recording", "[lockstep]") {
  graph::Recorder recorder;
  ones({2});
  graph::Executor executor(recorder.finish());
  Elsewhere elsewhere;
  CHECK_THROWS_WITH(graph::lockstep(executor, elsewhere, backend("naive")),
                    contains("on cpu") && contains("'elsewhere' is not"));
}

TEST_CASE("lockstep compares a recorded step with the eager one, and finds a wrong order", "[lockstep]") {
  manual_seed(4);
  nn::Sequential net(nn::Linear(8, 16), nn::ReLU(), nn::Dropout(0.5), nn::Linear(16, 10));
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  const Tensor x = randn({4, 8}), target = randint(0, 10, {4}, kLong);
  const auto step = [&] {
    optimizer.zero_grad();
    cross_entropy(net->forward(x), target).backward();
    optimizer.step();
  };
  const auto recorded = [&](bool in_order) {
    graph::Recorder recorder;
    step();
    graph::Graph graph = recorder.finish();
    optimizer.zero_grad();
    if (in_order) return graph;
    std::vector<size_t> order(graph.calls().size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[1], order[2]);  // moves dropout before the ReLU whose result it reads
    graph.reorder(order);
    return graph;
  };
  step();
  graph::Executor right(recorded(true)), wrong(recorded(false));
  for (int i = 0; i < 2; ++i) {
    const auto agreed = graph::lockstep(right, step);
    CHECK((agreed ? agreed->str() : "") == "");
  }
  const auto found = graph::lockstep(wrong, step);
  REQUIRE(found);
  CHECK_THAT(found->str(), contains("call 1, dropout (dropout of 2)") && contains("allowed: 0"));
}

TEST_CASE("the results of a recorded step must have the bits of the eager step, in every type", "[lockstep]") {
  for (const DType dtype : {kDouble, kFloat, kHalf, kBFloat16, kLong}) {
    INFO(name(dtype));
    const Tensor x = full({3}, 1024, dtype);
    graph::Recorder recorder;
    Tensor y = x.neg();
    graph::Executor executor(recorder.finish());
    ChangedResults drifts = drifting();
    const BackendGuard guard(drifts);
    const auto found = graph::lockstep(executor, [&] { y = x.neg(); });
    REQUIRE(found);
    CHECK(found->allowed == 0);
    CHECK_THAT(found->str(), contains("unary (neg, "));
    REQUIRE(found->inputs.size() == 2);
    CHECK(Tensor(found->inputs[0]).equal(full({3}, 1024, kDouble)));
  }
}

TEST_CASE("lockstep compares each result that is read, whether or not those before it are", "[lockstep]") {
  const Tensor x = tensor({3.0F, 1.0F, 2.0F});
  const auto find = [&](const auto& read) {
    graph::Recorder recorder;
    Tensor y;
    {
      const auto [values, indices] = x.max(0);
      y = read(values, indices);
    }
    graph::Executor executor(recorder.finish());
    ChangedResults wrong = wrong_index();
    return graph::lockstep(executor, backend("naive"), wrong).has_value();
  };
  CHECK(find([](const Tensor& values, const Tensor& indices) { return values + indices; }));
  CHECK(find([](const Tensor&, const Tensor& indices) { return indices + 1; }));
}

TEST_CASE("lockstep compares the gradients and the loss after the step", "[lockstep]") {
  manual_seed(4);
  const Tensor x = randn({3, 2, 5, 5}), w = randn({4, 2, 3, 3}).requires_grad_();
  for (const std::string wrong : {"conv2d_bias_relu_backward", "reduce", "fill", "nothing"}) {
    INFO(wrong);
    graph::Recorder recorder;
    Tensor loss = conv2d(x, w).sum();
    loss.backward();
    graph::Executor executor(recorder.finish());
    w.mutable_grad() = Tensor(), loss = Tensor();
    ChangedResults other = wrong_call(wrong);
    const auto found = graph::lockstep(executor, backend("naive"), other);
    CHECK(found.has_value() == (wrong != "nothing"));
    if (found) CHECK_THAT(found->str(), contains(wrong));
  }
}

TEST_CASE("lockstep compares the result that has the first buffer of a step", "[lockstep]") {
  graph::Recorder recorder;
  const Tensor y = full({2}, 3.0);
  graph::Executor executor(recorder.finish());
  ChangedResults wrong = wrong_call("fill");
  const auto found = graph::lockstep(executor, backend("naive"), wrong);
  REQUIRE(found);
  CHECK(found->number == 0);
}

TEST_CASE("lockstep finds the operation that two backends disagree on", "[lockstep]") {
  for (const benchmarks::Workload& workload : benchmarks::workloads()) {
    if (workload.name == "resnet18" || workload.name == "stl10_net" || workload.name == "conv10_c32") continue;  // slow
    INFO(workload.name);
    manual_seed(4);
    const nn::AnyModule net = workload.make();
    const Tensor x = randn(workload.input(2)), target = randint(0, 10, {2}, kLong);
    graph::Recorder recorder;
    cross_entropy(net.forward(x), target).backward();
    graph::Executor executor(recorder.finish());
    net.ptr()->zero_grad();
    const auto agreed = graph::lockstep(executor, backend("openmp"), backend("naive"));
    CHECK((agreed ? agreed->str() : "") == "");
    ChangedResults wrong = wrong_call("unary");
    const auto found = graph::lockstep(executor, backend("naive"), wrong);
    if (workload.name != "lenet" && workload.name != "pure_linear") continue;  // the others call no separate ReLU
    REQUIRE(found);
    CHECK_THAT(found->str(), contains("unary (relu of ") && contains("(2, ") && contains("allowed: 1e-05"));
    CHECK(found->error > 0.001);
    CHECK(found->inputs.size() == 2);
  }
}

TEST_CASE("lockstep compares half types with float32 and finds the operation that is less accurate", "[lockstep]") {
  for (const benchmarks::Workload& workload : benchmarks::workloads()) {
    if (workload.name == "resnet18" || workload.name == "conv10_c32") continue;  // slow
    for (const DType half : {kBFloat16, kHalf}) {
      INFO(workload.name << " " << name(half));
      manual_seed(4);
      const nn::AnyModule net = workload.make();
      const Tensor x = randn(workload.input(2)), target = randint(0, 10, {2}, kLong);
      graph::Recorder recorder;
      {
        const amp::Autocast autocast(DeviceType::cpu, half);
        cross_entropy(net.forward(x), target).backward();
      }
      graph::Executor executor(recorder.finish());
      net.ptr()->zero_grad();
      const auto agreed = graph::lockstep_in_float32(executor, backend("openmp"));
      CHECK((agreed ? agreed->str() : "") == "");
      if (workload.name != "lenet" || half != kBFloat16) continue;
      ChangedResults wrong = wrong_half();
      const auto found = graph::lockstep_in_float32(executor, wrong);
      REQUIRE(found);
      CHECK_THAT(found->str(), contains("linear (linear of ") && contains("allowed: 0.02"));
    }
  }
}

TEST_CASE("lockstep divides differences by the largest finite element, and NaNs and infinities must agree",
          "[lockstep]") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  // What lockstep() finds if one backend computes `a` and the other one `b`; 0 if they agree.
  const auto error = [](const std::vector<double>& a, const std::vector<double>& b, DType dtype = kDouble,
                        const graph::LockstepTolerance& tolerance = {0, 0, 0, 0}) {
    const Tensor x = ones({static_cast<int64_t>(a.size())}, dtype);
    graph::Recorder recorder;
    const Tensor y = x.neg();
    graph::Executor executor(recorder.finish());
    ChangedResults first = gives_elements(tensor(a).to(dtype)), second = gives_elements(tensor(b).to(dtype));
    const auto found = graph::lockstep(executor, first, second, tolerance);
    if (found) CHECK((found->a.data<double>()[0] == a[0] || a[0] != a[0]));
    return found ? found->error : 0;
  };
  CHECK(error({1, 2.5, -3}, {1, 2, -4}) == 0.25);
  CHECK(error({1, 2, -3}, {1, 2, -3}) == 0);
  CHECK(error({0, 0.0005}, {0, 0.0001}) == Approx(0.4));  // of 1/1000
  CHECK(error({nan, inf, -inf, 8}, {nan, inf, -inf, 8}) == 0);
  CHECK(error({inf, 5}, {inf, 4}) == 0.25);
  CHECK(error({nan, 4}, {1, 4}) == inf);
  CHECK(error({1, 4}, {nan, 4}) == inf);
  CHECK(error({inf, 4}, {1, 4}) == inf);
  CHECK(error({inf, 4}, {-inf, 4}) == inf);

  CHECK(error({5}, {4}, kFloat, {0, 0.25, 0, 0}) == 0);
  CHECK(error({5}, {4}, kFloat, {1, 0.2, 1, 1}) == 0.25);
  CHECK(error({5}, {4}, kDouble, {0.2, 1, 1, 1}) == 0.25);
  CHECK(error({5}, {4}, kHalf, {1, 1, 0.2, 1}) == 0.25);
  CHECK(error({5}, {4}, kBFloat16, {1, 1, 1, 0.2}) == 0.25);
  CHECK(error({5}, {4}, kLong, {1, 1, 1, 1}) == 0.25);  // integers must be equal
}

TEST_CASE("a mismatch names its call, and is saved as arrays", "[lockstep]") {
  const Tensor x = tensor({1.0f, 2.0f}), nan = tensor({1.0f, std::numeric_limits<float>::quiet_NaN()});
  for (const Tensor& input : {x, nan}) {
    graph::Recorder recorder;
    const Tensor sum = input + 1, y = x.neg();
    graph::Executor executor(recorder.finish());
    ChangedResults first = gives_elements(tensor({3.0f, 4.0f})), second = gives_elements(tensor({3.0f, 5.0f}));
    const auto found = graph::lockstep(executor, first, second);
    REQUIRE(found);
    CHECK_THAT(found->str(), contains("call 1, unary (neg, lockstep_test.cpp:") &&
                                 contains("): (2,) differs by 0.2, allowed: 1e-05"));
    CHECK(found->number == 1);

    const auto later = [&] {
      graph::Recorder other;
      const Tensor z = input.neg();
      graph::Executor alone(other.finish());
      return graph::lockstep(alone, first, second)->str();
    }();
    CHECK(later.ends_with("differs by 0.2, allowed: 1e-05" +
                          std::string(input.isnan().any().item<bool>() ? "; its inputs hold a NaN or inf" : "")));

    const test::TemporaryDirectory directory;
    found->save(directory.path().string());
    const auto saved = [&](const std::string& name) { return Tensor(io::load_npy(directory.file(name + ".npy"))); };
    CHECK(saved("a").equal(tensor({3.0, 4.0}).to(kDouble)));
    CHECK(saved("b").equal(tensor({3.0, 5.0}).to(kDouble)));
    CHECK(saved("input0").slice(0, 0, 1).equal(ones({1}, kDouble)));
    CHECK(saved("input1").sizes() == Shape{2});  // the memory of the result
  }
}

TEST_CASE("a mismatch says whether any operand that the call reads holds a NaN or inf", "[lockstep]") {
  const Tensor x = ones({2}, kDouble);
  graph::Recorder recorder;
  const Tensor y = x.neg();
  graph::Executor executor(recorder.finish());
  executor.for_each_call([&](graph::Call& call) {
    REQUIRE(call.operands.size() == 2);
    for (const size_t read : {0, 1})
      for (const size_t broken : {0, 1})
        for (const double value : {double{NAN}, -double{INFINITY}}) {
          std::vector<Array> inputs = {x.array(), x.array()};
          inputs[broken] = tensor({1.0, value}, kDouble).array();
          call.operands[read].is_written = false, call.operands[1 - read].is_written = true;
          const graph::Mismatch found{&call, 0, 1, 0, inputs, x.array(), x.array()};
          CHECK(found.str().ends_with("; its inputs hold a NaN or inf") == (read == broken));
        }
  });
}

TEST_CASE("lockstep reads operands with negative strides", "[lockstep]") {
  const Tensor x = tensor({1.0f, 2.0f, 3.0f});
  graph::Recorder recorder;
  const Tensor y = x.flip({0});  // copies x from its end
  graph::Executor executor(recorder.finish());
  ChangedResults wrong = wrong_call("copy");
  const auto found = graph::lockstep(executor, backend("naive"), wrong);
  REQUIRE(found);
  CHECK(Tensor(found->inputs.at(0)).equal(tensor({3.0, 2.0, 1.0}, kDouble)));
  CHECK(Tensor(found->a).equal(tensor({3.0, 2.0, 1.0}, kDouble)));
}

TEST_CASE("lockstep of a step leaves the state after one step", "[lockstep]") {
  manual_seed(4);
  const Tensor w = ones({4}).requires_grad_();
  optim::SGD optimizer({w}, 0.5);
  Tensor noise;
  const auto step = [&] {
    optimizer.zero_grad();
    noise = rand({4});
    (w * noise).sum().backward();
    optimizer.step();
  };
  step();  // creates the optimizer's state
  graph::Recorder recorder;
  step();
  graph::Executor executor(recorder.finish());
  noise = Tensor(), optimizer.zero_grad();
  const Tensor before = w.detach().clone();
  const auto offset = default_generator().offset();
  const auto found = graph::lockstep(executor, step);
  CHECK((found ? found->str() : "") == "");
  CHECK(w.allclose(before - 0.5 * noise));
  CHECK(w.grad().equal(noise));
  CHECK(default_generator().offset() > offset);
}
