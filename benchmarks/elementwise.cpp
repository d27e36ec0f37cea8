// Times element-wise functions, reductions, normalisation, pooling, resampling, depthwise convolution, sorting and
// indexing, each separately on float32 operands that exist before the measurement. elementwise.py does the same with
// PyTorch. Prints a JSON object with the milliseconds of each row.
//
//   elementwise --threads 1 --rows gelu,softmax
#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;

struct Row {
  std::string name;
  std::function<void()> work;
};

constexpr int64_t kMillion = 1 << 20;

// Adds a row for a function and, with " backward" after the name, a row for its gradient alone.
void add_pair(std::vector<Row>& rows, const std::string& name, const TensorList& inputs,
              std::function<Tensor(const TensorList&)> f) {
  rows.push_back({name, [=] {
                    const NoGradGuard no_grad;
                    f(inputs);
                  }});
  TensorList leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.clone().requires_grad_());
  const Tensor y = f(leaves), dy = randn_like(y);
  rows.push_back({name + " backward", [=] { autograd::grad({y}, leaves, {dy}, true); }});
}

std::vector<Row> make_rows() {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, std::function<void()> work) {
    rows.push_back({name, [work] {
                      const NoGradGuard no_grad;
                      work();
                    }});
  };
  const Tensor x = randn({kMillion}), y = randn({kMillion}), positive = rand({kMillion}).add(0.1);
  const auto unary = [&](const std::string& name, Tensor (*f)(const Tensor&), const Tensor& on) {
    add_pair(rows, name, {on}, [f](const TensorList& in) { return f(in[0]); });
  };
