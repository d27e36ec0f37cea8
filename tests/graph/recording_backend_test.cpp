// A backend that records every call and forwards it to another backend, on top of core/backend_interceptor.h. Also
// tests that the interceptor forwards every operation and that the fields of the argument structs are complete.
#include <algorithm>
#include <fstream>
#include <regex>

#include <gradus/benchmarks/nets.h>
#include <gradus/core/backend_interceptor.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

class RecordingBackend final : public BackendInterceptor<RecordingBackend> {
 public:
  explicit RecordingBackend(Backend& runs) : runs_(runs) {}
  std::string_view name() const override { return "recording"; }
  DeviceType device_type() const override { return runs_.device_type(); }

  /// Records the call's name and shapes, first of the operands that it reads: "matmul (2, 3) (3, 4) -> (2, 4)".
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    std::string reads, writes;
    const auto write_down = [&](const auto& view) {
      const bool read = std::is_same_v<decltype(view), const View&>;
      (read ? reads : writes) += ' ' + to_string(view.shape);
    };
    (for_each_operand(arguments, write_down), ...);
    calls.push_back(name + reads + " ->" + writes);
    (runs_.*method)(arguments...);
  }

  std::vector<std::string> calls;

 private:
  Backend& runs_;
};

/// Runs two steps of LeNet on `backend_name` and calls `on_step` before each. Returns the loss of the second step and
/// the parameters after it.
template <class F>
std::vector<Tensor> train(const char* backend_name, const F& on_step) {
  const BackendGuard guard(backend_name);
  manual_seed(3);
  nn::Sequential net = benchmarks::lenet();
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  const Tensor images = randn({2, 1, 28, 28}), target = tensor({3, 8}, kLong);
  std::vector<Tensor> results;
  for (int step = 0; step < 2; ++step) {
    on_step();
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(net->forward(images), target);
    loss.backward();
    optimizer.step();
    results = {loss.detach()};
  }
  for (const Tensor& parameter : net->parameters()) results.push_back(parameter.detach());
  return results;
}

}  // namespace

TEST_CASE("a recorded training step equals naive's exactly, and its calls are recorded") {
  const std::string default_name(current_backend(DeviceType::cpu).name());
  register_backend(std::make_unique<RecordingBackend>(backend("naive")));
  set_backend(default_name);  // otherwise the backend that was registered last would be the default
  auto& recording = static_cast<RecordingBackend&>(backend("recording"));
  const std::vector<Tensor> expected = train("naive", [] {});
  const std::vector<Tensor> results = train("recording", [&] { recording.calls.clear(); });
  REQUIRE(results.size() == expected.size());
  for (size_t i = 0; i < results.size(); ++i) CHECK(results[i].equal(expected[i]));
  const std::vector<std::string> calls = {
      // Forward.
      "conv2d_bias_relu (2, 1, 28, 28) (6, 1, 5, 5) (6,) -> (2, 6, 28, 28)",
      "max_pool2d (2, 6, 28, 28) -> (2, 6, 14, 14) (2, 6, 14, 14)",
      "conv2d_bias_relu (2, 6, 14, 14) (16, 6, 5, 5) (16,) -> (2, 16, 10, 10)",
      "max_pool2d (2, 16, 10, 10) -> (2, 16, 5, 5) (2, 16, 5, 5)", "linear (2, 400) (120, 400) (120,) -> (2, 120)",
      "unary (2, 120) -> (2, 120)", "linear (2, 120) (84, 120) (84,) -> (2, 84)", "unary (2, 84) -> (2, 84)",
      "linear (2, 84) (10, 84) (10,) -> (2, 10)", "cross_entropy (2, 10) (2,) -> (2, 10) () ()",
      // Backward, starting from a gradient of 1. A convolution's last operand is memory for the masked dy.
      "fill -> ()", "cross_entropy_backward () (2, 10) (2,) () -> (2, 10)", "matmul (2, 10) (10, 84) -> (2, 84)",
      "matmul (10, 2) (2, 84) -> (10, 84)", "reduce (2, 10) -> (1, 10)", "unary_backward (2, 84) (2, 84) -> (2, 84)",
      "matmul (2, 84) (84, 120) -> (2, 120)", "matmul (84, 2) (2, 120) -> (84, 120)", "reduce (2, 84) -> (1, 84)",
      "unary_backward (2, 120) (2, 120) -> (2, 120)", "matmul (2, 120) (120, 400) -> (2, 400)",
      "matmul (120, 2) (2, 400) -> (120, 400)", "reduce (2, 120) -> (1, 120)",
      "max_pool2d_backward (2, 16, 5, 5) (2, 16, 5, 5) -> (2, 16, 10, 10)",
      "conv2d_bias_relu_backward (2, 16, 10, 10) (2, 6, 14, 14) (16, 6, 5, 5) (2, 16, 10, 10) ->"
      " (2, 6, 14, 14) (16, 6, 5, 5) (16,) (2, 16, 10, 10)",
      "max_pool2d_backward (2, 6, 14, 14) (2, 6, 14, 14) -> (2, 6, 28, 28)",
      "conv2d_bias_relu_backward (2, 6, 28, 28) (2, 1, 28, 28) (6, 1, 5, 5) (2, 6, 28, 28) ->"
      " (6, 1, 5, 5) (6,) (2, 6, 28, 28)",
      // The optimizer reads gradients and the step block, and writes parameters and momenta.
      "advance_step -> (5,)",
      "optimizer_step (6, 1, 5, 5) (6,) (16, 6, 5, 5) (16,) (120, 400) (120,) (84, 120) (84,) (10, 84) (10,) (5,) ->"
      " (6, 1, 5, 5) (6, 1, 5, 5) (6,) (6,) (16, 6, 5, 5) (16, 6, 5, 5) (16,) (16,)"
      " (120, 400) (120, 400) (120,) (120,) (84, 120) (84, 120) (84,) (84,) (10, 84) (10, 84) (10,) (10,)"};
  CHECK(recording.calls == calls);
}

