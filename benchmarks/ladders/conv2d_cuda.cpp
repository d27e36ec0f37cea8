// A ladder of seven CUDA kernels (conv2d_cuda/) for the 3x3 convolution with bias and ReLU, and kernels for its
// gradients. Checks each kernel against the first one and times it. For comparison, also times the library (backend
// "cudnn", which uses the library's own kernels if they are faster), the backend "cuda", and cuDNN alone, fused and not
// fused. The limit of the machine is the time for the arithmetic or for the bytes of x and y, whichever is longer.
// Images are channels-last. float32 is exact; with tf32, the library and cuDNN may round float32 to TF32.
//
//   conv2d_cuda --layers 32x32x48 --json ladder.jsonl
//   conv2d_cuda --channels 1,32 --pixels 28,56 --batch 16 --hosts       what E1 measures
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/benchmarks/ladders/cuda/ladder.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/cuda.h>

namespace {

using namespace gradus;
using namespace gradus::ladders;

constexpr ConvSize kLayers[] = {{128, 28, 28, 1, 1},    {128, 28, 28, 32, 32}, {32, 96, 96, 3, 32},
                                {32, 48, 48, 32, 64},   {32, 24, 24, 64, 128}, {128, 32, 32, 64, 64},
                                {512, 16, 16, 128, 128}};
const Conv2dGeometry kGeometry{{1, 1}, {1, 1}, {1, 1}, 1};

std::string text(const ConvSize& size) {
  return std::to_string(size.N) + "x" + std::to_string(size.C) + "x" + std::to_string(size.H) + " -> " +
         std::to_string(size.K);
}

/// Operands and results of the three passes.
struct Arrays {
  ConvSize size;
  Array x, w, bias, dy, y, dx, dw, flipped, partials;

