// A ladder of kernels for the 3x3 convolution with bias and ReLU on the CPU: five kernels (conv2d_cpu/) for the forward
// pass, the gradient of the image, and the gradient of weights and bias. Checks each kernel against the first one and
// times it. For comparison, also times the library's backends "naive" (small layers only) and "openmp", and prints the
// limit of the machine: the time for the arithmetic or for reading the bytes of all operands once, whichever is longer.
//
//   conv2d_cpu --layers 4x32 --threads 2 --json ladder.jsonl
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/ladders/conv2d_cpu/rungs.h>
#include <gradus/benchmarks/ladders/cpu/roofline.h>
#include <gradus/core/ops/ops.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;
using ladders::ConvSize, ladders::Fprop, ladders::Dgrad, ladders::Wgrad;

struct Layer {
  const char* name;
  ConvSize size;
};
constexpr Layer kLayers[] = {{"8x1x28 -> 1", {8, 28, 28, 1, 1}},       {"8x32x28 -> 32", {8, 28, 28, 32, 32}},
                             {"4x3x96 -> 32", {4, 96, 96, 3, 32}},     {"4x32x48 -> 64", {4, 48, 48, 32, 64}},
                             {"4x64x24 -> 128", {4, 24, 24, 64, 128}}, {"2x5x7 -> 3", {2, 7, 7, 5, 3}}};

constexpr Conv2dGeometry kGeometry{{1, 1}, {1, 1}, {1, 1}, 1};  // stride, padding, dilation, groups
constexpr const char* kPasses[] = {"fprop", "dgrad", "wgrad"};

/// Operands and results of all passes. All gradients use the y of the first rung, so that the mask of the ReLU is the
/// same.
struct Arrays {
  ConvSize size;
  Array x, w, bias, dy, mask, y, dx, dw, dbias, workspace;
  std::vector<Array> results(int pass) const {
    return pass == 0 ? std::vector{y} : pass == 1 ? std::vector{dx} : std::vector{dw, dbias};
  }
};
using Run = std::function<void(const Arrays&)>;

struct Rung {
  const char* name;
  MemoryFormat format;  // memory format of images
  bool threaded;
  Run passes[3];                                    // empty if the rung does not have this pass
  int64_t (*workspace)(const ConvSize&) = nullptr;  // size in floats; null if the rung needs none, or is the library
  bool small_only = false;
};

float* data(const Array& array) { return array.data<float>(); }
Run run(void (*fprop)(const Fprop&)) {
  return [fprop](const Arrays& a) {
    fprop({a.size, data(a.x), data(a.w), data(a.bias), data(a.y), data(a.workspace)});
  };
}
Run run(void (*dgrad)(const Dgrad&)) {
  return [dgrad](const Arrays& a) {
    dgrad({a.size, data(a.dy), data(a.mask), data(a.w), data(a.dx), data(a.workspace)});
  };
}
Run run(void (*wgrad)(const Wgrad&)) {
  return [wgrad](const Arrays& a) {
    wgrad({a.size, data(a.dy), data(a.mask), data(a.x), data(a.dw), data(a.dbias), data(a.workspace)});
  };
}

Rung library(const char* name, MemoryFormat format, bool threaded, bool small_only) {
  Backend& on = backend(name);
  const auto backward = [&on](const Arrays& a, MutableView dx, MutableView dw, MutableView dbias) {
    on.conv2d_bias_relu_backward(
        {.dy = a.dy, .x = a.x, .w = a.w, .y = a.mask, .geometry = kGeometry, .dx = dx, .dw = dw, .dbias = dbias});
  };
  return {name,
          format,
          threaded,
          {[&on](const Arrays& a) {
             on.conv2d_bias_relu({.x = a.x, .w = a.w, .bias = a.bias, .relu = true, .geometry = kGeometry, .y = a.y});
           },
           [backward](const Arrays& a) { backward(a, a.dx, {}, {}); },
           [backward](const Arrays& a) { backward(a, {}, a.dw, a.dbias); }},
          nullptr,
          small_only};
}

std::vector<Rung> ladder() {
  using namespace ladders;
  constexpr MemoryFormat nchw = MemoryFormat::contiguous, nhwc = MemoryFormat::channels_last;
  return {
      {"1 loops", nchw, false, {run(loops::fprop), run(loops::dgrad), run(loops::wgrad)}},
      {"2 im2col", nchw, false, {run(im2col::fprop), run(im2col::dgrad), run(im2col::wgrad)}, im2col::workspace},
      {"3 direct", nchw, false, {run(direct::fprop), {}, {}}, direct::workspace},
      {"4 packed", nhwc, false, {run(packed::fprop), run(packed::dgrad), run(packed::wgrad)}, packed::workspace},
      {"5 threads", nhwc, true, {run(threads::fprop), run(threads::dgrad), run(threads::wgrad)}, threads::workspace},
      library("naive", nchw, /*threaded=*/false, /*small_only=*/true),
      library("openmp", nchw, /*threaded=*/true, /*small_only=*/false),
      library("openmp", nhwc, /*threaded=*/true, /*small_only=*/false)};
}

/// Throws an error unless two results agree. Their elements are sums of `terms` products of numbers of size 1: such a
/// sum has the size sqrt(terms), and rounding changes it by a few ulps of this size. A sum without one of its products
/// would differ by far more.
void check(const Array& result, const Array& expected, double terms, const std::string& what) {
  const Array got = ops::contiguous(result);
  for (int64_t i = 0; i < got.numel(); ++i)
    if (!(std::abs(data(got)[i] - data(expected)[i]) <= 1e-6 * terms))
      throw ValueError(what + " is wrong: element " + std::to_string(i) + " is " + std::to_string(data(got)[i]) +
                       ", not " + std::to_string(data(expected)[i]));
}

