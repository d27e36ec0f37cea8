// The backend "cudnn": which backend computes which convolution, the switches, and capture. The tests of all backends
// cover the results in general.
#include <functional>
#include <set>

#include <gradus/core/kernel_choice.h>
#include <gradus/core/ops/ops.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// Returns true, and marks the test case as skipped, in a build without cuDNN or on a machine without a device.
bool no_cudnn() { return !cudnn::is_available() && skip("cuDNN"); }

Tensor image_of(const Shape& shape, MemoryFormat format = MemoryFormat::contiguous, DType dtype = kFloat) {
  return randn(shape).to(cuda_device(), dtype).contiguous(format);
}

}  // namespace

TEST_CASE("the switches of cuDNN are there in every build") {
  const CudnnSwitches restored;
  CHECK(cudnn::deterministic());
  CHECK_FALSE(cudnn::benchmark());
  cudnn::set_allow_tf32(true), cudnn::set_deterministic(false), cudnn::set_benchmark(true);
  cudnn::set_workspace_limit(12);
  CHECK(cudnn::allow_tf32());
  CHECK_FALSE(cudnn::deterministic());
  CHECK(cudnn::benchmark());
  CHECK(cudnn::workspace_limit() == 12);
  CHECK(cudnn::is_available() == has_backend("cudnn"));
}

TEST_CASE("convolutions run on cuDNN, and nothing is transposed on the way") {
  if (no_cudnn()) return;
  const CudnnSwitches restored;
  const BackendGuard guard("cudnn");
  cudnn::set_small_convolutions(true);
  const bool ampere = cuda_capability() >= 80;  // cuDNN supports bfloat16
  for (DType dtype : {kFloat, kHalf, kBFloat16})
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      if (dtype == kBFloat16 && !ampere) continue;
      nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(32, 64, 3).padding(1)), nn::ReLU(),
                         nn::ConvReLU2d(nn::Conv2dOptions(64, 64, 3).stride(2)));
      net->to(cuda_device(), dtype);
      net->to(format);
      const Tensor x = image_of({8, 32, 16, 16}, format, dtype).requires_grad_();
      const Tensor dy = image_of({8, 64, 7, 7}, format, dtype);
      const Kernels kernels;
      const Tensor y = net->forward(x);
      y.backward(dy);
      INFO(name(dtype) << ": " << kernels.all());
      CHECK(kernels.contain("cudnn/conv2d"));
      CHECK(kernels.contain("cudnn/conv2d_backward_data/"));
      CHECK(kernels.contain("cudnn/conv2d_backward_weight/"));
      CHECK_FALSE(kernels.contain("cuda/conv2d"));
      CHECK_FALSE((kernels.contain("cuda/copy") && dtype == kFloat));  // copies of half types are allowed
      CHECK(y.is_contiguous(format));
      CHECK(x.grad().is_contiguous(format));
    }
}

TEST_CASE("all algorithms are candidates unless cuDNN is to run all convolutions") {
  if (no_cudnn()) return;
  const CudnnSwitches restored;
  const BackendGuard guard("cudnn");
  const auto kernels_by = [](const char* algorithm) {
    const ForcedAlgorithm forced(algorithm);
    const Tensor x = image_of({4, 6, 10, 12}).requires_grad_(), w = image_of({16, 6, 3, 3}).requires_grad_();
    const Tensor bias = image_of({16});
    const Kernels kernels;
    const Tensor y = conv2d_relu(x, w, bias, 1, 1);
    y.backward(y.detach());
    return kernels.all();
  };
  cudnn::set_allow_tf32(false);
  cudnn::set_small_convolutions(false);
  CHECK_THAT(kernels_by("implicit_gemm_generic"), !contains("cudnn/conv2d"));
  CHECK_THAT(kernels_by("engine"), !contains("cuda/conv2d"));
  cudnn::set_small_convolutions(true);
  CHECK_THAT(kernels_by("implicit_gemm_generic"), !contains("cuda/conv2d"));
}

