// The 3x3 convolution with bias and ReLU as a ladder on CUDA: seven kernels (conv2d_cuda/), each checked against the
// first before it is timed, beside the library's backends "cuda" and "cudnn" and the limit of the machine: arithmetic
// or, where they take longer, the bytes of x and y. Images are channels-last.
//
//   conv2d_cuda --layers 32x48 --json ladder.jsonl
#include <cmath>
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/core/cudnn.h>
#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;
using ladders::ConvSize, ladders::Fprop;

struct Layer {
  const char* name;
  ConvSize size;
};
constexpr Layer kLayers[] = {{"128x1x28 -> 1", {128, 28, 28, 1, 1}},        {"128x32x28 -> 32", {128, 28, 28, 32, 32}},
                             {"32x3x96 -> 32", {32, 96, 96, 3, 32}},        {"32x32x48 -> 64", {32, 48, 48, 32, 64}},
                             {"32x64x24 -> 128", {32, 24, 24, 64, 128}},    {"128x64x32 -> 64", {128, 32, 32, 64, 64}},
                             {"512x128x16 -> 128", {512, 16, 16, 128, 128}}};

template <class T>
struct Rung {
  const char* name;
  void (*run)(const Fprop<T>&, Device);
  bool (*takes)(const ConvSize&);
};
bool all(const ConvSize&) { return true; }
const Rung<float> kFloatRungs[] = {{"1 naive", ladders::naive, all},
                                   {"2 register_tile", ladders::register_tile, all},
                                   {"3 shared_tile", ladders::shared_tile, all},
                                   {"4 implicit_gemm", ladders::implicit_gemm, [](auto& s) { return s.C % 16 == 0; }}};
const Rung<BFloat16> kHalfRungs[] = {
    {"1 naive", ladders::naive, all},
    {"5 mma_sync", ladders::mma_sync, [](auto& s) { return s.C % 32 == 0; }},
    {"6 cp_async", ladders::cp_async, [](auto& s) { return s.C % 32 == 0; }},
#ifdef GRADUS_LADDER_HAS_WGMMA
    {"7 wgmma", ladders::wgmma, [](auto& s) { return (s.C == 32 || s.C == 64) && s.K % 32 == 0; }},
#endif
};

// What one H200 can do (docs/gpu_kernels.md), in operations and bytes a second.
constexpr double kFloatRate = 51e12, kHalfRate = 700e12, kBandwidth = 4.2e12;

double limit_us(const ConvSize& size, double rate, double element) {
  const double pixels = static_cast<double>(size.N) * size.H * size.W;
  return 1e6 * std::max(18 * pixels * size.C * size.K / rate, pixels * (size.C + size.K) * element / kBandwidth);
}

// The largest difference, as a share of the allowed one: half an ulp of bfloat16 twice, or what sums of 9 C products of
// another order may differ by in float32.
double error_of(const Array& y, const Array& expected, bool half) {
  const auto on_cpu = [](const Array& a) { return ops::to_device(ops::cast(a, kFloat), Device("cpu")); };
  const Array got = on_cpu(y), wanted = on_cpu(expected);
  double worst = 0;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double a = got.data<float>()[i], b = wanted.data<float>()[i];
    const double share = std::abs(a - b) / (half ? 0.01 * (std::abs(b) + 0.1) : 1e-4);
    if (!(share <= worst)) worst = std::isnan(share) ? INFINITY : share;
  }
  return worst;
}

template <class T, size_t kRungs>
void climb(const Layer& layer, const Rung<T> (&rungs)[kRungs], DType dtype, double seconds,
           const benchmarks::Program& program) {
  const ConvSize& size = layer.size;
  const Device device = settled(Device("cuda"));
  const bool half = dtype == DType::bf16;
  const auto random = [&](const Shape& shape, double scale) {
    const Array values = (randn(shape) * scale).to(device, dtype).array();
    return shape.size() == 4 ? ops::contiguous(values, MemoryFormat::channels_last) : values;
  };
  const Array x = random({size.N, size.C, size.H, size.W}, 1), bias = random({size.K}, 1);
  const Array w = random({size.K, size.C, 3, 3}, 1 / std::sqrt(9.0 * size.C));
  const Array y = random({size.N, size.K, size.H, size.W}, 1), expected = Array::empty_like(y);
  const auto conv = [&](const Array& to) {
    return Fprop<T>{size, x.data<T>(), w.data<T>(), bias.data<T>(), to.data<T>()};
  };
  const double limit = limit_us(size, half ? kHalfRate : kFloatRate, half ? 2 : 4);
  const auto report = [&](const char* name, auto&& run) {
    const double us = 1000 * benchmarks::time_kernel_ms(device, seconds, run);
    std::printf("%-18s %-9s %-16s %10.2f us  %6.1f %% of the limit, %.2f us\n", layer.name,
                half ? "bfloat16" : "float32", name, us, 100 * limit / us, limit);
    std::fflush(stdout);
    program.record({{"layer", layer.name},
                    {"dtype", half ? "bfloat16" : "float32"},
                    {"rung", name},
                    {"us", us},
                    {"limit_us", limit}});
  };
  rungs[0].run(conv(expected), device);
  for (const Rung<T>& rung : rungs) {
    if (!rung.takes(size)) continue;
    ops::fill(y, -1);
    rung.run(conv(y), device);
    const double error = error_of(y, expected, half);
    if (!(error <= 1))
      throw ValueError(std::string(rung.name) + " is wrong by " + std::to_string(error) + " times what is allowed, " +
                       layer.name);
    report(rung.name, [&] { rung.run(conv(y), device); });
  }
  const Conv2dGeometry geometry{{1, 1}, {1, 1}, {1, 1}, 1};
  for (const char* name : {"cuda", "cudnn"}) {
    if (!has_backend(name)) continue;
    Backend& on = backend(name);
    report(name,
           [&] { on.conv2d_bias_relu({.x = x, .w = w, .bias = bias, .relu = true, .geometry = geometry, .y = y}); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0.1;
  std::string only;
  benchmarks::Program program("conv2d_cuda", "Times seven kernels for a convolution with bias and ReLU");
  program.option("--layers", only, "those whose names begin so");
  program.option("--seconds", seconds, "per kernel");
  program.json_option();
  return program.run(argc, argv, [&] {
    for (const Layer& layer : kLayers) {
      if (std::string_view(layer.name).substr(0, only.size()) != only) continue;
      climb(layer, kFloatRungs, DType::f32, seconds, program);
      climb(layer, kHalfRungs, DType::bf16, seconds, program);
    }
  });
}
