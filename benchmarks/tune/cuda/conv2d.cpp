#include <limits>
#include <sstream>

#include <gradus/backends/cudnn/select.h>
#include <gradus/benchmarks/tune/cuda/family.h>
#include <gradus/core/error.h>
#include <gradus/core/registry.h>

namespace gradus::tune {
namespace {

using namespace cuda_detail;

const ConvAlgorithm& algorithm_named(const std::string& name) {
  for (const ConvAlgorithm* each : cudnn_detail::conv_family().algorithms)
    if (name == each->name) return *each;
  GRADUS_FAIL(ValueError, "no algorithm ", name);
}

class ConvOperandsOfProblem final : public CudaOperands {
 public:
  ConvOperandsOfProblem(const ConvProblem& problem, MemoryFormat format, Device device) : problem_(problem) {
    const auto make = [&](const ConvOperand& operand) {
      return Array::empty(operand.shape, problem_.dtype, device, format);
    };
    x_ = make(problem_.x), w_ = make(problem_.w), y_ = make(problem_.y);
    if (problem_.bias) bias_ = Array::empty({problem_.w.shape[0]}, problem_.dtype, device);
  }

  void fill() override {
    RandomState state;
    for (const Array& each : {x_, w_, y_, bias_})
      if (each.defined()) ++state.seed, backend("cuda").uniform(each, state, -1, 1);
  }
  const Array& result() const override {
    return problem_.is_wgrad() ? w_ : problem_.pass == ConvPass::backward_data ? x_ : y_;
  }
  bool launch(const std::string& name) override {
    const bool dgrad = problem_.pass == ConvPass::backward_data;
    const View in = dgrad ? y_ : x_, out = dgrad ? x_ : y_, weight = w_, bias = bias_.defined() ? View(bias_) : View();
    const ConvAlgorithm& algorithm = algorithm_named(name);
    ConvOperands call{backend("cudnn"), "conv2d", problem_, in, weight, bias, out};
    call.algorithm = &algorithm;
    const ConvPlan plan = algorithm.plan(problem_);
    if (plan.workspace_bytes > 0 && (!workspace_.defined() || workspace_.nbytes() < plan.workspace_bytes))
      workspace_ = Array::empty({static_cast<int64_t>(plan.workspace_bytes)}, DType::u8, x_.device());
    call.plan = &plan, call.workspace = workspace_.defined() ? static_cast<std::byte*>(workspace_.data()) : nullptr;
    return algorithm.launch(call);
  }

 private:
  const ConvProblem problem_;
  Array x_, w_, y_, bias_, workspace_;
};

class CudaConv2d final : public CudaProblem {
 public:
  explicit CudaConv2d(const std::string& text) {
    std::istringstream words(text);
    std::string pass, type, layout, epilogue;
    int64_t N = 0, C = 0, H = 0, W = 0, K = 0, R = 0, stride = 1, padding = 0, dilation = 1, groups = 1;
    words >> pass >> type >> layout >> N >> C >> H >> W >> K >> R >> stride >> padding >> dilation >> groups >>
        epilogue;
    GRADUS_CHECK(words, ValueError, "not a convolution: ", text);
    const bool tf32 = type == "tf32", mixed = type == "mixed";
    problem_.pass = pass == "fprop"   ? ConvPass::forward
                    : pass == "dgrad" ? ConvPass::backward_data
                                      : ConvPass::backward_weight;
    problem_.dtype = tf32 || mixed ? DType::f32 : dtype_named(type);
    problem_.switches.tf32 = tf32, problem_.switches.library_tf32 = tf32 || mixed;
    tolerance_ = problem_.is_half() ? 2e-2 : tf32 || mixed ? 5e-3 : 1e-4;
    format_ = layout == "nhwc" ? MemoryFormat::channels_last : MemoryFormat::contiguous;
    const auto out = [&](int64_t size) { return (size + 2 * padding - dilation * (R - 1) - 1) / stride + 1; };
    const auto operand = [&](const Shape& shape) {
      return ConvOperand(
          shape, format_ == MemoryFormat::contiguous ? contiguous_strides(shape) : channels_last_strides(shape));
    };
    problem_.x = operand({N, C, H, W}), problem_.w = operand({K, C / groups, R, R});
    problem_.y = operand({N, K, out(H), out(W)});
    problem_.geometry = {{stride, stride}, {padding, padding}, {dilation, dilation}, groups};
    problem_.bias = problem_.relu = epilogue == "bias_relu";
  }