TEST_CASE("a weight in the other order of memory gives the same numbers") {
  if (no_cudnn()) return;
  const BackendGuard guard("cudnn");
  const Tensor x = image_of({4, 32, 12, 12}), w = image_of({48, 32, 3, 3});
  const Tensor expected = conv2d(x, w, {}, 1, 1);
  const Tensor mixed = conv2d(x.contiguous(MemoryFormat::channels_last), w, {}, 1, 1);
  CHECK(mixed.is_contiguous(MemoryFormat::channels_last));
  CHECK(error(mixed, expected) <= tolerance_of(kFloat));
}

TEST_CASE("TF32 is what float32 convolutions use where it is allowed, to its accuracy") {
  if (no_cudnn()) return;
  const CudnnSwitches restored;
  const BackendGuard guard("cudnn");
  const ForcedAlgorithm forced("engine_tf32");
  for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Tensor x = image_of({16, 64, 32, 32}, format), w = image_of({64, 64, 3, 3}, format).requires_grad_();
    cudnn::set_allow_tf32(false);
    const Tensor exact = conv2d(x, w, {}, 1, 1);
    exact.backward(exact.detach());
    const Tensor exact_gradient = w.grad().clone();
    w.mutable_grad() = Tensor();
    cudnn::set_allow_tf32(true);
    const Kernels kernels;
    const Tensor rounded = conv2d(x, w, {}, 1, 1);
    rounded.backward(exact.detach());
    const bool rounds = cuda_capability() >= 80;
    CHECK(kernels.contain("cudnn/conv2d/engine_tf32") == rounds);
    CHECK((error(rounded, exact) > tolerance_of(kFloat)) == rounds);  // TF32 keeps 11 of float32's 24 bits
    CHECK(error(rounded, exact) < 2e-3);
    CHECK(error(w.grad(), exact_gradient) < 2e-3);
    CHECK(error(exact, conv2d(x.to(kDouble), w.detach().to(kDouble), {}, 1, 1)) <= tolerance_of(kFloat));
  }
}

TEST_CASE("TF32 is what float32 matrix products use where it is allowed") {
  if (no_cuda_device()) return;
  const Tensor a = image_of({512, 700}), b = image_of({700, 640});
  const Tensor exact = matmul(a, b);
  CHECK_FALSE(cuda::matmul_allow_tf32());
  cuda::set_matmul_allow_tf32(true);
  const Tensor rounded = matmul(a, b);
  cuda::set_matmul_allow_tf32(false);
  CHECK((error(rounded, exact) > tolerance_of(kFloat)) == (cuda_capability() >= 80));
  CHECK(error(rounded, exact) < 2e-3);
  CHECK(error(exact, matmul(a.to(kDouble), b.to(kDouble))) <= tolerance_of(kFloat));
}

TEST_CASE("engines chosen by timing, non-deterministic ones and those without scratch memory give the same numbers") {
  if (no_cudnn()) return;
  const CudnnSwitches restored;
  const BackendGuard guard("cudnn");
  const Tensor x = image_of({8, 32, 20, 20}).requires_grad_(), w = image_of({64, 32, 3, 3}).requires_grad_();
  const Tensor bias = image_of({64});
  const auto run = [&] {
    const Tensor y = conv2d_relu(x, w, bias, 1, 1);
    const TensorList gradients = autograd::grad({y}, {x, w}, {y.detach()});
    return TensorList{y.detach(), gradients[0], gradients[1]};
  };
  const TensorList expected = run();
  const auto check = [&] {
    const TensorList found = run();
    for (size_t i = 0; i < found.size(); ++i) CHECK(error(found[i], expected[i]) <= tolerance_of(kFloat));
  };
  SECTION("timed") { cudnn::set_benchmark(true), check(), check(); }
  SECTION("non-deterministic") { cudnn::set_deterministic(false), check(); }
  SECTION("no scratch memory") { cudnn::set_workspace_limit(0), check(); }
}