void check_bits(const Array& result, const Array& expected, const std::string& what) {
  if (std::memcmp(result.data(), expected.data(), result.nbytes()) != 0)
    throw ValueError(what + " depends on the number of threads");
}

/// Returns the greater of two times: for the operations of the taps within the image at `peak` operations per second,
/// and for the bytes of all operands (for gradients also y, for the mask) at `bandwidth`.
double limit_us(const ConvSize& size, int pass, double peak, double bandwidth) {
  const auto [N, H, W, C, K] = size;
  const auto operations = static_cast<double>(2 * N * (3 * H - 2) * (3 * W - 2) * C * K);
  const auto floats = static_cast<double>(N * H * W * (C + (pass == 0 ? 1 : 2) * K) + 9 * C * K);
  return 1e6 * std::max(operations / peak, 4 * floats / bandwidth);
}

Arrays random_arrays(const ConvSize& size) {
  const auto [N, H, W, C, K] = size;
  const auto random = [](const Shape& shape) { return randn(shape).array(); };
  Arrays a;
  a.size = size;
  a.x = random({N, C, H, W}), a.bias = random({K}), a.dy = random({N, K, H, W});
  a.w = (randn({K, C, 3, 3}) / std::sqrt(9.0 * static_cast<double>(C))).array();
  return a;
}

/// Returns the same operands with images in `format`, and memory for results.
Arrays with_format(Arrays a, MemoryFormat format) {
  for (Array* image : {&a.x, &a.dy, &a.mask})
    if (image->defined()) *image = ops::contiguous(*image, format);
  a.y = Array::empty_like(a.dy), a.dx = Array::empty_like(a.x);
  a.dw = Array::empty_like(a.w), a.dbias = Array::empty_like(a.bias);
  return a;
}

void climb(const Layer& layer, double seconds, const std::map<int, double>& peaks, const benchmarks::Program& program) {
  const auto [N, H, W, C, K] = layer.size;
  const double terms[] = {9.0 * static_cast<double>(C), 9.0 * static_cast<double>(K), static_cast<double>(N * H * W)};
  Arrays operands = random_arrays(layer.size), expected = with_format(operands, MemoryFormat::contiguous);
  const std::vector<Rung> rungs = ladder();
  rungs[0].passes[0](expected);
  operands.mask = expected.mask = expected.y;
  rungs[0].passes[1](expected), rungs[0].passes[2](expected);
  std::map<int, double> bandwidths;
  for (const auto& [threads, peak] : peaks)
    bandwidths[threads] = ladders::read_bandwidth(threads, 4 * (N * H * W * (C + 2 * K) + 9 * C * K));

  for (const Rung& rung : rungs) {
    if (rung.small_only && N * H * W * C * K >= 10'000'000) continue;
    const char* const format = rung.format == MemoryFormat::contiguous ? "nchw" : "nhwc";
    Arrays a = with_format(operands, rung.format);
    std::vector<Array> of_one_thread[3];
    for (const auto& [threads, peak] : peaks) {
      if (threads > 1 && !rung.threaded) continue;
      set_num_threads(threads);
      const int64_t workspace = rung.workspace ? rung.workspace(layer.size) : 0;
      a.workspace = ops::full({workspace}, NAN, DType::f32);
      benchmarks::Fields fields = {
          {"layer", layer.name}, {"rung", rung.name}, {"format", format}, {"threads", threads}};
      if (workspace > 0) fields.emplace_back("workspace_bytes", 4 * workspace);
      std::printf("%-16s %-9s %s %3d", layer.name, rung.name, format, threads);
      for (int pass = 0; pass < 3; ++pass) {
        if (!rung.passes[pass]) continue;
        const std::string what = std::string(layer.name) + ", " + rung.name + ", " + kPasses[pass];
        const std::vector<Array> results = a.results(pass), wanted = expected.results(pass);
        for (const Array& result : results) ops::fill(result, NAN);
        rung.passes[pass](a);
        for (size_t i = 0; i < results.size(); ++i) {
          check(results[i], wanted[i], terms[pass], what);
          if (threads == 1) of_one_thread[pass].push_back(ops::clone(results[i]));
          else check_bits(results[i], of_one_thread[pass][i], what);
        }
        const double us = 1e6 * benchmarks::best_seconds(seconds, [&] { rung.passes[pass](a); });
        const double limit = limit_us(layer.size, pass, peak, bandwidths[threads]);
        std::printf("  %s %9.1f us %5.1f %%", kPasses[pass], us, 100 * limit / us);
        std::fflush(stdout);
        fields.emplace_back(std::string(kPasses[pass]) + "_us", us);
        fields.emplace_back(std::string(kPasses[pass]) + "_limit_us", limit);
      }
      std::printf("\n");
      program.record(fields);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0.1;
  std::string only;
  benchmarks::Program program("conv2d_cpu",
                              "Times five kernels for a convolution with bias and ReLU and its gradients");
  program.option("--layers", only, "beginning of the names of the layers to run");
  program.option("--seconds", seconds, "time per kernel");
  program.json_option();
  return program.run(argc, argv, [&] {
    std::map<int, double> peaks;  // peak operations per second of one thread, and of all threads
    for (int threads : {1, num_threads()}) peaks[threads] = ladders::peak_flops(threads);
    for (const auto& [threads, peak] : peaks) std::printf("%d threads: peak %.1f GFLOP/s\n", threads, peak / 1e9);
    std::printf("Microseconds, and the limit of that many threads as a share of them\n");
    for (const Layer& layer : kLayers)
      if (std::string_view(layer.name).substr(0, only.size()) == only) climb(layer, seconds, peaks, program);
  });
}