namespace {

/// Converts to any type; used to count the fields of an aggregate.
struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
template <class Aggregate, class... Fields>
constexpr size_t count_fields() {
  if constexpr (requires { Aggregate{Fields()..., Anything()}; }) return count_fields<Aggregate, Fields..., Anything>();
  else return sizeof...(Fields);
}
struct CountListed {
  template <class... Fields>
  std::integral_constant<size_t, sizeof...(Fields)> operator()(Fields&...) const {
    return {};
  }
};
template <class... Structs>
constexpr bool fields_are_complete() {
  return ((count_fields<Structs>() == decltype(std::declval<Structs>().with_fields(CountListed()))::value) && ...);
}
static_assert(
    fields_are_complete<Conv2dArgs, Conv2dBackwardArgs, NormalizeArgs, NormalizeBackwardArgs, RunningStatistics,
                        CrossEntropyArgs, CrossEntropyBackwardArgs, RecurrentArgs, RecurrentBackwardArgs, AttentionArgs,
                        AttentionBackwardArgs, AttentionRule, RandomState, ScaleRule>());

}  // namespace

namespace {

std::string source_of(const char* path) {
  std::ifstream file(test::source_path(path));
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The operations that the text of core/backend.h declares, with the names of their parameters: "copy, x, y".
std::vector<std::string> declared_operations(const std::string& text) {
  const std::regex method("virtual void (\\w+)\\(([^)]*)\\)"), last_word("(\\w+)\\s*(,|$)");
  std::vector<std::string> operations;
  for (std::sregex_iterator at(text.begin(), text.end(), method), end; at != end; ++at) {
    const std::string parameters = (*at)[2];
    operations.push_back((*at)[1]);
    for (std::sregex_iterator name(parameters.begin(), parameters.end(), last_word); name != end; ++name)
      operations.back() += ", " + (*name)[1].str();
  }
  return operations;
}

/// The operations that the text of core/backend_interceptor.h forwards from a method of the same name, in the same
/// form.
std::vector<std::string> forwarded_operations(const std::string& text) {
  const std::regex method("void (\\w+)\\([^)]*\\)\\s+final\\s+\\{\\s+GRADUS_CALL\\((\\1, [^)]*)\\);\\s+\\}");
  std::vector<std::string> operations;
  for (std::sregex_iterator at(text.begin(), text.end(), method), end; at != end; ++at) operations.push_back((*at)[2]);
  return operations;
}

}  // namespace

TEST_CASE("the interceptor forwards all methods of Backend by their declared names, and a missing one is detected") {
  const std::vector<std::string> declared = declared_operations(source_of("core/backend.h"));
  const std::string interceptor = source_of("core/backend_interceptor.h");
  CHECK(declared.size() >= 54);
  CHECK(std::count(declared.begin(), declared.end(), "matmul, a, b, y, accumulate") == 1);
  CHECK(forwarded_operations(interceptor) == declared);
  for (const std::string& operation : declared) {
    std::string without = interceptor;
    without.erase(without.find("  void " + operation.substr(0, operation.find(',')) + "("), 7);
    CHECK(forwarded_operations(without).size() == declared.size() - 1);
  }
}

TEST_CASE("operands are visited in order, also in structs and spans, and absent ones are skipped") {
  const Array x = Array::empty({2, 3}), y = Array::empty({4});
  Conv2dArgs args{.x = x, .w = y, .y = x};
  std::vector<Shape> shapes;
  const auto visit = [&](const auto& view) { shapes.push_back(view.shape); };
  for_each_operand(args, visit);
  CHECK(shapes == std::vector<Shape>{{2, 3}, {4}, {2, 3}});
  // A visitor can replace addresses, as a memory plan does.
  for_each_operand(args, [&](auto& view) { view.data = y.data(); });
  CHECK(args.x.data == y.data());
  const ParameterViews parameters[] = {{x, y, {y}}, {x, y, {}}};
  shapes.clear();
  for_each_operand(std::span<const ParameterViews>(parameters), visit);
  CHECK(shapes == std::vector<Shape>{{2, 3}, {4}, {4}, {2, 3}, {4}});
  for_each_operand(3.5, visit);
  CHECK(shapes.size() == 5);
}
