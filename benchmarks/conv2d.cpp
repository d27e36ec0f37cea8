// Times the three kernels of convolution layers as in a training step: forward with bias and ReLU, and the gradients of
// the image and of the weights with the mask of the ReLU. GFLOP/s also count multiplications with the padding.
//
//   conv2d --threads 2 --json results.json
//   conv2d --backend cudnn --dtype bfloat16
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/core/ops/ops.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;

struct Layer {
  const char* name;
  int64_t N, C, size, K, kernel, stride, padding;
  int64_t out() const { return (size + 2 * padding - kernel) / stride + 1; }
};

constexpr Layer kLayers[] = {
    {"lenet 1", 64, 1, 28, 6, 5, 1, 2},
    {"lenet 2", 64, 6, 14, 16, 5, 1, 0},
    {"conv_c32 first", 128, 1, 28, 32, 3, 1, 1},
    {"conv_c32", 128, 32, 28, 32, 3, 1, 1},
    {"stl10_net 1", 32, 3, 96, 32, 3, 1, 1},
    {"stl10_net 2", 32, 32, 48, 64, 3, 1, 1},
    {"stl10_net 3", 32, 64, 24, 128, 3, 1, 1},
    {"resnet18 64", 32, 64, 32, 64, 3, 1, 1},
    {"resnet18 64-128 /2", 32, 64, 32, 128, 3, 2, 1},
    {"resnet18 128", 32, 128, 16, 128, 3, 1, 1},
    {"resnet18 256", 32, 256, 8, 256, 3, 1, 1},
    {"resnet18 512", 32, 512, 4, 512, 3, 1, 1},
    {"resnet18 1x1 /2", 32, 64, 32, 128, 1, 2, 0},
    {"1x1", 32, 256, 16, 256, 1, 1, 0},
};

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0.3;
  std::string backend_name = "openmp", type = "float32", only;
  bool tf32 = false, timed = false, small = false;
  benchmarks::Program program("conv2d", "Times convolution kernels");
  program.option("--backend", backend_name, "naive, openmp, cuda, cudnn");
  program.option("--dtype", type, "type of all operands", {"float32", "float16", "bfloat16"});
  program.flag("--tf32", tf32, "cudnn: let float32 use TF32");
  program.flag("--timed", timed, "cudnn: choose engines by timing them");
  program.flag("--small", small, "cudnn: let cuDNN also run small layers");
  program.option("--layers", only, "beginning of the names of the layers to run");
  program.option("--seconds", seconds, "time per kernel");
  program.json_option();
  return program.run(argc, argv, [&] {
    const DType dtype = type == "float16" ? DType::f16 : type == "bfloat16" ? DType::bf16 : DType::f32;
    cudnn::set_allow_tf32(tf32);
    cudnn::set_benchmark(timed);
    cudnn::set_small_convolutions(small);
    Backend& on = backend(backend_name);
    const Device device = settled(on.device_type());
    std::printf("%-19s %-13s %22s %22s %22s\n", "ms (GFLOP/s)", "", "forward", "backward_data", "backward_weight");
    for (const Layer& layer : kLayers) {
      if (std::string_view(layer.name).substr(0, only.size()) != only) continue;
      for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        const auto random = [&](const Shape& shape) {
          return ops::contiguous(randn(shape).to(device, dtype).array(),
                                 shape.size() == 4 ? format : MemoryFormat::contiguous);
        };
        // On the GPU, weights have the memory format of the images.
        const MemoryFormat weight_format = device.is_cpu() ? MemoryFormat::contiguous : format;
        const Array x = random({layer.N, layer.C, layer.size, layer.size}), dx = Array::empty_like(x);
        const Array w = ops::contiguous(random({layer.K, layer.C, layer.kernel, layer.kernel}), weight_format);
        const Array dw = Array::empty_like(w), bias = random({layer.K}), dbias = Array::empty_like(bias);
        const Array y = random({layer.N, layer.K, layer.out(), layer.out()}), dy = random(y.shape());
        const Conv2dGeometry geometry{{layer.stride, layer.stride}, {layer.padding, layer.padding}, {1, 1}, 1};
        const Conv2dArgs forward{.x = x, .w = w, .bias = bias, .relu = true, .geometry = geometry, .y = y};
        const Conv2dBackwardArgs data{.dy = dy, .x = x, .w = w, .y = y, .geometry = geometry, .dx = dx};
        const Conv2dBackwardArgs weight{
            .dy = dy, .x = x, .w = w, .y = y, .geometry = geometry, .dw = dw, .dbias = dbias};
        const double ms[3] = {
            benchmarks::time_kernel_ms(device, seconds, [&] { on.conv2d_bias_relu(forward); }),
            benchmarks::time_kernel_ms(device, seconds, [&] { on.conv2d_bias_relu_backward(data); }),
            benchmarks::time_kernel_ms(device, seconds, [&] { on.conv2d_bias_relu_backward(weight); })};
        const double operations = 2.0 * static_cast<double>(y.numel() * layer.C * layer.kernel * layer.kernel);
        const char* layout = format == MemoryFormat::contiguous ? "contiguous" : "channels_last";
        std::printf("%-19s %-13s", layer.name, layout);
        for (double each : ms) std::printf(" %12.3f (%7.1f)", each, operations / each / 1e6);
        std::printf("\n");
        std::fflush(stdout);
        program.record({{"layer", layer.name},
                        {"format", layout},
                        {"threads", num_threads()},
                        {"backend", backend_name},
                        {"dtype", type},
                        {"tf32", tf32},
                        {"timed", timed},
                        {"gflop", operations / 1e9},
                        {"forward_ms", ms[0]},
                        {"backward_data_ms", ms[1]},
                        {"backward_weight_ms", ms[2]}});
      }
    }
  });
}
