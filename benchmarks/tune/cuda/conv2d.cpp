#include <gradus/benchmarks/tune/cuda/conv2d.h>

#include <cmath>
#include <sstream>

#include <gradus/backends/cudnn/select.h>
#include <gradus/core/error.h>

namespace gradus::tune {

using namespace cuda_detail;

CudaConv2d::CudaConv2d(const std::string& text) {
  std::istringstream words(text);
  std::string pass, type, layout, epilogue;
  int64_t N = 0, C = 0, H = 0, W = 0, K = 0, R = 0, stride = 1, padding = 0, dilation = 1, groups = 1;
  words >> pass >> type >> layout >> N >> C >> H >> W >> K >> R >> stride >> padding >> dilation >> groups >> epilogue;
  GRADUS_CHECK(words, ValueError, "not a convolution: ", text);
  const bool tf32 = type == "tf32", mixed = type == "mixed";
  problem.pass = pass == "fprop"   ? ConvPass::forward
                 : pass == "dgrad" ? ConvPass::backward_data
                                   : ConvPass::backward_weight;
  problem.dtype = tf32 || mixed ? DType::f32 : dtype_named(type);
  problem.switches.tf32 = tf32, problem.switches.library_tf32 = tf32 || mixed;
  tolerance = problem.is_half() ? 2e-2 : tf32 || mixed ? 5e-3 : 1e-4;
  format = layout == "nhwc" ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  const auto out = [&](int64_t size) { return (size + 2 * padding - dilation * (R - 1) - 1) / stride + 1; };
  const auto operand = [&](const Shape& shape) {
    return ConvOperand(shape,
                       format == MemoryFormat::contiguous ? contiguous_strides(shape) : channels_last_strides(shape));
  };
  problem.x = operand({N, C, H, W}), problem.w = operand({K, C / groups, R, R});
  problem.y = operand({N, K, out(H), out(W)});
  problem.geometry = {{stride, stride}, {padding, padding}, {dilation, dilation}, groups};
  problem.bias = problem.relu = epilogue == "bias_relu";
}

std::vector<const ConvAlgorithm*> CudaConv2d::algorithms() const {
  std::vector<const ConvAlgorithm*> all;
  for (const ConvAlgorithm* each : cudnn_detail::conv_family().algorithms)
    if (each->can_run(problem)) all.push_back(each);
  return all;
}

namespace {

class CudaConv2dProblem final : public Problem {
 public:
  explicit CudaConv2dProblem(const std::string& text) : conv_(text) {}

  std::vector<Candidate> candidates(int) const override {
    const KernelFamily<ConvAlgorithm>& family = cudnn_detail::conv_family();
    std::vector<Candidate> all;
    family.for_candidates(conv_.problem, [&](const KernelFamily<ConvAlgorithm>::Candidate& each) {
      all.push_back({each.algorithm->name,
                     {{{family.name + ' ' + family.kinds[conv_.problem.kind()] + ' ' + each.algorithm->name,
                        each.algorithm->parts, each.work}}}});
    });
    return all;
  }
  std::string selected() const override { return select(conv_.problem, cudnn_detail::conv_family()).algorithm->name; }
  void run(const std::string&) override { GRADUS_FAIL(Error, "measure_cuda_conv2d() measures"); }

