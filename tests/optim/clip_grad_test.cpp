// Gradient clipping, compared with its definition and with PyTorch (golden/make_golden.py).
#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/core/registry.h>
#include <gradus/optim/optim.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

#include <cmath>

using namespace gradus;
using nn::utils::clip_grad_norm_;
using nn::utils::clip_grad_norm_on_device_;
using nn::utils::clip_grad_value_;
using nn::utils::get_total_norm;
using test::contains;
using test::error;
using test::tolerance_of;

namespace {

const std::map<std::string, Array>& golden() {
  static const auto tensors = io::load_safetensors(test::source_path("tests/optim/golden/trajectories.safetensors"));
  return tensors;
}

/// The parameters of the golden file with their first gradients, and a parameter without a gradient.
std::vector<Tensor> parameters(DType dtype) {
  std::vector<Tensor> list;
  for (const char* name : {"weight", "bias"}) {
    list.push_back(Tensor(golden().at(name)).to(dtype, false, true).set_requires_grad(true));
    list.back().mutable_grad() = Tensor(golden().at(std::string(name) + "_grad"))[0].to(dtype, false, true).clone();
  }
  list.push_back(zeros({3}, TensorOptions(dtype).requires_grad(true)));
  return list;
}

}  // namespace

TEST_CASE("gradients are clipped by their norm as PyTorch does") {
  for (const std::string backend_name : {"naive", "openmp"}) {
    BackendGuard guard(backend_name);
    for (DType dtype : {kDouble, kFloat, kHalf, kBFloat16})
      for (const auto& [name, p] :
           std::vector<std::pair<const char*, double>>{{"1", 1}, {"2", 2}, {"3", 3}, {"half", 0.5}, {"inf", INFINITY}})
        for (const char* size : {"small", "large"}) {
          INFO(backend_name << " p " << name << " " << size << " type " << static_cast<int>(dtype));
          const std::string prefix = std::string("clip.") + name + "." + size + ".";
          const double max_norm = size == std::string("small") ? 0.5 : 1000;
          const std::vector<Tensor> list = parameters(dtype), same = parameters(dtype);
          const double norm = golden().at(prefix + "norm").data<double>()[0];
          CHECK(clip_grad_norm_(list, max_norm, p) == Approx(norm).epsilon(tolerance_of(dtype)));
          const Tensor on_device = clip_grad_norm_on_device_(same, max_norm, p);
          CHECK(on_device.item<double>() == Approx(norm).epsilon(tolerance_of(dtype)));
          CHECK(on_device.dtype() == (dtype == kDouble ? kDouble : kFloat));
          for (int i = 0; i < 2; ++i) {
            CHECK(error(list[i].grad(), Tensor(golden().at(prefix + (i ? "bias" : "weight")))) <= tolerance_of(dtype));
            CHECK(list[i].grad().dtype() == dtype);
            CHECK(list[i].grad().equal(same[i].grad()));
          }
          CHECK_FALSE(list[2].grad().defined());
          if (max_norm < norm && dtype == kDouble)
            CHECK(get_total_norm({list[0].grad(), list[1].grad()}, p).item<double>() <= max_norm);
        }
  }
}

TEST_CASE("gradients of a half type are multiplied by a factor that is not rounded to that type") {
  for (const DType dtype : {kBFloat16, kHalf}) {
    const Tensor x = zeros({200}, TensorOptions(dtype).requires_grad(true)), y = zeros({3}, requires_grad());
    const Tensor gradient = arange(1, 201, kFloat);
    x.mutable_grad() = gradient.to(dtype), y.mutable_grad() = ones({3});
    const double limit = 541.3, norm = clip_grad_norm_({x, y}, limit);
    CHECK(norm == Approx(std::sqrt(200.0 * 201 * 401 / 6 + 3)));
    const Tensor factor = limit / (full({}, norm, kFloat) + 1e-6);
    CHECK(x.grad().equal((gradient * factor).to(dtype)));
    CHECK(y.grad().equal(ones({3}) * factor));
  }
}

