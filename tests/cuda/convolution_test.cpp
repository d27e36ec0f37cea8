// The backend "cuda": which kernel computes which convolution, and the results of the kernels for special cases. The
// tests of all backends cover the results in general.
#include <algorithm>
#include <cmath>
#include <thread>

#include <gradus/core/kernel_choice.h>
#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

Tensor image(const Shape& shape, DType dtype = kFloat) { return randn(shape).to(cuda_device(), dtype); }

struct TF32 {
  explicit TF32(bool allow) : before(cuda::matmul_allow_tf32()) { cuda::set_matmul_allow_tf32(allow); }
  ~TF32() { cuda::set_matmul_allow_tf32(before); }
  const bool before;
};

// The results of the forward and backward pass of a convolution, and the kernels that ran.
struct Convolution {
  Tensor y, dx, dw;
  std::string kernels;
};
Convolution run(const Tensor& x, const Tensor& w, int64_t stride = 1) {
  const BackendGuard guard("cuda");
  const Kernels kernels;
  const Tensor input = x.detach().requires_grad_(), weight = w.detach().requires_grad_();
  const Tensor y = conv2d(input, weight, {}, stride, w.size(2) / 2);
  y.backward(ones_like(y) * 0.5);
  return {y.detach(), input.grad(), weight.grad(), kernels.all()};
}

}  // namespace

TEST_CASE("convolutions: the algorithms that can run a layer give its results, where they are asked for") {
  if (no_cuda_device()) return;
  const bool ampere = cuda_capability() >= 80;  // asynchronous copies, and tensor cores for all types
  const TF32 exact(false);
  manual_seed(1);
  const auto few = [](const char* algorithm, int64_t size, int64_t stride = 1, DType dtype = kFloat) {
    const ForcedAlgorithm forced(algorithm);
    return run(image({2, 1, 12, 12}, dtype), image({8, 1, size, size}, dtype), stride).kernels;
  };
  for (const int64_t size : {3, 5})
    CHECK_THAT(few("direct", size), contains("cuda/conv2d/direct") && contains("cuda/conv2d_backward_data/direct") &&
                                        contains(has_room_for_direct_wgrad() ? "cuda/conv2d_backward_weight/direct"
                                                                             : "cuda/conv2d_backward_weight"));
  for (const std::string& kernels :
       {few("direct", 3, 1, kDouble), few("implicit_gemm_generic", 4), few("implicit_gemm_generic", 3, 2)})
    CHECK_THAT(kernels, contains("cuda/conv2d/implicit_gemm_generic") &&
                            contains("cuda/conv2d_backward_weight/implicit_gemm_generic"));
  const std::string odd = run(image({2, 19, 9, 9}), image({40, 19, 3, 3})).kernels;
  CHECK_THAT(odd, contains("cuda/conv2d/implicit_gemm_generic"));
  for (const int64_t stride : {1, 2}) {
    const Tensor x = image({2, 32, 12, 12}), w = image({48, 32, 3, 3});
    const auto all_by = [&](const std::string& algorithm, const Tensor& images) {
      const ForcedAlgorithm forced(algorithm.c_str());
      const Convolution made = run(images, w, stride), reference = run(images.to(kDouble), w.to(kDouble), stride);
      CHECK(error(made.y, reference.y) <= tolerance_of(kFloat));
      CHECK(error(made.dx, reference.dx) <= tolerance_of(kFloat));
      CHECK(error(made.dw, reference.dw) <= tolerance_of(kFloat));
      CHECK_THAT(made.kernels, contains("cuda/conv2d/" + algorithm) &&
                                   contains("cuda/conv2d_backward_data/" + algorithm) &&
                                   contains("cuda/conv2d_backward_weight/" + algorithm));
    };
    if (ampere) all_by("implicit_gemm_async", x);
    all_by("implicit_gemm_fma", x);
    all_by("implicit_gemm_fma", x.contiguous(MemoryFormat::channels_last));
    all_by("implicit_gemm_generic", x);
  }
  const ForcedAlgorithm half_algorithm("implicit_gemm_half");
  const std::string half = run(image({2, 32, 12, 12}, kHalf), image({48, 32, 3, 3}, kHalf)).kernels;
  const std::string kernel = ampere ? "/implicit_gemm_half" : "/implicit_gemm_generic";
  CHECK_THAT(half, contains("cuda/conv2d" + kernel) && contains("cuda/conv2d_backward_weight" + kernel));
  const std::string wide = run(image({2, 32, 12, 12}, kDouble), image({48, 32, 3, 3}, kDouble)).kernels;
  CHECK_THAT(wide, contains("cuda/conv2d/implicit_gemm_generic"));
}