 private:
  CudaConv2d conv_;
};

}  // namespace

Family cuda_conv2d() {
  return {"cuda_conv2d", draw_cuda_conv2d,
          [](const std::string&, const std::string& text) { return std::make_unique<CudaConv2dProblem>(text); }};
}

std::map<std::string, Regret> regrets_of_selected(const std::vector<Measurement>& measurements) {
  std::map<std::string, Regret> result;
  for (const Measurement& each : measurements) {
    const std::string selected = CudaConv2dProblem(each.problem).selected();
    std::map<std::string, double> order;  // the selected one first
    for (const auto& [name, us] : each.us) order[name] = name == selected ? 0 : 1;
    std::istringstream words(each.problem);
    std::string pass, type;
    words >> pass >> type;
    result[each.family].add(each, order);
    result[each.family + ' ' + pass + ' ' + type].add(each, order);
  }
  return result;
}

// A call of the fastest algorithm takes about a millisecond at most. Most problems are like the layers of nets, whose
// channels are multiples of 8 and whose padding keeps the size of images; the others have any sizes.
std::string draw_cuda_conv2d(Random& random) {
  constexpr double kMostElements = 1 << 24, kLeastWork = 1 << 16;
  const std::string pass = one_of<std::string>(random, {"fprop", "dgrad", "wgrad"});
  const std::string type = one_of<std::string>(
      random, {"float32", "float32", "float32", "float32", "float32", "float64", "tf32", "tf32", "tf32", "mixed",
               "bfloat16", "bfloat16", "bfloat16", "bfloat16", "float16", "float16", "float16"});
  const bool is_half = type == "bfloat16" || type == "float16";
  const std::string layout = one_of<std::string>(random, {"nchw", "nhwc", is_half ? "nhwc" : "nchw", "nhwc"});
  const double most_work = type == "float32" || type == "float64" ? 8e9 : 24e9;
  const auto multiple = [&](int64_t most) {
    const int64_t unit = one_of<int64_t>(random, {8, 16, 32, 64});
    return unit * log_uniform(random, 1, std::max<int64_t>(most / unit, 1));
  };
  const uint64_t kind = random() % 20;
  for (;;) {
    int64_t H = log_uniform(random, 4, 224), W = H, C = 1, K = 1, R = 3, stride = 1, dilation = 1, groups = 1;
    const int64_t N = log_uniform(random, 1, 256);
    if (random() % 5 == 0) W = std::max<int64_t>(1, H + static_cast<int64_t>(random() % 9) - 4);
    if (kind < 12) {  // a layer with many channels
      C = multiple(512), K = random() % 2 == 0 ? C : multiple(512);
      R = one_of<int64_t>(random, {1, 1, 2, 3, 3, 3, 3, 3, 3, 5, 7}), stride = one_of<int64_t>(random, {1, 1, 1, 2});
      dilation = random() % 12 == 0 ? 2 : 1;
    } else if (kind < 15) {  // a first layer
      C = one_of<int64_t>(random, {1, 1, 2, 3, 3, 3, 4, 6}), K = multiple(96);
      R = one_of<int64_t>(random, {3, 3, 3, 4, 5, 7}), stride = one_of<int64_t>(random, {1, 1, 2, 3});
    } else if (kind < 17) {  // few channels
      C = log_uniform(random, 1, 24), K = log_uniform(random, 1, 24);
      R = one_of<int64_t>(random, {1, 3, 3, 3, 5, 5}), stride = one_of<int64_t>(random, {1, 1, 1, 2});
    } else if (kind < 18) {  // any
      C = log_uniform(random, 1, 512), K = log_uniform(random, 1, 512);
      R = one_of<int64_t>(random, {1, 2, 3, 3, 4, 5, 6, 7}), stride = one_of<int64_t>(random, {1, 1, 1, 2, 3});
      dilation = random() % 8 == 0 ? 2 : 1;
    } else {  // with groups
      C = multiple(512), groups = kind == 18 ? C : one_of<int64_t>(random, {2, 4, 8});
      K = random() % 4 > 0 ? C : 2 * C;
      R = one_of<int64_t>(random, {1, 3, 3, 5, 7}), stride = one_of<int64_t>(random, {1, 1, 2});
    }
    const int64_t most_padding = dilation * (R - 1);
    const int64_t padding = kind >= 17 && random() % 2 == 0
                                ? static_cast<int64_t>(random() % static_cast<uint64_t>(most_padding + 1))
                                : most_padding / 2;
    if (std::min(H, W) + 2 * padding < most_padding + 1) continue;
    const auto out = [&](int64_t size) { return (size + 2 * padding - most_padding - 1) / stride + 1; };
    const double outputs = static_cast<double>(N * K * out(H) * out(W)), inputs = static_cast<double>(N * C * H * W);
    const double work = outputs * static_cast<double>(C / groups * R * R);
    if (work > most_work || work < kLeastWork || outputs + inputs > kMostElements) continue;
    std::ostringstream text;
    text << pass << ' ' << type << ' ' << layout;
    for (const int64_t each : {N, C, H, W, K, R, stride, padding, dilation, groups}) text << ' ' << each;
    text << (pass == "fprop" && random() % 2 == 0 ? " bias_relu" : " plain");
    return text.str();
  }
}

}  // namespace gradus::tune