TEST_CASE("gradients are clipped by value") {
  const Tensor x = zeros({5}, TensorOptions(kFloat).requires_grad(true));
  x.mutable_grad() = tensor({-3.0, -0.5, 0.25, NAN, 7.0}).to(kFloat);
  const uint32_t version = x.grad().version();
  clip_grad_value_({x, zeros({2}, requires_grad())}, 0.5);
  CHECK(x.grad().version() > version);
  CHECK(x.grad()[0].item<double>() == -0.5);
  CHECK(x.grad()[1].item<double>() == -0.5);
  CHECK(x.grad()[2].item<double>() == 0.25);
  CHECK(std::isnan(x.grad()[3].item<double>()));
  CHECK(x.grad()[4].item<double>() == 0.5);
  clip_grad_value_(x, 0);
  CHECK(x.grad()[4].item<double>() == 0);
}

TEST_CASE("norms without tensors, of mixed types, and of infinities and NaN") {
  const Tensor x = zeros({2}, TensorOptions(kFloat).requires_grad(true)),
               y = zeros({2}, TensorOptions(kDouble).requires_grad(true));
  CHECK(clip_grad_norm_({x, y}, 1) == 0);
  CHECK(get_total_norm({}).item<double>() == 0);
  CHECK(get_total_norm({Tensor(), zeros({0}), full({4}, 2.0), zeros({0})}).item<double>() == 4);
  CHECK(get_total_norm({Tensor(), full({4}, 2.0, kDouble)}).dtype() == kDouble);
  x.mutable_grad() = full({2}, 3, kFloat);
  y.mutable_grad() = full({2}, 4, kDouble);
  CHECK(clip_grad_norm_({x, y}, 5) == Approx(std::sqrt(50)));
  CHECK(y.grad()[0].item<double>() == Approx(4 / std::sqrt(2)).epsilon(1e-5));
  const Tensor empty = zeros({0}, requires_grad());
  empty.mutable_grad() = zeros({0});
  CHECK(clip_grad_norm_({empty, x}, 100, INFINITY) == Approx(3 / std::sqrt(2)));

  x.mutable_grad() = full({2}, INFINITY, kFloat);
  CHECK_THROWS_AS(clip_grad_norm_(x, 1, 2, true), ValueError);
  CHECK_THROWS_WITH(clip_grad_norm_(x, 1, 2, true), contains("clip_grad_norm_") && contains("inf"));
  CHECK(std::isinf(x.grad()[0].item<double>()));
  CHECK(std::isinf(clip_grad_norm_(x, 1)));
  CHECK(std::isnan(x.grad()[0].item<double>()));
  CHECK(clip_grad_norm_(y, 1, 2, true) == Approx(4));
}

TEST_CASE("errors of clipping name the invalid argument") {
  const Tensor x = zeros({2}, requires_grad());
  CHECK_THROWS_WITH(clip_grad_norm_(x, -1), contains("max_norm") && contains("-1"));
  CHECK_THROWS_WITH(clip_grad_norm_(x, NAN), contains("max_norm") && contains("nan"));
  CHECK_THROWS_WITH(clip_grad_norm_(x, 1, 0), contains("norm_type") && contains("0"));
  CHECK_THROWS_WITH(clip_grad_norm_(x, 1, -INFINITY), contains("norm_type") && contains("-inf"));
  CHECK_THROWS_WITH(clip_grad_value_(x, -1), contains("clip_value") && contains("-1"));
  CHECK_THROWS_WITH(clip_grad_norm_(Tensor(), 1), contains("undefined"));
  for (const Tensor& norm : {Tensor(), ones({2}), zeros({0})})
    CHECK_THROWS_WITH(nn::utils::clip_grads_with_norm_({x}, 1, norm), contains("total_norm must be a single number"));
  CHECK_NOTHROW(nn::utils::clip_grads_with_norm_({x}, 0, ones({1, 1})));
  CHECK_THROWS_AS(get_total_norm({zeros({2}, kLong)}), DTypeError);
}