TEST_CASE("few channels of half types are multiplied on tensor cores, which gives the same bits run after run") {
  if (no_cuda_device()) return;
  const CudnnSwitches restored;
  cudnn::set_small_convolutions(false);
  manual_seed(3);
  for (const DType dtype : {kHalf, kBFloat16})
    for (const char* name : {"cuda", "cudnn"}) {
      if (!has_backend(name)) continue;
      const BackendGuard guard(name);
      const ForcedAlgorithm forced("few_channel_mma");
      const Tensor x = image({9, 3, 33, 35}, dtype).contiguous(MemoryFormat::channels_last);
      const Tensor w = image({40, 3, 3, 3}, dtype).contiguous(MemoryFormat::channels_last).requires_grad_();
      const Tensor bias = image({40}, dtype).requires_grad_();
      const auto train = [&] {
        w.mutable_grad() = Tensor(), bias.mutable_grad() = Tensor();
        const Tensor y = conv2d_relu(x, w, bias, 1, 1);
        y.backward(y.detach());
        return TensorList{y.detach(), w.grad(), bias.grad()};
      };
      const Kernels kernels;
      const TensorList first = train();
      if (cuda_capability() >= 80)
        CHECK_THAT(kernels.all(), contains("cuda/conv2d_bias_relu/few_channel_mma") &&
                                      contains("cuda/conv2d_backward_weight/few_channel_mma"));
      const TensorList again = train();
      for (size_t i = 0; i < first.size(); ++i) CHECK(again[i].equal(first[i]));
    }
}

TEST_CASE("few channels of float32 are rounded to TF32 where that is allowed, with the same bits again") {
  if (no_cuda_device()) return;
  const CudnnSwitches restored;
  cudnn::set_small_convolutions(false);
  const TF32 allowed(true);
  manual_seed(12);
  struct Layer {
    Shape x, w;
    int64_t stride, padding;
  };
  // The layers need one to four steps of the depth, a part of a group of filters, NCHW images, and more tiles than
  // blocks.
  const Layer layers[] = {{{9, 3, 33, 35}, {40, 3, 3, 3}, 1, 1},   {{5, 1, 28, 28}, {32, 1, 3, 3}, 1, 1},
                          {{3, 7, 10, 12}, {24, 7, 2, 2}, 2, 0},   {{4, 2, 9, 9}, {24, 2, 2, 2}, 1, 1},
                          {{600, 3, 32, 32}, {32, 3, 3, 3}, 1, 1}, {{2, 1, 16, 20}, {64, 1, 5, 5}, 2, 2}};
  for (const char* name : {"cuda", "cudnn"})
    for (const Layer& layer : layers)
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        if (!has_backend(name)) continue;
        INFO(layer.x << " " << layer.w);
        const BackendGuard guard(name);
        const ForcedAlgorithm forced("few_channel_mma");
        const Tensor x = image(layer.x).contiguous(format), bias = image({layer.w[0]});
        const Tensor w = image(layer.w).contiguous(MemoryFormat::channels_last);
        const auto forward = [&](DType type) {
          return TensorList{conv2d(x.to(type), w.to(type), {}, layer.stride, layer.padding),
                            conv2d_relu(x.to(type), w.to(type), bias.to(type), layer.stride, layer.padding)};
        };
        const TensorList reference = forward(kDouble);
        const Kernels kernels;
        const TensorList made = forward(kFloat), again = forward(kFloat);
        if (made[0].is_contiguous(MemoryFormat::channels_last) && cuda_capability() >= 80)
          CHECK_THAT(kernels.all(),
                     contains("cuda/conv2d/few_channel_mma") && contains("cuda/conv2d_bias_relu/few_channel_mma"));
        for (size_t i = 0; i < made.size(); ++i) {
          CHECK(error(made[i], reference[i]) < 1e-3);
          CHECK(again[i].equal(made[i]));
        }
        if (layer.x[0] == 9 && kernels.contain("cuda/conv2d/few_channel_mma"))
          CHECK(error(made[0], reference[0]) > tolerance_of(kFloat));
      }
}

