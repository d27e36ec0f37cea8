// Functions and their derivatives at the ends of their domains and of the range of numbers, where parts of a formula
// overflow, underflow or cancel although its result does not. The functions run in float32 and float64, on the backend
// naive and with every instruction set of openmp.
#include <cmath>
#include <limits>

#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/nn/loss.h>
#include <gradus/backends/openmp/openmp.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

struct End {
  const char* what;
  Tensor (*run)(const Tensor&);
  DType dtype;
  double x, y, slope;
};

constexpr double kFloatMax = std::numeric_limits<float>::max(), kDoubleMax = std::numeric_limits<double>::max();
constexpr double kNextToOne = 0x1.fffffep-1;  // the largest float32 below 1

#define GRADUS_CALL(f) #f, [](const Tensor& x) { return f; }
const End kEnds[] = {
    {GRADUS_CALL(acosh(x)), kFloat, 2e38, 88.884527862922195, 5e-39},
    {GRADUS_CALL(acosh(x)), kFloat, 1e20, 46.744849060481736, 1e-20},
    {GRADUS_CALL(acosh(x)), kFloat, 0x1.000002p0, 0.00048828124514936172, 2047.9999389648465},
    {GRADUS_CALL(acosh(x)), kFloat, 1, 0, INFINITY},
    {GRADUS_CALL(acosh(x)), kDouble, 1e308, 709.88935582272602, 1e-308},
    {GRADUS_CALL(acosh(x)), kDouble, 1e200, 461.21016577936908, 1e-200},
    {GRADUS_CALL(asinh(x)), kFloat, 3e38, 89.289993004834376, 1 / 3e38},
    {GRADUS_CALL(asinh(x)), kFloat, -3e38, -89.289993004834376, 1 / 3e38},
    {GRADUS_CALL(asinh(x)), kFloat, 1e20, 46.744849060481736, 1e-20},
    {GRADUS_CALL(asinh(x)), kFloat, 1e9, 21.416413017506356, 1e-9},
    {GRADUS_CALL(asinh(x)), kFloat, 1e-30, 1e-30, 1},
    {GRADUS_CALL(asinh(x)), kDouble, -1e308, -709.88935582272602, 1e-308},
    {GRADUS_CALL(asinh(x)), kDouble, 1e9, 21.416413017506358, 1e-9},
    {GRADUS_CALL(atanh(x)), kFloat, kNextToOne, 8.664339742098155, 8388608.25},
    {GRADUS_CALL(atanh(x)), kFloat, -1, -INFINITY, INFINITY},
    {GRADUS_CALL(atanh(x)), kDouble, 1 - 0x1p-53, 18.714973875118523, 4503599627370496.3},
    {GRADUS_CALL(asin(x)), kFloat, kNextToOne, 1.5704510598101804, 2896.3094188984725},
    {GRADUS_CALL(asin(x)), kFloat, 1, 1.5707963267948966, INFINITY},
    {GRADUS_CALL(acos(x)), kFloat, kNextToOne, 0.00034526698471620359, -2896.3094188984725},
    {GRADUS_CALL(acos(x)), kFloat, -1, 3.1415926535897932, -INFINITY},
    {GRADUS_CALL(atan(x)), kFloat, 3e38, 1.5707963267948966, 0},
    {GRADUS_CALL(atan(x)), kDouble, -1e308, -1.5707963267948966, 0},
    {GRADUS_CALL(sinh(x)), kFloat, 89.25, 2.8823884854534822e38, 2.8823884854534822e38},
    {GRADUS_CALL(sinh(x)), kFloat, -89.25, -2.8823884854534822e38, 2.8823884854534822e38},
    {GRADUS_CALL(sinh(x)), kFloat, 90, INFINITY, INFINITY},
    {GRADUS_CALL(sinh(x)), kFloat, 1e-30, 1e-30, 1},
    {GRADUS_CALL(sinh(x)), kDouble, 710.4, 1.6663642832806496e308, 1.6663642832806496e308},
    {GRADUS_CALL(cosh(x)), kFloat, -89.25, 2.8823884854534822e38, -2.8823884854534822e38},
    {GRADUS_CALL(cosh(x)), kFloat, 1e-30, 1, 1e-30},
    {GRADUS_CALL(cosh(x)), kFloat, -90, INFINITY, -INFINITY},
    {GRADUS_CALL(cosh(x)), kDouble, 710.4, 1.6663642832806496e308, 1.6663642832806496e308},
    {GRADUS_CALL(hardswish(x)), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(hardswish(x)), kDouble, 1e308, 1e308, 1},
    {GRADUS_CALL(gelu(x)), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(gelu(x)), kFloat, -3e38, 0, 0},
    {GRADUS_CALL(gelu(x, "tanh")), kFloat, 1e20, 1e20, 1},
    {GRADUS_CALL(gelu(x, "tanh")), kFloat, -1e20, 0, 0},
    {GRADUS_CALL(gelu(x, "tanh")), kDouble, 1e300, 1e300, 1},
    {GRADUS_CALL(silu(x)), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(silu(x)), kFloat, -3e38, 0, 0},
    {GRADUS_CALL(mish(x)), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(mish(x)), kFloat, -3e38, 0, 0},
    {GRADUS_CALL(elu(x)), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(selu(x)), kFloat, -3e38, -1.7580993408473766, 0},
    {GRADUS_CALL(softplus(x)), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(softplus(x)), kFloat, -80, 1.8048513878454153e-35, 1.8048513878454153e-35},
    {GRADUS_CALL(log_sigmoid(x)), kFloat, -3e38, -3e38, 1},
    {GRADUS_CALL(log_sigmoid(x)), kFloat, 3e38, 0, 0},
    {GRADUS_CALL(sigmoid(x)), kFloat, -80, 1.8048513878454153e-35, 1.8048513878454153e-35},
    {GRADUS_CALL(tanh(x)), kFloat, 3e38, 1, 0},
    {GRADUS_CALL(softsign(x)), kFloat, kFloatMax, 1, 0},
    {GRADUS_CALL(softsign(x)), kDouble, -kDoubleMax, -1, 0},
    {GRADUS_CALL(erf(x)), kFloat, -3e38, -1, 0},
    {GRADUS_CALL(log1p(x)), kFloat, kFloatMax, 88.722839052068352, 0},
    {GRADUS_CALL(log1p(x)), kFloat, 1e-30, 1e-30, 1},
    {GRADUS_CALL(expm1(x)), kFloat, 88.5, 2.7230878250681117e38, 2.7230878250681117e38},
    {GRADUS_CALL(expm1(x)), kFloat, 1e-30, 1e-30, 1},
    {GRADUS_CALL(logaddexp(x, -x.detach())), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(huber_loss(x, zeros_like(x))), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(smooth_l1_loss(x, zeros_like(x))), kFloat, -3e38, 3e38, -1},
    {GRADUS_CALL(binary_cross_entropy_with_logits(x, zeros_like(x))), kFloat, 3e38, 3e38, 1},
    // Standard deviation and norm of the two numbers x and 0.
    {GRADUS_CALL(stack({x, zeros_like(x)}).std()), kFloat, 1e20, M_SQRT1_2 * 1e20, M_SQRT1_2},
    {GRADUS_CALL(stack({x, zeros_like(x)}).std()), kFloat, -1e-25, M_SQRT1_2 * 1e-25, -M_SQRT1_2},
    {GRADUS_CALL(stack({x, zeros_like(x)}).std()), kDouble, 1e200, M_SQRT1_2 * 1e200, M_SQRT1_2},
    {GRADUS_CALL(stack({x, zeros_like(x)}).norm()), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(stack({x, zeros_like(x)}).norm()), kFloat, -1e-25, 1e-25, -1},
    {GRADUS_CALL(stack({x, zeros_like(x)}).norm()), kDouble, 1e-200, 1e-200, 1},
    {GRADUS_CALL(stack({x, zeros_like(x)}).logsumexp({0})), kFloat, 3e38, 3e38, 1},
    {GRADUS_CALL(pairwise_distance(x.reshape({-1, 1}), zeros({1, 1}, x.dtype()), 2, 0)), kFloat, 1e20, 1e20, 1},
};
#undef GRADUS_CALL

