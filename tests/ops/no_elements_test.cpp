// Operators without elements to compute call no kernel, which saves its launch on a GPU.
#include <functional>
#include <span>

#include <gradus/core/backend_interceptor.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

namespace no_elements_test {

using namespace gradus;
using namespace gradus::op_testing;

/// Runs the calls on another backend, and lists those that have a result without elements.
class LaunchBackend final : public BackendInterceptor<LaunchBackend> {
 public:
  explicit LaunchBackend(Backend& kernels) : kernels_(kernels) {}
  std::string_view name() const override { return "launches"; }
  DeviceType device_type() const override { return kernels_.device_type(); }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    (look_at(name, arguments), ...);
    (kernels_.*method)(arguments...);
  }
  std::string useless;

 private:
  // Unlike for_each_operand, also looks at views without data, as those without elements are.
  template <class Argument>
  void look_at(const char* name, const Argument& argument) {
    if constexpr (std::is_same_v<Argument, MutableView>) {
      if (argument.numel() == 0) useless += std::string(name) + " has a result without elements; ";
    } else if constexpr (std::is_same_v<Argument, View>) {
      const bool adds = std::string_view(name) == "scatter";  // to a result that has elements already
      if (adds && argument.numel() == 0) useless += "scatter adds nothing; ";
    } else if constexpr (requires { Argument::field_names(); }) {
      argument.with_fields([&](const auto&... fields) { (look_at(name, fields), ...); });
    } else if constexpr (requires { std::span(argument); }) {
      for (const auto& element : argument) look_at(name, element);
    }
  }

  Backend& kernels_;
};

TEST_CASE("no op case calls a kernel without elements to compute") {
  const OneThread one_thread;
  LaunchBackend launches(backend("naive"));
  const BackendGuard guard(launches);
  for (const OpCase& op_case : op_cases::all_cases()) {
    const DType dtype = op_case.runs_in(kDouble) ? kDouble : op_case.runs_in(kLong) ? kLong : kBool;
    const TensorList inputs = op_cases::make_inputs(op_case, dtype);
    const std::string thrown = guarded([&] {
      compute(op_case, inputs, dtype == kDouble ? op_case.order : 0);
      return "";
    });
    CHECK(op_case.name + ": " + thrown + launches.useless == op_case.name + ": ");
    launches.useless.clear();
  }
}

TEST_CASE("no operator on tensors without elements calls a kernel") {
  struct Call {
    const char* name;
    std::function<Tensor()> run;
  };
  const Tensor none = zeros({0, 3}, dtype(kDouble).requires_grad(true)), numbers = none.detach();
  const Tensor image = zeros({0, 3, 4, 4}, dtype(kDouble).requires_grad(true)), places = zeros({0, 3}, kLong);
  const Tensor weight = ones({2, 3, 2, 2}, dtype(kDouble).requires_grad(true)), square = ones({3, 3}, kDouble);
  const Tensor pixels = ones({2, 3, 4, 4}, dtype(kDouble).requires_grad(true)),
               bias = ones({2}, dtype(kDouble).requires_grad(true));
  const Tensor at = zeros({0}, kLong), two = ones({2, 3}, dtype(kDouble).requires_grad(true));
  const std::vector<Call> calls = {
      {"zeros",
       [] {
         return zeros({0, 3});
       }},
      {"full", [] { return full({0}, 2); }},
      {"arange", [] { return arange(0); }},
      {"linspace", [] { return linspace(0, 1, 0); }},
      {"eye", [] { return eye(0, 3); }},
      {"eye of many columns", [] { return eye(0, INT64_MAX); }},
      {"rand",
       [] {
         return rand({0, 3});
       }},
      {"randn",
       [] {
         return randn({0, 3});
       }},
      {"randint",
       [] {
         return randint(5, {0, 3});
       }},
      {"randperm", [] { return randperm(0); }},
      {"bernoulli", [&] { return numbers.clone().bernoulli_(0.5); }},
      {"fill_", [&] { return numbers.clone().fill_(3); }},
      {"copy_", [&] { return numbers.clone().copy_(numbers); }},
      {"add_", [&] { return numbers.clone().add_(numbers); }},
      {"relu_", [&] { return numbers.clone().relu_(); }},
      {"exp", [&] { return none.exp(); }},
      {"relu", [&] { return relu(none); }},
      {"add", [&] { return none + none; }},
      {"add a number", [&] { return 2 + none; }},
      {"a broadcast operand", [&] { return none * ones({3}, kDouble); }},
      {"where", [&] { return where(none > 0, none, 1.0); }},
      {"to", [&] { return none.to(kFloat); }},
      {"clone", [&] { return none.clone(); }},
      {"contiguous", [&] { return image.contiguous(MemoryFormat::channels_last); }},
      {"cat",
       [&] {
         return cat({none, none});
       }},
      {"cumsum", [&] { return none.cumsum(1); }},
      {"sum of rows", [&] { return none.sum({1}); }},
      {"max of rows", [&] { return std::get<0>(none.max(1)); }},
      {"index_select", [&] { return two.index_select(0, at); }},
      {"gather", [&] { return two.gather(0, places); }},
      {"scatter into many", [&] { return two.detach().scatter(0, places, numbers); }},
      {"scatter_", [&] { return numbers.clone().scatter_(0, places, numbers); }},
      {"index_add", [&] { return numbers.clone().index_add_(0, at, numbers); }},
      {"an index tensor", [&] { return two.index({at}); }},
      {"sort", [&] { return std::get<0>(none.sort(1)); }},
      {"argsort", [&] { return numbers.argsort(1); }},
      {"topk", [&] { return std::get<0>(two.topk(0, 1)); }},
      {"matmul", [&] { return matmul(none, square); }},
      {"addmm", [&] { return addmm(ones({3}, kDouble), none, square); }},
      {"linear", [&] { return linear(none, two); }},
      {"conv2d", [&] { return conv2d(image, weight); }},
      {"conv2d_relu", [&] { return conv2d_relu(image, weight); }},
      {"conv2d without filters", [&] { return conv2d(pixels, weight.slice(0, 0, 0), bias.slice(0, 0, 0)); }},
      {"conv2d without channels", [&] { return conv2d(pixels.slice(1, 0, 0), weight.slice(1, 0, 0), bias); }},
      {"max_pool2d", [&] { return max_pool2d(image, 2); }},
      {"avg_pool2d", [&] { return avg_pool2d(image, 2); }},
      {"interpolate",
       [&] {
         return interpolate(image, IntArrayRef{2, 3});
       }},
      {"rgb_to_grayscale", [&] { return rgb_to_grayscale(image); }},
      {"softmax", [&] { return softmax(none, 1); }},
      {"log_softmax", [&] { return log_softmax(none, 1); }},
      {"dropout", [&] { return dropout(none, 0.5, true); }},
      {"layer_norm", [&] { return layer_norm(none, {3}); }},
      {"nll_loss", [&] { return nll_loss(none, at, {}, Reduction::none); }},
      {"cross_entropy", [&] { return cross_entropy(none, at, {}, Reduction::none); }},
      {"tril", [&] { return none.tril(); }},
  };
  for (const std::string name : {"naive", "openmp"}) {
    if (!has_backend(name)) continue;
    LaunchBackend launches(backend(name));
    const BackendGuard guard(launches);
    for (const Call& call : calls) {
      CAPTURE(name, call.name);
      const Tensor y = call.run();
      if (y.requires_grad()) y.backward(ones_like(y));
      CHECK(launches.useless.empty());
      launches.useless.clear();
    }
  }
}

}  // namespace no_elements_test