TEST_CASE(
    "the gradient of weights of few channels or filters, with mask and bias, is exact and has the same bits again") {
  if (no_cuda_device()) return;
  const CudnnSwitches restored;
  cudnn::set_small_convolutions(false);
  manual_seed(4);
  struct Layer {
    Shape x, w;
    int64_t padding;
  };
  // There are more tiles than resident blocks, so that a block computes several.
  const Layer layers[] = {{{700, 3, 20, 16}, {32, 3, 3, 3}, 1},
                          {{900, 1, 16, 12}, {24, 1, 3, 3}, 1},
                          {{900, 1, 28, 28}, {1, 1, 3, 3}, 1},
                          {{700, 1, 20, 22}, {6, 1, 5, 5}, 2},
                          {{700, 2, 14, 14}, {16, 2, 5, 5}, 0}};
  for (const char* name : {"cuda", "cudnn"})
    for (const Layer& layer : layers)
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        if (!has_backend(name)) continue;
        const BackendGuard guard(name);
        const ForcedAlgorithm forced("direct");
        const Tensor x = image(layer.x).contiguous(format), w = image(layer.w).contiguous(format);
        const Tensor bias = image({layer.w[0]});
        const auto gradients = [&](DType dtype) {
          const Tensor weight = w.to(dtype).detach().requires_grad_(), shift = bias.to(dtype).detach().requires_grad_();
          const Tensor y = conv2d_relu(x.to(dtype), weight, shift, 1, layer.padding);
          y.backward(y.detach());
          return TensorList{weight.grad(), shift.grad()};
        };
        const TensorList reference = gradients(kDouble);
        const Kernels kernels;
        const TensorList made = gradients(kFloat), again = gradients(kFloat);
        if (has_room_for_direct_wgrad()) CHECK_THAT(kernels.all(), contains("cuda/conv2d_backward_weight/direct"));
        for (size_t i = 0; i < made.size(); ++i) {
          CHECK(error(made[i], reference[i]) <= tolerance_of(kFloat));
          CHECK(again[i].equal(made[i]));
        }
      }
}

TEST_CASE("what the thin kernels pad with meets no infinity") {
  if (no_cuda_device()) return;
  const BackendGuard guard("cuda");
  const ForcedAlgorithm forced("few_channel_mma");
  const Tensor x = zeros({1, 3, 6, 6}), w = ones({8, 3, 3, 3});
  x.select(1, 1).fill_(INFINITY);
  const auto of = [](const Tensor& tensor, DType dtype = kHalf) {
    return tensor.to(cuda_device(), dtype).contiguous(MemoryFormat::channels_last);
  };
  const TF32 allowed(true);
  for (const DType dtype : {kHalf, kFloat})
    for (const int64_t channels : {2, 3, 4, 6})  // two to four steps of the depth
      for (const int64_t bad : {int64_t{0}, channels - 1}) {
        if (dtype == kFloat && channels > 3) continue;
        const Tensor images = zeros({1, channels, 6, 6});
        images.select(1, bad).fill_(INFINITY);
        const Kernels ran;
        CHECK(conv2d(of(images, dtype), of(ones({24, channels, 3, 3}), dtype), {}, 1, 1).isinf().all().item<bool>());
        CHECK(ran.contain("cuda/conv2d/few_channel_mma") == (cuda_capability() >= 80));
      }
  const Kernels kernels;
  const Tensor y = conv2d(of(x), of(w), {}, 1, 1);
  const Tensor weight = of(w).requires_grad_();
  conv2d(of(x), weight, {}, 1, 1).backward(of(ones({1, 8, 6, 6})));
  CHECK(kernels.contain("cuda/conv2d/few_channel_mma") == (cuda_capability() >= 80));
  CHECK(kernels.contain("cuda/conv2d_backward_weight/few_channel_mma") == (cuda_capability() >= 80));
  CHECK(y.isinf().all().item<bool>());
  CHECK(weight.grad().select(1, 1).isinf().all().item<bool>());
  CHECK_FALSE(weight.grad().select(1, 0).isnan().any().item<bool>());
}