// True if `found` is close to `wanted`. Subnormal numbers may be flushed to 0.
bool is_near(double found, double wanted, DType dtype) {
  const double smallest = dtype == kFloat ? 0x1p-126 : 0x1p-1022, tolerance = dtype == kFloat ? 4e-6 : 1e-13;
  return found == wanted || std::abs(found - wanted) <= tolerance * std::abs(wanted) + 2 * smallest;
}

void check_ends(const std::string& on) {
  for (const End& end : kEnds) {
    // Runs each function on one number, and on 19 equal numbers, which fill several SIMD vectors and part of another.
    for (int64_t count : {1, 19}) {
      const bool whole = end.run(zeros({2}, end.dtype)).numel() == 2;
      if (count > 1 && !whole) continue;
      const Tensor x = full(whole ? Shape{count} : Shape{}, end.x, end.dtype).set_requires_grad(true);
      const Tensor y = end.run(x).reshape({-1});
      const Tensor slope = autograd::grad({y}, {x}, {ones_like(y)})[0].reshape({-1});
      INFO(on << " " << name(end.dtype) << " " << end.what << " at " << end.x << ": " << y[0].item<double>() << " ("
              << end.y << "), slope " << slope[0].item<double>() << " (" << end.slope << ")");
      CHECK(is_near(y[0].item<double>(), end.y, end.dtype));
      CHECK(is_near(y[-1].item<double>(), end.y, end.dtype));
      CHECK(is_near(slope[0].item<double>(), end.slope, end.dtype));
      CHECK(is_near(slope[-1].item<double>(), end.slope, end.dtype));
    }
  }
}

}  // namespace

TEST_CASE("functions and slopes at the ends of their domains") {
  const OneThread one_thread;
  {
    const BackendGuard guard("naive");
    check_ends("naive");
  }
  const BackendGuard guard("openmp");
  const CpuIsa before = cpu_isa();
  for (CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512}) {
    if (isa > best_cpu_isa()) continue;
    set_cpu_isa(isa);
    check_ends(std::string("openmp ") + name(isa));
  }
  set_cpu_isa(before);
}