  Arrays(const ConvSize& size, DType dtype) : size(size) {
    const auto images = [&](int64_t channels) {
      return random_array({size.N, channels, size.H, size.W}, dtype, 1, MemoryFormat::channels_last);
    };
    const auto filters = [&](int64_t count, int64_t channels) {
      return random_array({count, channels, 3, 3}, dtype, 1 / std::sqrt(9.0 * channels), MemoryFormat::channels_last);
    };
    const int64_t C = size.C, K = size.K;
    x = images(C), dx = images(C), y = images(K), dy = images(K);
    w = filters(K, C), dw = filters(K, C), flipped = filters(C, K), bias = random_array({K}, dtype);
    partials = random_array({kMostSplits, 9 * C * K});
  }
  Arrays on(Device device) const {
    Arrays copy = *this;
    for (Array Arrays::*member :
         {&Arrays::x, &Arrays::w, &Arrays::bias, &Arrays::dy, &Arrays::y, &Arrays::dx, &Arrays::dw})
      copy.*member = ops::to_device(this->*member, device);
    return copy;
  }
};

template <class T, size_t kRungs>
void add_fprop(std::vector<Rung>& rungs, const Arrays& a, const FpropRung<T> (&ladder)[kRungs]) {
  const Fprop<T> conv{a.size, a.x.data<T>(), a.w.data<T>(), a.bias.data<T>(), a.y.data<T>()};
  for (const FpropRung<T>& rung : ladder)
    if (rung.takes(a.size))
      rungs.push_back({rung.name, [conv, run = rung.run, device = a.x.device()] { run(conv, device); }});
}

template <class T>
void add_gradient(std::vector<Rung>& rungs, const Arrays& a, bool images) {
  const Device device = a.x.device();
  if (images) {
    const Dgrad<T> conv{a.size, a.dy.data<T>(), a.w.data<T>(), a.dx.data<T>(), a.flipped.data<T>()};
    rungs.push_back({"1 naive", [=] { dgrad_naive(conv, device); }});
    if (a.size.K % (sizeof(T) == 4 ? 16 : 32) == 0)
      rungs.push_back({"2 flipped", [=] { dgrad_flipped(conv, device); }});
  } else {
    const Wgrad<T> conv{a.size, a.dy.data<T>(), a.x.data<T>(), a.dw.data<T>(), a.partials.data<float>()};
    rungs.push_back({"1 naive", [=] { wgrad_naive(conv, device); }});
    rungs.push_back({"2 split_k", [=] { wgrad_split_k(conv, device); }});
  }
}

Array result_of(const std::string& pass, const Arrays& a) {
  return pass == "fprop" ? a.y : pass == "dgrad" ? a.dx : a.dw;
}

/// Returns a rung that calls a backend. If `alone`, the backend "cudnn" also uses cuDNN where it would normally use the
/// library's kernels.
Rung of_backend(const std::string& rung, const char* name, const std::string& pass, const Arrays& a, bool fused,
                bool alone) {
  Backend& on = backend(name);
  const auto run = [=, &on] {
    cudnn::set_small_convolutions(alone);
    if (pass == "dgrad") return on.conv2d_backward_data(a.dy, a.w, a.dx, kGeometry);
    if (pass == "wgrad") return on.conv2d_backward_weight(a.dy, a.x, a.dw, kGeometry);
    if (fused)
      return on.conv2d_bias_relu({.x = a.x, .w = a.w, .bias = a.bias, .relu = true, .geometry = kGeometry, .y = a.y});
    on.conv2d(a.x, a.w, a.y, kGeometry);
    on.binary(BinaryOp::add, a.y, a.bias.view({1, a.bias.numel(), 1, 1}).expand(a.y.shape()), a.y);
    on.unary(UnaryOp::relu, a.y, a.y, {});
  };
  return {rung, run, result_of(pass, a)};
}

/// Returns the rungs for a pass. For TF32, only the first rung, which computes exactly.
Ladder make(const Arrays& a, const std::string& pass, DType dtype, bool tf32) {
  const ConvSize& size = a.size;
  const double element = static_cast<double>(size_of(dtype)), pixels = static_cast<double>(size.N) * size.H * size.W;
  const double limit =
      limit_us(18 * pixels * size.C * size.K, element * (pixels * (size.C + size.K) + 9.0 * size.C * size.K),
               tf32                  ? kTf32Rate
               : dtype == DType::f32 ? kFloatRate
                                     : kHalfRate);
  Ladder ladder{"conv2d " + pass + (tf32 ? " tf32" : ""), text(size), result_of(pass, a), limit, {}};
  if (pass == "fprop" && dtype == DType::f32) add_fprop(ladder.rungs, a, kFloatRungs);
  else if (pass == "fprop") add_fprop(ladder.rungs, a, kHalfRungs);
  else if (dtype == DType::f32) add_gradient<float>(ladder.rungs, a, pass == "dgrad");
  else add_gradient<BFloat16>(ladder.rungs, a, pass == "dgrad");
  if (tf32) ladder.rungs.resize(1);
  return ladder;
}

/// Adds the backends, with which the rungs are compared.
void add_backends(Ladder& ladder, const Arrays& a, const std::string& pass, bool hosts) {
  const auto add = [&](const std::string& rung, const char* name, const Arrays& on, bool fused, bool alone) {
    if (has_backend(name)) ladder.rungs.push_back(of_backend(rung, name, pass, on, fused, alone));
  };
  add("library", "cudnn", a, true, false);
  for (const std::string name : {"cuda", "cudnn"}) {
    add(pass == "fprop" ? name + " fused" : name, name.c_str(), a, true, true);
    if (pass == "fprop") add(name + " unfused", name.c_str(), a, false, true);
  }
  if (!hosts || a.x.dtype() != DType::f32) return;
  const Arrays on_host = a.on(Device("cpu"));
  if (18.0 * a.x.numel() * a.size.K < 3e7) add("naive loops", "naive", on_host, true, false);  // small layers only
  add("openmp", "openmp", on_host, true, false);
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0.1;
  std::string only;
  std::vector<size_t> channels, pixels;
  std::vector<std::string> passes = {"fprop", "dgrad", "wgrad"}, dtypes = {"float32", "bfloat16"};
  const std::vector<std::string> all_passes = passes, all_dtypes = {"float32", "tf32", "bfloat16"};
  int batch = 16;
  bool hosts = false, small = false;
  benchmarks::Program program("conv2d_cuda", "Times kernels for a convolution with bias and ReLU and its gradients");
  program.option("--layers", only, "beginning of the names of the layers to run");
  program.option("--channels", channels,
                 "run a grid of sizes instead of layers; numbers of channels of images and results");
  program.option("--pixels", pixels, "heights and widths of the grid");
  program.option("--batch", batch, "number of images of the grid");
  program.option("--passes", passes, "passes to run", all_passes);
  program.option("--dtypes", dtypes, "types to run", all_dtypes);
  program.option("--seconds", seconds, "time per kernel; 0: kernels are checked but not timed");
  program.flag("--hosts", hosts, "also run the backends openmp and, for the smallest sizes, naive");
  program.flag("--small", small, "run one small shape, without the backends, for compute-sanitizer");
  program.json_option();
  return program.run(argc, argv, [&] {
    std::vector<ConvSize> sizes;
    for (const size_t c : channels)
      for (const size_t h : pixels)
        sizes.push_back({batch, static_cast<int>(h), static_cast<int>(h), static_cast<int>(c), static_cast<int>(c)});
    if (small) sizes = {{2, 9, 13, 32, 32}};
    else if (channels.empty())
      for (const ConvSize& size : kLayers)
        if (text(size).substr(0, only.size()) == only) sizes.push_back(size);
    std::vector<std::string> wrong;
    for (const ConvSize& size : sizes)
      for (const std::string& pass : passes)
        for (const std::string& dtype : dtypes) {
          const bool tf32 = dtype == "tf32";
          cudnn::set_allow_tf32(tf32), cuda::set_matmul_allow_tf32(tf32);
          const Arrays arrays(size, dtype == "bfloat16" ? DType::bf16 : DType::f32);
          Ladder ladder = make(arrays, pass, arrays.x.dtype(), tf32);
          if (!small) add_backends(ladder, arrays, pass, hosts);
          climb(ladder, seconds, program, wrong);
        }
    check_none(wrong);
  });
}