  std::vector<Candidate> candidates(int) const override { return candidates_of(cudnn_detail::conv_family(), problem_); }
  std::string selected() const override { return select(problem_, cudnn_detail::conv_family()).algorithm->name; }
  void use(const DeviceProperties& device) override { problem_.device = device; }
  std::unique_ptr<CudaOperands> operands(Device device) const override {
    return std::make_unique<ConvOperandsOfProblem>(problem_, format_, device);
  }
  double tolerance() const override { return tolerance_; }
  const ConvProblem& problem() const { return problem_; }
  // cuDNN compiles some of its engines.
  bool is_prepared_slowly(const std::string& algorithm) const override { return algorithm_named(algorithm).is_library; }

 private:
  ConvProblem problem_;
  MemoryFormat format_ = MemoryFormat::contiguous;
  double tolerance_ = 0;
};

// A call of the fastest algorithm takes about a millisecond at most. Most problems are like the layers of nets, whose
// channels are multiples of 8 and whose padding keeps the size of images; the others have any sizes.
std::string draw_any(Random& random) {
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
    const int64_t taps = C / groups * R * R;
    const double work = outputs * static_cast<double>(taps);
    if (work > most_work || work < kLeastWork || outputs + inputs > kMostElements) continue;
    std::ostringstream text;
    text << pass << ' ' << type << ' ' << layout;
    for (const int64_t each : {N, C, H, W, K, R, stride, padding, dilation, groups}) text << ' ' << each;
    text << (pass == "fprop" && random() % 2 == 0 ? " bias_relu" : " plain");
    return text.str();
  }
}

// Layers as large as they are in small nets, ResNets, VGG, U-Nets and nets with depthwise layers. At the peak of an
// H200 they take at most about half a millisecond.
std::string draw_of_nets(Random& random) {
  constexpr double kMostElements = 1 << 28, kLeastWork = 1e6, kMostWork = 1e11;
  struct Layer {
    int64_t C, H, K, R, stride, groups = 1;
  };
  static const std::vector<Layer> layers = [] {
    std::vector<Layer> all = {{3, 224, 64, 7, 2}, {3, 224, 64, 3, 1}, {3, 32, 64, 3, 1}, {64, 256, 1, 1, 1}};
    all.insert(all.end(), {{1, 28, 32, 3, 1}, {32, 28, 32, 3, 1}, {1, 28, 6, 5, 1}});  // of MNIST …
    all.insert(all.end(),
               {{3, 96, 32, 3, 1}, {32, 48, 64, 3, 1}, {64, 24, 128, 3, 1}, {3, 96, 64, 5, 2}});  // … and STL-10
    for (int64_t C = 64, H = 56; C <= 512; C *= 2, H /= 2) {                                      // ResNets of ImageNet
      all.insert(all.end(), {{C, H, C, 3, 1}, {C, H, 4 * C, 1, 1}, {4 * C, H, C, 1, 1}});
      if (C < 512) all.insert(all.end(), {{C, H, 2 * C, 3, 2}, {4 * C, H, 2 * C, 1, 1}, {4 * C, H, 8 * C, 1, 2}});
      if (C < 512) all.insert(all.end(), {{2 * C, H, 2 * C, 3, 2}, {C, H, 2 * C, 1, 2}});
    }
    for (int64_t C = 64, H = 32; C <= 512; C *= 2, H /= 2)  // ResNets of CIFAR
      all.insert(all.end(), {{C, H, C, 3, 1}, {C, H, 2 * C, 3, 2}, {C, H, 2 * C, 1, 2}});
    for (int64_t C = 64, H = 224; C <= 512; C *= 2, H /= 2)  // VGG
      all.insert(all.end(), {{C, H, C, 3, 1}, {C, H / 2, std::min<int64_t>(2 * C, 512), 3, 1}});
    for (int64_t C = 64, H = 256; C <= 1024; C *= 2, H /= 2)  // U-Nets, whose decoders join two halves
      all.insert(all.end(), {{C, H, C, 3, 1}, {C / 2, H, C, 3, 1}, {2 * C, H, C, 3, 1}, {2 * C, H / 2, C, 1, 1}});
    return all;
  }();
  static const std::vector<Layer> depthwise = [] {
    std::vector<Layer> all;
    const auto add = [&](int64_t C, int64_t H, int64_t R, int64_t stride) { all.push_back({C, H, C, R, stride, C}); };
    for (const int64_t side : {32, 112}) {  // MobileNets of CIFAR and of ImageNet
      add(32, side, 3, 1), add(96, side, 3, 2), add(144, side / 2, 3, 1), add(144, side / 2, 3, 2);
      add(192, side / 4, 3, 1), add(384, side / 8, 3, 1), add(576, side / 8, 3, 2), add(960, side / 16, 3, 1);
      add(240, side / 4, 5, 2), add(480, side / 8, 5, 1), add(1152, side / 16, 5, 1);
    }
    add(96, 56, 7, 1), add(192, 28, 7, 1), add(384, 14, 7, 1), add(768, 7, 7, 1);  // ConvNeXt
    return all;
  }();
  for (;;) {
    const std::string pass = one_of<std::string>(random, {"fprop", "dgrad", "wgrad"});
    const std::string type = one_of<std::string>(
        random, {"bfloat16", "bfloat16", "float16", "float32", "float32", "float32", "tf32", "mixed"});
    const bool is_half = type == "bfloat16" || type == "float16";
    const std::string layout = one_of<std::string>(random, {"nchw", is_half ? "nhwc" : "nchw", "nhwc"});
    const auto [C, H, K, R, stride, groups] = one_of(random, random() % 3 == 0 ? depthwise : layers);
    const int64_t N = one_of<int64_t>(random, {32, 48, 64, 96, 128, 192, 256}), out = (H - 1) / stride + 1;
    const auto outputs = static_cast<double>(N * K * out * out), inputs = static_cast<double>(N * C * H * H);
    const int64_t taps = C / groups * R * R;
    const double work = outputs * static_cast<double>(taps);
    if (work > (is_half ? kMostWork : kMostWork / 6) || work < kLeastWork || outputs + inputs > kMostElements) continue;
    std::ostringstream text;
    text << pass << ' ' << type << ' ' << layout;
    for (const int64_t each : {N, C, H, H, K, R, stride, R / 2, int64_t{1}, groups}) text << ' ' << each;
    text << (pass == "fprop" && random() % 2 == 0 ? " bias_relu" : " plain");
    return text.str();
  }
}

Family family_that_draws(std::function<std::string(Random&)> draw) {
  return {"cuda_conv2d", std::move(draw),
          [](const std::string&, const std::string& text) { return std::make_unique<CudaConv2d>(text); }};
}

}  // namespace

std::string conv2d_by_time(const Measurement& measurement) {
  const auto time_of = [&](const ConvChoice& choice) {
    const auto found = measurement.us.find(choice.algorithm->name);
    return found == measurement.us.end() ? std::numeric_limits<double>::infinity() : found->second;
  };
  const CudaConv2d measured(measurement.problem);
  return select_by_time(measured.problem(), cudnn_detail::conv_family(), time_of).algorithm->name;
}

Family cuda_conv2d() { return family_that_draws(draw_any); }
Family cuda_net_conv2d() { return family_that_draws(draw_of_nets); }

}  // namespace gradus::tune
