// Convolutions on the openmp backend. A problem is "PASS TYPE LAYOUT N C H W K R STRIDE PADDING DILATION GROUPS", for
// R x R filters; the layout is nchw or nhwc.
#include <sstream>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/benchmarks/tune/tune.h>
#include <gradus/core/array/array.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/registry.h>

namespace gradus::tune {
namespace {

using namespace openmp_detail;

// The gradients of the image and of the weights in two passes, each by its cheapest algorithm. No algorithm has this
// name, so forcing it only prevents both gradients in one pass.
constexpr const char* kSeparately = "separately";

class Conv2d final : public Problem {
 public:
  Conv2d(const std::string& device, const std::string& text) : table_(table_of_device(device)) {
    std::istringstream words(text);
    std::string type, layout;
    words >> pass_ >> type >> layout >> N >> C >> H >> W >> K >> R >> stride_ >> padding_ >> dilation_ >> groups_;
    GRADUS_CHECK(words, ValueError, "not a convolution: ", text);
    dtype_ = dtype_named(type);
    format_ = layout == "nhwc" ? MemoryFormat::channels_last : MemoryFormat::contiguous;
    x_ = layout_of({N, C, H, W}), w_ = layout_of({K, C / groups_, R, R}), y_ = layout_of({N, K, out(H), out(W)});
  }

  std::vector<Candidate> candidates(int threads) const override {
    if (pass_ == "fprop") return of_pass(ConvPass::fprop, threads);
    if (pass_ == "dgrad") return of_pass(ConvPass::dgrad, threads);
    if (pass_ == "wgrad") return of_pass(ConvPass::wgrad, threads);
    const std::vector<Candidate> data = of_pass(ConvPass::dgrad, threads), weight = of_pass(ConvPass::wgrad, threads);
    std::vector<Candidate> all = of_pass(ConvPass::gradients, threads);
    Candidate& separately = all.emplace_back(Candidate{kSeparately, {}});
    for (const std::vector<Candidate>* pass : {&data, &weight}) {
      std::vector<Term>& alternatives = separately.steps.emplace_back();
      for (const Candidate& each : *pass) alternatives.push_back(*each.only_term());
    }
    return all;
  }

  std::string selected() const override {
    if (pass_ == "fprop") return select_conv2d(table_, 2, x_, w_, nullptr, y_, geometry()).algorithm->name;
    const ConvBackwardPlan plan =
        select_conv2d_backward(table_, 2, y_, x_, w_, nullptr, pass_ == "wgrad" ? nullptr : &x_,
                               pass_ == "dgrad" ? nullptr : &w_, nullptr, geometry(), true);
    if (pass_ == "gradients") return plan.at_once ? plan.data.algorithm->name : kSeparately;
    return (pass_ == "dgrad" ? plan.data : plan.weight).algorithm->name;
  }

  void run(const std::string& candidate) override {
    if (!x.defined()) {
      x = array_of(x_), w = array_of(w_), y = array_of(y_);
      dx = array_of(x_), dw = array_of(w_);
    }
    Backend& on = backend("openmp");
    const ForcedAlgorithm forced(candidate.c_str());
    if (pass_ == "fprop") return on.conv2d(x, w, y, geometry());
    if (pass_ == "dgrad") return on.conv2d_backward_data(y, w, dx, geometry());
    if (pass_ == "wgrad") return on.conv2d_backward_weight(y, x, dw, geometry());
    on.conv2d_bias_relu_backward({.dy = y, .x = x, .w = w, .geometry = geometry(), .dx = dx, .dw = dw});
  }

  bool is_fitted() const override { return dtype_ == wide(dtype_); }

 private:
  Conv2dGeometry geometry() const {
    return {{stride_, stride_}, {padding_, padding_}, {dilation_, dilation_}, groups_};
  }
  int64_t out(int64_t size) const { return (size + 2 * padding_ - dilation_ * (R - 1) - 1) / stride_ + 1; }