TEST_CASE("wgmma: y, dx, dw and dbias of half types are right, and have the same bits again and in a captured graph") {
  if (no_cuda_device()) return;
  const CudnnSwitches restored;
  cudnn::set_small_convolutions(false);
  manual_seed(7);
  struct Layer {
    Shape x;
    int64_t K;
  };
  // The layers have odd sizes, one image, one pixel, more tiles than blocks, channels in two chunks, several groups of
  // filters, and rows so wide that few of them fit in shared memory.
  const Layer layers[] = {{{3, 32, 9, 7}, 40},    {{1, 16, 5, 4}, 48},    {{1, 16, 1, 1}, 16},
                          {{70, 32, 28, 28}, 32}, {{2, 128, 17, 13}, 72}, {{9, 64, 24, 24}, 128},
                          {{40, 64, 32, 32}, 64}, {{3, 96, 20, 127}, 24}, {{30, 32, 48, 48}, 64},
                          {{5, 48, 13, 100}, 80}, {{3, 96, 20, 37}, 24},  {{5, 48, 13, 44}, 80},
                          {{8, 128, 9, 56}, 128}, {{30, 64, 5, 112}, 64}, {{15, 128, 28, 28}, 128}};
  bool hopper = false;
  for (const char* name : {"cuda", "cudnn"})
    for (const DType dtype : {kHalf, kBFloat16})
      for (const Layer& layer : layers) {
        if (!has_backend(name)) continue;
        INFO(name << " " << layer.x << " to " << layer.K);
        const BackendGuard guard(name);
        const ForcedAlgorithm forced("wgmma");
        const int64_t K = layer.K, C = layer.x[1];
        const auto last = [](const Tensor& tensor) { return tensor.contiguous(MemoryFormat::channels_last); };
        const Tensor x = last(image(layer.x, dtype)).requires_grad_();
        const Tensor w = last(image({K, C, 3, 3}, dtype) * 0.1).detach().requires_grad_();
        const Tensor bias = image({K}, dtype).requires_grad_();
        const Tensor dy = last(image({layer.x[0], K, layer.x[2], layer.x[3]}, dtype));
        const auto gradients = [&](DType type, bool relu) {
          const auto leaf = [&](const Tensor& from) { return from.detach().to(type).requires_grad_(); };
          const Tensor in = leaf(x), weight = leaf(w), shift = leaf(bias);
          const Tensor y = relu ? conv2d_relu(in, weight, shift, 1, 1) : conv2d(in, weight, shift, 1, 1);
          y.backward(relu ? y.detach() * 0.03125 : dy.to(type));  // scaled so that sums of dy fit in half types
          return TensorList{y.detach(), in.grad(), weight.grad(), shift.grad()};
        };
        for (const bool relu : {true, false}) {
          const TensorList reference = gradients(kDouble, relu);
          const Kernels kernels;
          const TensorList made = gradients(dtype, relu);
          hopper = hopper || kernels.all().find("/wgmma") != std::string::npos;
          if (hopper && std::string(name) == "cuda")
            CHECK_THAT(kernels.all(), contains("cuda/conv2d_bias_relu/wgmma") &&
                                          contains("cuda/conv2d_backward_data/wgmma") &&
                                          contains("cuda/conv2d_backward_weight/wgmma"));
          TensorList captured;
          cuda::Graph graph;
          graph.capture([&] { captured = gradients(dtype, relu); });
          graph.replay();
          const TensorList again = gradients(dtype, relu);
          for (size_t i = 0; i < made.size(); ++i) {
            INFO("result " << i << (relu ? " with ReLU" : ""));
            CHECK(error(made[i], reference[i]) <= tolerance_of(dtype));
            CHECK(again[i].equal(made[i]));
            CHECK(captured[i].equal(made[i]));
          }
        }
      }
}