TEST_CASE("with benchmark() the first convolution of its shape runs several algorithms, and later ones the fastest") {
  if (no_cudnn()) return;
  const CudnnSwitches restored;
  cudnn::set_benchmark(true), cudnn::set_small_convolutions(false);
  for (const std::string name : {"cuda", "cudnn"}) {
    const BackendGuard guard(name);
    const auto algorithms_of = [&](const auto& convolve) {
      const Kernels kernels;
      convolve();
      return kernels.algorithms_of("conv2d");
    };
    const Tensor x = image_of({9, 40, 22, 22}), w = image_of({56, 40, 3, 3}), dy = image_of({9, 56, 22, 22});
    const std::function<void()> passes[] = {
        [&] { conv2d(x, w, {}, 1, 1); }, [&] { autograd::grad({conv2d(x.requires_grad_(), w, {}, 1, 1)}, {x}, {dy}); },
        [&] { autograd::grad({conv2d(x, w.requires_grad_(), {}, 1, 1)}, {w}, {dy}); }};
    for (const auto& pass : passes) {
      const std::vector<std::string> first = algorithms_of(pass), later = algorithms_of(pass);
      const std::set<std::string> timed(first.begin(), first.end());
      INFO(name << ": " << first.size() << " kernels of " << timed.size() << " algorithms first");
      CHECK(timed.size() > 1);
      CHECK(first.size() >= later.size() + 20);  // two algorithms or more are run several times
      for (const std::string& each : later) CHECK(timed.count(each) == 1);
      CHECK(algorithms_of(pass) == later);
      cuda::Graph graph;
      CHECK(algorithms_of([&] { graph.capture(pass); }) == later);
    }
  }
}

TEST_CASE("a captured convolution is replayed, also where its engine would have been timed") {
  if (no_cudnn()) return;
  const CudnnSwitches restored;
  const BackendGuard guard("cudnn");
  const NoGradGuard no_grad;
  for (bool timed : {false, true}) {
    cudnn::set_benchmark(timed);
    const Tensor x = image_of({4, 24 + 8 * timed, 18, 18}), w = image_of({40, 24 + 8 * timed, 3, 3}),
                 bias = image_of({40});
    Tensor y;
    cuda::Graph graph;
    graph.capture([&] { y = conv2d_relu(x, w, bias, 2, 1); });  // the first call: the plan is made during the capture
    x.copy_(image_of(x.sizes()));
    graph.replay();
    cudnn::set_benchmark(false);
    CHECK(error(y, conv2d_relu(x, w, bias, 2, 1)) <= tolerance_of(kFloat));
  }
}

TEST_CASE("more configurations than plans are kept") {
  if (no_cudnn()) return;
  const BackendGuard guard("cudnn");
  const NoGradGuard no_grad;
  const Tensor w = ones({8, 8, 1, 1}, cuda_device());
  for (int round = 0; round < 2; ++round)
    for (int64_t width = 1; width <= 520; width += round == 0 ? 1 : 130) {
      const Tensor y = conv2d(ones({1, 8, 1, width}, cuda_device()), w);
      CHECK(y.sum().item<float>() == static_cast<float>(64 * width));
    }
}

TEST_CASE("images too large to be counted in 31 bits are refused by name and shape") {
  if (no_cuda_device()) return;
  for (const std::string& name : backend_names()) {
    if (backend(name).device_type() != DeviceType::cuda) continue;
    const BackendGuard guard(name);
    const Tensor x = zeros({1, 1, 1, 1}, cuda_device()).expand({1, 1, 65536, 32768}),
                 w = ones({1, 1, 1, 1}, cuda_device());
    CHECK_THROWS_AS(conv2d(x, w, {}, 8), ShapeError);
    CHECK_THROWS_WITH(conv2d(x, w, {}, 8), contains("[conv2d]") && contains("2147483648"));
  }
}
