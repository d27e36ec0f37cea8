// Times operators other than convolutions with the shapes that they have in nets: the operator alone and its gradient
// alone, in both types and memory formats. net_operators.py does the same with PyTorch. On cuda, the operators are
// captured in a CUDA graph, so that the time of launching kernels does not count, except in "eager" rows. Prints a JSON
// object with the milliseconds of each row.
//
//   net_operators --device cuda --rows batch_norm
#include <algorithm>
#include <cstdio>
#include <functional>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;

struct Settings {
  std::string device = "cpu", backend;
  double seconds = 0.1;
  std::vector<std::string> rows;  // measures only rows whose name contains one of these; empty: all rows
};

class Rows {
 public:
  explicit Rows(const Settings& settings) : settings_(settings), device_(settings.device) {}

  Tensor random(const Shape& shape, DType dtype = DType::f32, MemoryFormat format = MemoryFormat::contiguous) const {
    return randn(shape, TensorOptions(device_)).to(dtype).contiguous(format);
  }
  Tensor random_integers(int64_t high, const Shape& shape) const {
    return randint(high, shape, TensorOptions(DType::i64).device(device_));
  }

  /// Measures an operator, "NAME", and its gradient, "NAME backward", if an input requires gradients.
  void pair(const std::string& name, const TensorList& in, const std::function<Tensor(const TensorList&)>& f) {
    plain(name, [&] { f(in); });
    if (!wanted(name + " backward")) return;
    TensorList leaves;
    for (const Tensor& input : in) leaves.push_back(input.clone().requires_grad_());
    const Tensor y = f(leaves), dy = ones_like(y);
    measure(name + " backward", [&] { autograd::grad({y}, leaves, {dy}, true); });
  }
  void plain(const std::string& name, const std::function<void()>& work) {
    const NoGradGuard no_grad;
    if (wanted(name)) measure(name, work);
  }

  const benchmarks::Fields& results() const { return results_; }

 private:
  bool wanted(const std::string& name) const {
    const auto contained = [&](const std::string& part) { return name.find(part) != std::string::npos; };
    return settings_.rows.empty() || std::any_of(settings_.rows.begin(), settings_.rows.end(), contained);
  }
  void measure(const std::string& name, const std::function<void()>& work) {
    const bool eager = name.rfind("eager ", 0) == 0;
    results_.emplace_back(name, eager ? benchmarks::time_ms(device_, settings_.seconds, work)
                                      : benchmarks::time_kernel_ms(device_, settings_.seconds, work));
  }

  const Settings& settings_;
  Device device_;
  benchmarks::Fields results_;
};

std::string text(const Shape& shape) {
  std::string result;
  for (const int64_t size : shape) result += (result.empty() ? "" : "x") + std::to_string(size);
  return result;
}

// Measures operators on images of a type and memory format. `suffix` is appended to the names of the rows.
void measure_images(Rows& rows, DType dtype, MemoryFormat format, const std::string& suffix) {
  for (const Shape& shape : {Shape{128, 64, 32, 32}, {128, 128, 16, 16}, {128, 512, 4, 4}}) {
    const Tensor mean = rows.random({shape[1]}), variance = rows.random({shape[1]}).abs();
    rows.pair("batch_norm " + text(shape) + suffix,
              {rows.random(shape, dtype, format), rows.random({shape[1]}), rows.random({shape[1]})},
              [&](const TensorList& in) { return batch_norm(in[0], mean, variance, in[1], in[2], true); });
  }
  const Tensor wide = rows.random({128, 65, 32, 32}, dtype, format), mean = rows.random({64}), variance = mean.abs();
  rows.pair(
      "batch_norm of a slice 128x64x32x32" + suffix, {wide, rows.random({64}), rows.random({64})},
      [&](const TensorList& in) { return batch_norm(in[0].narrow(1, 0, 64), mean, variance, in[1], in[2], true); });
  for (const Shape& shape : {Shape{1024, 6, 28, 28}, {128, 32, 96, 96}, {128, 64, 48, 48}})
    rows.pair("max_pool 2x2 " + text(shape) + suffix, {rows.random(shape, dtype, format)},
              [](const TensorList& in) { return max_pool2d(in[0], 2); });
  rows.pair("max_pool 3x3/2 32x64x112x112" + suffix, {rows.random({32, 64, 112, 112}, dtype, format)},
            [](const TensorList& in) { return max_pool2d(in[0], 3, 2, 1); });
  rows.pair("avg_pool 2x2 128x64x32x32" + suffix, {rows.random({128, 64, 32, 32}, dtype, format)},
            [](const TensorList& in) { return avg_pool2d(in[0], 2); });
  rows.pair("avg_pool global 128x512x4x4" + suffix, {rows.random({128, 512, 4, 4}, dtype, format)},
            [](const TensorList& in) { return adaptive_avg_pool2d(in[0], 1); });
  const Tensor x = rows.random({128, 64, 32, 32}, dtype, format), y = rows.random({128, 64, 32, 32}, dtype, format);
  rows.pair("relu 128x64x32x32" + suffix, {x}, [](const TensorList& in) { return relu(in[0]); });
  rows.plain("add 128x64x32x32" + suffix, [&] { x + y; });
  rows.plain("sum of channels 128x64x32x32" + suffix, [&] { x.sum({0, 2, 3}); });
}