TEST_CASE("wgmma: y of float32 is rounded to TF32 where that is allowed, with the same bits again") {
  if (no_cuda_device()) return;
  const CudnnSwitches restored;
  const TF32 allowed(true);
  manual_seed(10);
  // The layers have one or more chunks of channels, a part of a chunk, one pixel, more tiles than blocks, and several
  // groups of filters. Those with more than 32 channels and filters use two warpgroups.
  const std::pair<Shape, int64_t> layers[] = {{{3, 32, 9, 7}, 40},    {{1, 16, 1, 1}, 16},    {{70, 32, 28, 28}, 32},
                                              {{9, 64, 24, 24}, 128}, {{40, 64, 32, 32}, 64}, {{3, 48, 20, 37}, 24},
                                              {{6, 24, 13, 100}, 72}, {{30, 32, 48, 48}, 64}, {{5, 40, 17, 21}, 72}};
  const BackendGuard guard("cuda");
  const ForcedAlgorithm forced(cuda_capability() == 90 ? "wgmma" : "implicit_gemm_tf32");
  for (const auto& [shape, filters] : layers) {
    INFO(shape << " to " << filters);
    const auto last = [](const Tensor& tensor) { return tensor.contiguous(MemoryFormat::channels_last); };
    const Tensor x = last(image(shape, kFloat)), w = last(image({filters, shape[1], 3, 3}, kFloat) * 0.1);
    const Tensor bias = image({filters}, kFloat);
    const auto forward = [&](DType type) {
      return TensorList{conv2d(x.to(type), w.to(type), {}, 1, 1),
                        conv2d_relu(x.to(type), w.to(type), bias.to(type), 1, 1)};
    };
    const TensorList reference = forward(kDouble);
    const Kernels kernels;
    const TensorList made = forward(kFloat), again = forward(kFloat);
    if (kernels.all().find("/wgmma") != std::string::npos)  // on Hopper
      CHECK_THAT(kernels.all(), contains("cuda/conv2d/wgmma") && contains("cuda/conv2d_bias_relu/wgmma"));
    TensorList captured;
    cuda::Graph graph;
    graph.capture([&] { captured = forward(kFloat); });
    graph.replay();
    const auto rounds = [&](const char* name) {
      return kernels.contain(std::string(name) + "/wgmma") ||
             kernels.contain(std::string(name) + "/implicit_gemm_tf32");
    };
    CHECK(rounds("cuda/conv2d") == (cuda_capability() >= 80));
    for (size_t i = 0; i < made.size(); ++i) {
      const double rounding = error(made[i], reference[i]);
      INFO(kernels.all());
      CHECK((rounding > tolerance_of(kFloat)) == rounds(i == 0 ? "cuda/conv2d" : "cuda/conv2d_bias_relu"));
      CHECK(rounding < 1e-3);
      CHECK(again[i].equal(made[i]));
      CHECK(captured[i].equal(made[i]));
    }
  }
}

