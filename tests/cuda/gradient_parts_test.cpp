// A gradient that reaches batch norm with ReLU in two parts, as in a residual block. The kernel of batch norm adds the
// parts (BackwardOfSum), with the same bits as if the autograd engine had added them.
#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

struct PartsCase {
  Shape x;
  DType dtype;
  bool channels_last, residual;
  int users;  // number of operators that use the result
  bool wants_dx = true;
};

// The gradients of weight, bias, x and, if there is one, the residual, and the number of kernels that backward ran.
// With a hook, which has to see the whole gradient, the engine adds the parts.
TensorList gradients_of(const PartsCase& c, bool hook, size_t* kernels) {
  manual_seed(11);
  const auto format = c.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  const auto image = [&] { return randn(c.x).to(c.dtype).contiguous(format).to(cuda_device()); };
  const auto leaf = [](const Tensor& tensor) { return tensor.set_requires_grad(true); };
  const Tensor x = image().set_requires_grad(c.wants_dx), residual = leaf(image());
  const DType wide = c.dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto parameter = [&] { return leaf(randn({c.x[1]}).to(wide).to(cuda_device())); };
  const Tensor weight = parameter(), bias = parameter();
  const Tensor y = batch_norm_relu(x, {}, {}, weight, bias, true, 0.1, 1e-5, c.residual ? residual : Tensor());
  if (hook) y.register_hook([](const Tensor& dy) { return dy; });
  TensorList results, dys;
  for (int user = 0; user < c.users; ++user) results.push_back(y * image()), dys.push_back(image());
  const Kernels ran;
  autograd::backward(results, dys);
  *kernels = ran.count();
  TensorList gradients = {weight.grad(), bias.grad()};
  if (c.wants_dx) gradients.push_back(x.grad());
  if (c.residual) gradients.push_back(residual.grad());
  return gradients;
}

}  // namespace

TEST_CASE("batch norm adds a gradient in two parts to the bits of their sum") {
  if (no_cuda_device()) return;
  const PartsCase cases[] = {
      {{4, 64, 8, 8}, DType::bf16, true, true, 2},    {{4, 64, 8, 8}, DType::bf16, true, false, 2},
      {{32, 64, 32, 32}, DType::f16, true, true, 2},  {{32, 64, 32, 32}, DType::f16, true, false, 2},
      {{80, 64, 32, 32}, DType::bf16, true, true, 2}, {{80, 64, 32, 32}, DType::bf16, true, false, 2},
      {{80, 64, 32, 32}, DType::f32, true, true, 3},  {{4, 24, 9, 7}, DType::f32, true, false, 3},
      {{3, 5, 4, 4}, DType::f32, false, true, 2},     {{3, 8, 4, 4}, DType::f64, true, false, 2},
  };
  for (const PartsCase& c : cases) {
    size_t of_parts = 0, of_sum = 0;
    const TensorList parts = gradients_of(c, false, &of_parts), sum = gradients_of(c, true, &of_sum);
    INFO(c.x << " " << c.dtype << ", residual " << c.residual << ", users " << c.users);
    for (size_t i = 0; i < sum.size(); ++i) CHECK(parts[i].eq(sum[i]).all().item<bool>());
    CHECK(sum[2].abs().sum().item<double>() > 0);
    const bool has_kernel = c.channels_last && c.dtype != DType::f64;
    CHECK(of_sum - of_parts == (has_kernel ? 1 : 0));
    PartsCase without_dx = c;
    without_dx.wants_dx = false;
    const TensorList of_parameters = gradients_of(without_dx, true, &of_sum);
    for (size_t i = 0; i < 2; ++i) CHECK(of_parameters[i].eq(sum[i]).all().item<bool>());
  }
}