#define GRADUS_ROW(name, on) \
  unary( \
      #name, [](const Tensor& t) { return t.name(); }, on)
  GRADUS_ROW(neg, x);
  GRADUS_ROW(abs, x);
  GRADUS_ROW(square, x);
  GRADUS_ROW(exp, x);
  GRADUS_ROW(expm1, x);
  GRADUS_ROW(log, positive);
  GRADUS_ROW(log1p, positive);
  GRADUS_ROW(log2, positive);
  GRADUS_ROW(log10, positive);
  GRADUS_ROW(sqrt, positive);
  GRADUS_ROW(rsqrt, positive);
  GRADUS_ROW(reciprocal, positive);
  GRADUS_ROW(sin, x);
  GRADUS_ROW(cos, x);
  GRADUS_ROW(erf, x);
  GRADUS_ROW(relu, x);
  GRADUS_ROW(sigmoid, x);
  GRADUS_ROW(tanh, x);
#undef GRADUS_ROW
  unary(
      "leaky_relu", [](const Tensor& t) { return leaky_relu(t); }, x);
  unary(
      "elu", [](const Tensor& t) { return elu(t); }, x);
  unary(
      "gelu", [](const Tensor& t) { return gelu(t); }, x);
  unary(
      "gelu tanh", [](const Tensor& t) { return gelu(t, "tanh"); }, x);
  unary(
      "silu", [](const Tensor& t) { return silu(t); }, x);
  unary(
      "softplus", [](const Tensor& t) { return softplus(t); }, x);
  unary(
      "mish", [](const Tensor& t) { return mish(t); }, x);
  unary(
      "logsigmoid", [](const Tensor& t) { return log_sigmoid(t); }, x);
  unary(
      "hardswish", [](const Tensor& t) { return hardswish(t); }, x);
  add("floor", [=] { x.floor(); });
  add("clamp", [=] { x.clamp(-1, 1); });

  const Tensor square = x.reshape({1024, 1024}), row = randn({1024}), column = randn({1024, 1});
  add("add", [=] { x + y; });
  add("mul", [=] { x* y; });
  add("div", [=] { x / y; });
  add("pow", [=] { positive.pow(y); });
  add("pow 2", [=] { x.pow(2); });
  add("fmod", [=] { x.fmod(y); });
  add("remainder", [=] { x.remainder(y); });
  add("maximum", [=] { maximum(x, y); });
  add("atan2", [=] { atan2(x, y); });
  add("lt", [=] { x < y; });
  add("add scalar", [=] { x + 1.5; });
  add("add row", [=] { square + row; });
  add("add column", [=] { square + column; });
  const Tensor sum = zeros({kMillion}), mask = x > 0;
  add("add in place", [=] { sum.add_(x); });
  add("where", [=] { where(mask, x, y); });
  add("masked_fill", [=] { x.masked_fill(mask, 0.5); });
  const Tensor b = x.to(kBFloat16), h = x.to(kHalf);
  add("to bfloat16", [=] { x.to(kBFloat16); });
  add("from bfloat16", [=] { b.to(kFloat); });
  add("to float16", [=] { x.to(kHalf); });
  add("from float16", [=] { h.to(kFloat); });
  add("add bfloat16", [=] { b + b; });
  add("gelu bfloat16", [=] { gelu(b); });
  const Tensor whole = randint(0, 100, {kMillion}), bits = mask.logical_not();
  add("add int64", [=] { whole + whole; });
  add("eq int64", [=] { whole == whole; });
  add("and bool", [=] { mask.logical_and(bits); });

  add("sum", [=] { x.sum(); });
  add("sum rows", [=] { square.sum(1); });
  add("sum columns", [=] { square.sum(0); });
  add("mean", [=] { x.mean(); });
  add("max", [=] { x.max(); });
  add("amax rows", [=] { square.amax(1); });
  add("amax columns", [=] { square.amax(0); });
  add("argmax rows", [=] { square.argmax(1); });
  add("argmax columns", [=] { square.argmax(0); });
  add("prod", [=] { x.prod(); });
  add("norm", [=] { x.norm(); });
  add("var rows", [=] { square.var(1); });
  add("logsumexp rows", [=] { square.logsumexp(1); });
  add("cumsum rows", [=] { square.cumsum(1); });
  add("cumsum columns", [=] { square.cumsum(0); });
  add("all", [=] { mask.all(); });

  const Tensor logits = randn({128, 1000}), images = randn({64, 64, 32, 32}),
               last = images.contiguous(MemoryFormat::channels_last), words = randn({4096, 512});
  add_pair(rows, "softmax 128x1000", {logits}, [](const TensorList& in) { return in[0].softmax(1); });
  add_pair(rows, "log_softmax 128x1000", {logits}, [](const TensorList& in) { return in[0].log_softmax(1); });
  add_pair(rows, "softmax channels", {images}, [](const TensorList& in) { return in[0].softmax(1); });
  const Tensor weight = rand({64}), bias = rand({64}), wide = rand({512}), shift = rand({512});
  const auto batch = [](const TensorList& in) { return batch_norm(in[0], {}, {}, in[1], in[2], true); };
  add_pair(rows, "batch_norm", {images, weight, bias}, batch);
  add_pair(rows, "batch_norm channels_last", {last, weight, bias}, batch);
  add_pair(rows, "layer_norm 4096x512", {words, wide, shift},
           [](const TensorList& in) { return layer_norm(in[0], {512}, in[1], in[2]); });
  add_pair(rows, "group_norm 8", {images, weight, bias},
           [](const TensorList& in) { return group_norm(in[0], 8, in[1], in[2]); });

  const auto both_layouts = [&](const std::string& name, const Shape& shape, const TensorList& parameters,
                                const std::function<Tensor(const TensorList&)>& f) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      TensorList in = {randn(shape).contiguous(format)};
      in.insert(in.end(), parameters.begin(), parameters.end());
      add_pair(rows, format == MemoryFormat::contiguous ? name : name + " channels_last", in, f);
    }
  };
  for (const Shape& shape : {Shape{32, 64, 32, 32}, Shape{128, 32, 28, 28}, Shape{8, 256, 16, 16}}) {
    const int64_t channels = shape[1];
    const std::string of = " of " + std::to_string(shape[0]) + "x" + std::to_string(channels) + "x" +
                           std::to_string(shape[2]) + "x" + std::to_string(shape[3]);
    for (const int64_t groups : std::set<int64_t>{1, 8, 32, channels})
      both_layouts("group_norm " + std::to_string(groups) + of, shape, {rand({channels}), rand({channels})},
                   [groups](const TensorList& in) { return group_norm(in[0], groups, in[1], in[2]); });
    both_layouts("layer_norm" + of, shape, {rand(shape.slice(1)), rand(shape.slice(1))},
                 [shape](const TensorList& in) { return layer_norm(in[0], shape.slice(1), in[1], in[2]); });
  }
  both_layouts("max_pool 2x2", {4, 32, 96, 96}, {}, [](const TensorList& in) { return max_pool2d(in[0], 2); });
  both_layouts("max_pool 3x3/2", {2, 64, 112, 112}, {},
               [](const TensorList& in) { return max_pool2d(in[0], 3, 2, 1); });
  both_layouts("max_pool 3x3/1", {4, 256, 14, 14}, {}, [](const TensorList& in) { return max_pool2d(in[0], 3, 1, 1); });
  both_layouts("avg_pool 2x2", {4, 32, 96, 96}, {}, [](const TensorList& in) { return avg_pool2d(in[0], 2); });
  both_layouts("avg_pool global", {8, 512, 7, 7}, {},
               [](const TensorList& in) { return adaptive_avg_pool2d(in[0], 1); });
  for (const auto& [name, mode] : {std::pair{"nearest", kNearest}, std::pair{"bilinear", kBilinear}})
    both_layouts(std::string(name) + " twice as large", {2, 64, 56, 56}, {}, [mode = mode](const TensorList& in) {
      return interpolate(in[0], {}, std::vector<double>{2, 2}, mode);
    });
  both_layouts("depthwise 3x3", {8, 64, 56, 56}, {randn({64, 1, 3, 3})},
               [](const TensorList& in) { return conv2d(in[0], in[1], {}, 1, 1, 1, 64); });

  add("topk 5 of 128x1000", [=] { logits.topk(5); });
  add("topk 100 of 1M", [=] { x.topk(100); });
  add("sort 1M", [=] { x.sort(); });
  add("sort 1024x1024", [=] { square.sort(1); });
  add("argsort int64", [=] { whole.argsort(); });
  add("multinomial 128x1000", [=] { logits.abs().multinomial(1); });
  add("flip", [=] { square.flip({1}); });
  add("tril", [=] { square.tril(); });
  add("roll", [=] { square.roll({3}, {1}); });
  add("nonzero", [=] { mask.nonzero(); });
  add("masked_select", [=] { x.masked_select(mask); });
  const Tensor places = randint(0, 1024, {1024}), all_places = randint(0, 1024, {1024, 1024});
  add("gather", [=] { square.gather(1, all_places); });
  add("index_select rows", [=] { square.index_select(0, places); });
  add("index_select columns", [=] { square.index_select(1, places); });
  add("scatter_add", [=] { square.scatter_add(1, all_places, square); });
  const Tensor table = randn({10000, 128}), tokens = randint(0, 10000, {8192});
  add_pair(rows, "embedding", {table}, [tokens](const TensorList& in) { return embedding(in[0], tokens); });

  add("clone", [=] { x.clone(); });
  add("transpose", [=] { square.t().contiguous(); });
  add("to channels_last", [=] { images.contiguous(MemoryFormat::channels_last); });
  add("add channels_last", [=] { last + images; });
  add("to channels_first", [=] { last.contiguous(); });
  add("permute 0213", [=] { images.permute({0, 2, 1, 3}).contiguous(); });
  add("zeros", [=] { zeros({kMillion}); });
  add("rand", [=] { rand({kMillion}); });
  add("randn", [=] { randn({kMillion}); });
  add("dropout", [=] { dropout(x, 0.5, true); });
  add("cat", [=] { cat({square, square}, 1); });
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0.05;
  std::vector<std::string> wanted;
  benchmarks::Program program("elementwise",
                              "Times element-wise functions, reductions, normalisation, pooling, sorting and indexing");
  program.option("--seconds", seconds, "time per row");
  program.option("--rows", wanted, "names that rows must contain; default: all");
  return program.run(argc, argv, [&] {
    benchmarks::Fields result;
    for (const Row& row : make_rows()) {
      const auto contained = [&](const std::string& part) { return row.name.find(part) != std::string::npos; };
      if (wanted.empty() || std::any_of(wanted.begin(), wanted.end(), contained))
        result.emplace_back(row.name, benchmarks::best_seconds(seconds, row.work) * 1000);
    }
    std::printf("%s\n", benchmarks::to_json(result).c_str());
  });
}