TEST_CASE("wgmma_im2col: y, dx and dw of half types are right, and have the same bits again and in a captured graph") {
  if (no_cuda_device()) return;
  manual_seed(9);
  struct Layer {
    Shape x;
    int64_t K, R, S, stride, padding;
  };
  // The layers have odd sizes, one image, few pixels, many filters, tiles across images, clusters, parts of dw, and
  // channels that fill a box only in part.
  const Layer layers[] = {
      {{2, 256, 8, 8}, 256, 3, 3, 1, 1},   {{4, 512, 4, 4}, 512, 3, 3, 1, 1},  {{3, 64, 32, 32}, 128, 3, 3, 2, 1},
      {{64, 64, 30, 30}, 72, 3, 3, 2, 1},  {{3, 64, 16, 16}, 128, 1, 1, 2, 0}, {{2, 256, 14, 14}, 64, 1, 1, 1, 0},
      {{1, 72, 7, 7}, 136, 3, 3, 1, 1},    {{5, 64, 7, 7}, 128, 3, 3, 2, 1},   {{3, 40, 15, 14}, 24, 3, 3, 2, 1},
      {{1, 136, 15, 7}, 200, 1, 1, 2, 0},  {{2, 64, 14, 15}, 64, 5, 3, 1, 2},  {{2, 128, 9, 9}, 256, 3, 3, 1, 0},
      {{2, 64, 8, 9}, 64, 2, 2, 2, 0},     {{1, 16, 2, 1}, 16, 1, 1, 1, 0},    {{1, 64, 3, 200}, 64, 3, 3, 1, 1},
      {{30, 256, 14, 14}, 256, 3, 3, 1, 1}};
  const BackendGuard guard("cuda");
  const ForcedAlgorithm forced("wgmma_im2col");
  for (const DType dtype : {kHalf, kBFloat16})
    for (const Layer& layer : layers) {
      INFO(layer.x << " to " << layer.K << ", " << layer.R << "x" << layer.S << ", stride " << layer.stride);
      const auto last = [](const Tensor& tensor) { return tensor.contiguous(MemoryFormat::channels_last); };
      const Tensor x = last(image(layer.x, dtype)), bias = image({layer.K}, dtype);
      const Tensor w = last(image({layer.K, layer.x[1], layer.R, layer.S}, dtype) * 0.1);
      const auto run_layer = [&](DType type) {
        TensorList results;
        for (const bool relu : {false, true}) {
          const auto leaf = [&](const Tensor& from) { return from.detach().to(type).requires_grad_(); };
          const Tensor in = leaf(x), weight = leaf(w), shift = leaf(bias);
          const Tensor y = relu ? conv2d_relu(in, weight, shift, layer.stride, layer.padding)
                                : conv2d(in, weight, {}, layer.stride, layer.padding);
          y.backward(y.detach() * 0.03125);
          for (const Tensor& result : {y.detach(), in.grad(), weight.grad()}) results.push_back(result);
          if (relu) results.push_back(shift.grad());
        }
        return results;
      };
      const TensorList reference = run_layer(kDouble);
      const Kernels kernels;
      const TensorList made = run_layer(dtype);
      if (kernels.all().find("/wgmma") != std::string::npos)  // on Hopper
        CHECK_THAT(kernels.all(), contains("cuda/conv2d/wgmma_im2col") &&
                                      contains("cuda/conv2d_bias_relu/wgmma_im2col") &&
                                      contains("cuda/conv2d_backward_data/wgmma_im2col") &&
                                      contains("cuda/conv2d_backward_weight/wgmma_im2col"));
      TensorList captured;
      cuda::Graph graph;
      graph.capture([&] { captured = run_layer(dtype); });
      graph.replay();
      const TensorList again = run_layer(dtype);
      for (size_t i = 0; i < made.size(); ++i) {
        INFO("result " << i);
        CHECK(error(made[i], reference[i]) <= tolerance_of(dtype));
        CHECK(again[i].equal(made[i]));
        CHECK(captured[i].equal(made[i]));
      }
    }
}

TEST_CASE("wgmma: threads convolve side by side on streams of their own") {
  if (no_cuda_device()) return;
  manual_seed(8);
  const auto last = [](const Tensor& tensor) { return tensor.contiguous(MemoryFormat::channels_last); };
  const Tensor x = last(image({20, 32, 28, 28}, kBFloat16)), w = last(image({64, 32, 3, 3}, kBFloat16));
  const auto train = [&] {
    const BackendGuard guard("cuda");
    const Tensor input = x.detach().requires_grad_(), weight = w.detach().requires_grad_();
    const Tensor y = conv2d(input, weight, {}, 1, 1);
    y.backward(y.detach());
    return TensorList{y.detach(), input.grad(), weight.grad()};
  };
  const TensorList alone = train();
  cuda::synchronize();
  std::vector<TensorList> made(4);
  std::vector<std::thread> threads;
  for (TensorList& each : made)
    threads.emplace_back([&] {
      const cuda::StreamGuard stream(cuda::new_stream());
      for (int i = 0; i < 5; ++i) each = train();
      cuda::synchronize();
    });
  for (std::thread& thread : threads) thread.join();
  for (const TensorList& each : made)
    for (size_t i = 0; i < alone.size(); ++i) CHECK(each[i].equal(alone[i]));
}

TEST_CASE("convolutions of float32 use TF32 where matrix products may") {
  if (no_cuda_device()) return;
  const ForcedAlgorithm forced("implicit_gemm_tf32");
  manual_seed(2);
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Tensor x = image({3, 64, 14, 14}).contiguous(format), w = image({96, 64, 3, 3});
    const Convolution reference = run(x.to(kDouble), w.to(kDouble));
    const auto errors = [&](const Convolution& made) {
      return std::array{error(made.y, reference.y), error(made.dx, reference.dx), error(made.dw, reference.dw)};
    };
    const TF32 exact(false);
    for (const double error : errors(run(x, w))) CHECK(error <= tolerance_of(kFloat));
    const TF32 allowed(true);
    const Convolution rounded = run(x, w);
    const bool rounds = cuda_capability() >= 80;
    if (rounds)
      CHECK_THAT(rounded.kernels, contains("conv2d/implicit_gemm_tf32") &&
                                      contains("conv2d_backward_data/implicit_gemm_tf32") &&
                                      contains("conv2d_backward_weight/implicit_gemm_tf32"));
    for (const double error : errors(rounded)) CHECK(((error > tolerance_of(kFloat)) == rounds && error < 2e-3));
    const Convolution again = run(x, w);
    CHECK(again.y.equal(rounded.y));
    CHECK(again.dx.equal(rounded.dx));
    CHECK(again.dw.equal(rounded.dw));
  }
}