void measure_matrices(Rows& rows, DType dtype, const std::string& suffix) {
  for (const Shape& shape : {Shape{4096, 64}, {4096, 8192}})
    rows.pair("softmax " + text(shape) + suffix, {rows.random(shape, dtype)},
              [](const TensorList& in) { return in[0].softmax(1); });
  for (const int64_t classes : {10, 1000, 50257}) {
    const Shape shape{1024, classes};
    const Tensor labels = rows.random_integers(classes, {1024});
    rows.pair("log_softmax " + text(shape) + suffix, {rows.random(shape, dtype)},
              [](const TensorList& in) { return in[0].log_softmax(1); });
    rows.pair("cross_entropy " + text(shape) + suffix, {rows.random(shape, dtype)},
              [&](const TensorList& in) { return cross_entropy(in[0], labels); });
  }
  for (const Shape& shape : {Shape{1024, 128}, {8192, 1024}})
    rows.pair("layer_norm " + text(shape) + suffix,
              {rows.random(shape, dtype), rows.random({shape[1]}, dtype), rows.random({shape[1]}, dtype)},
              [&](const TensorList& in) { return layer_norm(in[0], {shape[1]}, in[1], in[2]); });
  rows.pair("gelu 1024x2048" + suffix, {rows.random({1024, 2048}, dtype)},
            [](const TensorList& in) { return gelu(in[0]); });
  const Tensor x = rows.random({8192, 1024}, dtype), y = rows.random({8192, 1024}, dtype);
  rows.plain("mul 8192x1024" + suffix, [&] { x* y; });
  rows.plain("dropout 8192x1024" + suffix, [&] { dropout(x, 0.5, true); });
  rows.plain("sum 8192x1024" + suffix, [&] { x.sum(); });
  rows.plain("sum of rows 8192x1024" + suffix, [&] { x.sum({1}); });
  rows.plain("sum of columns 8192x1024" + suffix, [&] { x.sum({0}); });
  rows.plain("argmax of rows 8192x1024" + suffix, [&] { x.argmax(1); });
}

void measure_sorting(Rows& rows) {
  const Tensor million = rows.random({1 << 20}), square = rows.random({1024, 1024});
  const Tensor logits = rows.random({128, 1000}), words = rows.random({8, 50257});
  rows.plain("eager sort 1M", [&] { million.sort(); });
  rows.plain("eager sort 1024x1024", [&] { square.sort(1); });
  rows.plain("eager topk 5 of 128x1000", [&] { logits.topk(5); });
  rows.plain("eager topk 50 of 8x50257", [&] { words.topk(50); });
  rows.plain("eager topk 100 of 1M", [&] { million.topk(100); });
  rows.plain("eager cumsum 1024x1024", [&] { square.cumsum(1); });
  const Tensor tokens = rows.random_integers(10000, {8192});
  rows.pair("eager embedding 8192 of 10000x128", {rows.random({10000, 128})},
            [&](const TensorList& in) { return embedding(in[0], tokens); });
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  benchmarks::Program program("net_operators", "Times operators at the shapes that nets give them");
  program.option("--device", settings.device, "cpu or cuda");
  program.option("--backend", settings.backend, "naive, openmp, cuda, cudnn; default: the device's best");
  program.option("--seconds", settings.seconds, "time per row");
  program.option("--rows", settings.rows, "names that rows must contain; default: all");
  return program.run(argc, argv, [&] {
    if (!settings.backend.empty()) set_backend(settings.backend);
    Rows rows(settings);
    for (const auto& [dtype, name] : {std::pair{DType::f32, ""}, {DType::bf16, " bf16"}}) {
      measure_images(rows, dtype, MemoryFormat::contiguous, name);
      measure_images(rows, dtype, MemoryFormat::channels_last, name + std::string(" channels_last"));
      measure_matrices(rows, dtype, name);
    }
    measure_sorting(rows);
    std::printf("%s\n", benchmarks::to_json(rows.results()).c_str());
  });
}