  StridedLayout layout_of(const Shape& shape) const {
    StridedLayout layout;
    layout.dtype = dtype_, layout.shape = shape;
    layout.strides = format_ == MemoryFormat::contiguous ? contiguous_strides(shape) : channels_last_strides(shape);
    return layout;
  }
  Array array_of(const StridedLayout& layout) const {
    const Array array = Array::empty(layout.shape, dtype_, {}, format_);
    backend("openmp").uniform(array, {}, -1, 1);
    return array;
  }

  std::vector<Candidate> of_pass(ConvPass pass, int threads) const {
    const KernelFamily<ConvAlgorithm>& family = conv2d_family();
    const ConvProblem p = problem_of(table_, threads, pass, pass == ConvPass::fprop ? x_ : y_, w_,
                                     pass == ConvPass::fprop ? y_ : x_, geometry(), false);
    std::vector<Candidate> all;
    family.for_candidates(p, [&](const ConvCandidate& each) { all.push_back(candidate_of(family, p.kind(), each)); });
    return all;
  }

  const KernelTable& table_;
  std::string pass_;
  DType dtype_ = DType::f32;
  MemoryFormat format_ = MemoryFormat::contiguous;
  int64_t N = 0, C = 0, H = 0, W = 0, K = 0, R = 0, stride_ = 1, padding_ = 0, dilation_ = 1, groups_ = 1;
  StridedLayout x_, w_, y_;
  Array x, w, y, dx, dw;
};

std::string draw_convolution(Random& random) {
  constexpr double kMostWork = 1 << 26, kMostElements = 1 << 21;
  const std::string pass = one_of<std::string>(random, {"fprop", "dgrad", "wgrad", "gradients"});
  const std::string type = one_of<std::string>(random, {"float32", "float32", "float32", "float64", "bfloat16"});
  const std::string layout = one_of<std::string>(random, {"nchw", "nchw", "nhwc"});
  for (;;) {
    const auto channels = [&] { return log_uniform(random, 1, random() % 2 == 0 ? 12 : 384); };
    const int64_t size = log_uniform(random, 3, 128), N = log_uniform(random, 1, 64);
    const int64_t R = one_of<int64_t>(random, {1, 2, 3, 3, 3, 4, 5, 7});
    const int64_t stride = one_of<int64_t>(random, {1, 1, 1, 2}), dilation = one_of<int64_t>(random, {1, 1, 1, 1, 2});
    const int64_t padding = static_cast<int64_t>(random() % static_cast<uint64_t>(dilation * (R - 1) / 2 + 1));
    int64_t C = channels(), K = channels(), groups = 1;
    if (const uint64_t kind = random() % 6; kind < 2) {
      K = groups = C;  // depthwise
    } else if (kind == 2) {
      groups = one_of<int64_t>(random, {2, 3, 4, 8});
      C = groups * ceil_div(C, groups), K = groups * ceil_div(K, groups);
    }
    const int64_t H = size, W = std::max<int64_t>(1, size + static_cast<int64_t>(random() % 5) - 2);
    const int64_t P = (std::min(H, W) + 2 * padding - dilation * (R - 1) - 1) / stride + 1;
    if (std::min(H, W) + 2 * padding < dilation * (R - 1) + 1 || P < 1) continue;
    const double outputs = static_cast<double>(N * K * P * P), inputs = static_cast<double>(N * C * H * W);
    if (outputs * static_cast<double>(C / groups * R * R) > kMostWork || outputs + inputs > kMostElements) continue;
    std::ostringstream text;
    text << pass << ' ' << type << ' ' << layout;
    for (const int64_t each : {N, C, H, W, K, R, stride, padding, dilation, groups}) text << ' ' << each;
    return text.str();
  }
}

}  // namespace

Family openmp_conv2d() {
  return {"conv2d", draw_convolution,
          [](const std::string& device, const std::string& text) { return std::make_unique<Conv2d>(device, text); }};
}

}  // namespace gradus::tune