TEST_CASE("gradients of few channels read a gradient and its mask, without a masked copy between") {
  if (no_cuda_device()) return;
  const BackendGuard guard("cuda");
  const ForcedAlgorithm forced("direct");
  manual_seed(6);
  struct Layer {
    Shape x, w, y;
    MemoryFormat format;
  };
  const Layer layers[] = {{{3, 4, 9, 12}, {6, 4, 3, 3}, {3, 6, 9, 12}, MemoryFormat::contiguous},
                          {{2, 1, 12, 12}, {6, 1, 5, 5}, {2, 6, 10, 10}, MemoryFormat::channels_last},
                          {{2, 6, 16, 14}, {16, 6, 5, 5}, {2, 16, 14, 12}, MemoryFormat::channels_last}};
  for (const Layer& layer : layers) {
    const Tensor x = image(layer.x).contiguous(layer.format).requires_grad_();
    const Tensor w = image(layer.w).contiguous(layer.format).requires_grad_();
    const Tensor y = conv2d_relu(x, w, image({layer.w[0]}), 1, 1);
    const Kernels kernels;
    y.backward(image(layer.y).contiguous(layer.format));
    CHECK_THAT(kernels.all(), contains("cuda/conv2d_backward_data/direct") && contains("cuda/conv2d_backward_weight"));
    if (has_room_for_direct_wgrad()) CHECK_THAT(kernels.all(), !contains("cuda/unary_backward"));
  }
}

TEST_CASE("depthwise: y, dx, dw and dbias are right in both layouts, and have the same bits again") {
  if (no_cuda_device()) return;
  const BackendGuard guard("cuda");
  const ForcedAlgorithm forced("depthwise");
  manual_seed(13);
  struct Layer {
    Shape x;
    int64_t multiplier;
    Pair kernel, stride, padding, dilation;
  };
  // The layers have whole vectors and odd channels, bands and planes side by side, rows that no strip divides, filters
  // that the kernels know and others, and more tiles than blocks.
  std::vector<Layer> layers = {{{5, 144, 32, 32}, 1, 3, 1, 1, 1},
                               {{5, 144, 32, 32}, 1, 3, 2, 1, 1},
                               {{3, 960, 4, 4}, 1, 3, 1, 1, 1},
                               {{3, 576, 2, 2}, 1, 3, 1, 1, 1},
                               {{2, 96, 56, 57}, 1, 7, 1, 3, 1},
                               {{2, 24, 28, 28}, 1, 5, 2, 2, 1},
                               {{2, 40, 15, 13}, 1, 5, 1, 0, 1},
                               {{2, 24, 17, 20}, 1, 3, 1, 2, 2},
                               {{2, 8, 17, 20}, 1, 3, 2, 2, 2},
                               {{2, 16, 12, 11}, 1, 7, 2, 3, 1},
                               {{2, 6, 13, 12}, 2, 3, 1, 1, 1},
                               {{2, 7, 14, 9}, 2, 3, 2, 1, 1},
                               {{2, 16, 9, 10}, 3, 5, 1, 2, 1},
                               {{1, 32, 200, 300}, 1, 3, 1, 1, 1},
                               {{70, 32, 9, 8}, 1, 3, 1, 1, 1},
                               {{2, 8, 21, 20}, 1, 4, 3, 2, 1},
                               {{2, 16, 9, 30}, 1, {3, 7}, {1, 2}, {0, 5}, 1},
                               {{2, 16, 30, 9}, 1, {5, 3}, {3, 1}, {2, 1}, {2, 1}},
                               {{2, 8, 5, 6}, 1, 1, 2, 0, 1}};
  for (int64_t channels = 3; channels <= 39; channels += 4)
    layers.push_back({{2, channels, 9, 11}, 1, 3, 1 + channels % 3 % 2, 1, 1});
  for (const DType dtype : {kFloat, kHalf, kBFloat16})
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
      for (const Layer& layer : layers) {
        const int64_t C = layer.x[1], K = C * layer.multiplier;
        INFO(layer.x << " to " << K << ", " << layer.kernel.h << "x" << layer.kernel.w << ", stride " << layer.stride.h
                     << ", " << layer.stride.w << (format == MemoryFormat::contiguous ? " nchw" : " nhwc"));
        const Tensor x = image(layer.x, dtype).contiguous(format), bias = image({K}, dtype);
        const Tensor w = image({K, 1, layer.kernel.h, layer.kernel.w}, dtype) * 0.25;
        Tensor dy;
        const auto train = [&](DType type) {
          const auto leaf = [&](const Tensor& from) { return from.detach().to(type).requires_grad_(); };
          const Tensor in = leaf(x), weight = leaf(w), shift = leaf(bias);
          const Tensor y = conv2d(in, weight, shift, layer.stride, layer.padding, layer.dilation, C);
          if (!dy.defined()) dy = (image(y.sizes(), dtype) * 0.0625).contiguous(format);
          y.backward(dy.to(type));
          return TensorList{y.detach(), in.grad(), weight.grad(), shift.grad()};
        };
        const TensorList reference = train(kDouble);
        const Kernels kernels;
        const TensorList made = train(dtype), again = train(dtype);
        CHECK_THAT(kernels.all(), contains("cuda/conv2d_bias_relu/depthwise") &&
                                      contains("cuda/conv2d_backward_data/depthwise") &&
                                      contains("cuda/conv2d_backward_weight/depthwise"));
        for (size_t i = 0; i < made.size(); ++i) {
          INFO("result " << i);
          CHECK(error(made[i], reference[i]) <= tolerance_of(dtype));
          CHECK(again[i].equal(made[i]));
        }
      }
}

TEST_CASE("depthwise: the gradient of weights takes no infinity from pixels that a tap does not read") {
  if (no_cuda_device()) return;
  const BackendGuard guard("cuda");
  const ForcedAlgorithm forced("depthwise");
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Tensor x = zeros({2, 8, 6, 7});
    x.select(3, 6).fill_(INFINITY);  // the first tap of a row does not read the last column
    const Tensor images = x.to(cuda_device(), kBFloat16).contiguous(format);
    const Tensor w = ones({8, 1, 3, 3}).to(cuda_device(), kBFloat16).requires_grad_();
    const Tensor y = conv2d(images, w, {}, 1, 0, 1, 8);
    y.backward(ones_like(y));
    CHECK_FALSE(w.grad().select(3, 0).isinf().any().item<bool>());
    CHECK_FALSE(w.grad().isnan().any().item<bool>());
    CHECK(w.grad().select(3, 2).isinf().all().item<bool>());
  }
}

TEST_CASE("the gradient of weights reads a masked gradient at an address that its tiles do not allow") {
  if (no_cuda_device()) return;
  const ForcedAlgorithm forced("wgmma_im2col");
  manual_seed(7);
  const auto last = [](const Shape& shape) { return image(shape, kBFloat16).contiguous(MemoryFormat::channels_last); };
  const Tensor x = last({8, 64, 10, 10}), w = last({64, 64, 1, 1}), dy = last({8, 64, 10, 10}), y = relu(dy + x);
  const Tensor memory = empty({dy.numel() + 1}, x.options());
  const auto gradient = [&](bool composite, MutableView masked) {
    const Tensor dw = zeros_like(w);
    const Conv2dBackwardArgs args = {
        .dy = dy.array(), .x = x.array(), .w = w.array(), .y = y.array(), .dw = dw.array(), .masked = masked};
    if (composite) backend("cuda").Backend::conv2d_bias_relu_backward(args);
    else backend("cuda").conv2d_bias_relu_backward(args);
    return dw;
  };
  MutableView masked = dy.array();
  masked.data = memory.slice(0, 1).array().data();
  CHECK(error(gradient(false, masked), gradient(true, {})) <= tolerance_of(kBFloat16));
}
