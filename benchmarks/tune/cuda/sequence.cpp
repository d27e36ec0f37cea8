#include <algorithm>
#include <cmath>
#include <sstream>

#include <gradus/backends/cuda/sequence/select.h>
#include <gradus/benchmarks/tune/cuda/family.h>
#include <gradus/core/error.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>

namespace gradus::tune {
namespace {

using namespace cuda_detail;

void fill_uniformly(std::initializer_list<const Array*> all, double bound = 1) {
  RandomState state;
  for (const Array* each : all) ++state.seed, backend("cuda").uniform(*each, state, -bound, bound);
}

double tolerance_of(DType dtype, MathMode mode) {
  return size_of(dtype) == 2 ? 3e-2 : mode == MathMode::tf32 ? 5e-3 : 1e-4;
}

// ---- attention ----

class AttentionOperands final : public CudaOperands {
 public:
  AttentionOperands(const AttentionProblem& problem, Device device) : problem_(problem) {
    const auto heads = [&](const Shape& shape) {
      if (problem_.even) return Array::empty(shape, problem_.dtype, device);
      return Array::empty({shape[0], shape[2], shape[1], shape[3]}, problem_.dtype, device);
    };
    for (Array* each : {&q_, &y_, &dq_, &dy_}) *each = heads(problem.q);
    for (Array* each : {&k_, &v_, &dk_, &dv_}) *each = heads(problem.k);
    const Shape weights = {problem.q[0], problem.q[1], problem.queries(), problem.keys()};
    weights_ = Array::empty(weights, problem_.dtype, device);
    if (problem.dropout) kept_ = Array::empty(weights, DType::boolean, device);
  }

  void fill() override {
    fill_uniformly({&q_, &k_, &v_, &dy_});
    attend();
  }
  const Array& result() const override { return problem_.backward ? dk_ : y_; }
  bool launch(const std::string& algorithm) override {
    const ForcedAlgorithm forced(algorithm.c_str());
    if (!problem_.backward) attend();
    else
      backend("cuda").attention_backward({.dy = view(dy_),
                                          .q = view(q_),
                                          .k = view(k_),
                                          .v = view(v_),
                                          .weights = weights_,
                                          .kept = kept_.defined() ? View(kept_) : View(),
                                          .y = view(y_),
                                          .rule = rule(),
                                          .dq = view(dq_),
                                          .dk = view(dk_),
                                          .dv = view(dv_)});
    return true;
  }

 private:
  // (N, H, L, E)
  MutableView view(const Array& x) const {
    MutableView view = x;
    if (!problem_.even) std::swap(view.shape[1], view.shape[2]), std::swap(view.strides[1], view.strides[2]);
    return view;
  }
  AttentionRule rule() const {
    return {.scale = 1 / std::sqrt(static_cast<double>(problem_.q[3])),
            .dropout = problem_.dropout ? 0.1 : 0,
            .causal = problem_.masked};
  }
  void attend() {
    backend("cuda").attention({.q = view(q_),
                               .k = view(k_),
                               .v = view(v_),
                               .rule = rule(),
                               .weights = weights_,
                               .kept = kept_.defined() ? MutableView(kept_) : MutableView(),
                               .y = view(y_)});
  }

  const AttentionProblem problem_;
  Array q_, k_, v_, y_, dq_, dk_, dv_, dy_, weights_, kept_;
};

class CudaAttention final : public CudaProblem {
 public:
  explicit CudaAttention(const std::string& text) {
    std::istringstream words(text);
    std::string pass, type, layout, option;
    int64_t N = 0, H = 0, L = 0, S = 0, E = 0;
    words >> pass >> type >> layout >> N >> H >> L >> S >> E >> option;
    GRADUS_CHECK(words, ValueError, "not an attention: ", text);
    problem_.dtype = type == "tf32" ? DType::f32 : dtype_named(type);
    problem_.tf32 = type == "tf32", problem_.backward = pass == "backward";
    problem_.q = {N, H, L, E}, problem_.k = problem_.v = {N, H, S, E};
    problem_.even = layout == "dense" || N == 1;
    problem_.masked = option == "masked", problem_.dropout = option == "dropout";
  }

  std::vector<Candidate> candidates(int) const override { return candidates_of(attention_family(), problem_); }
  std::string selected() const override { return select(problem_).algorithm->name; }
  void use(const DeviceProperties& device) override { problem_.device = device; }
  std::unique_ptr<CudaOperands> operands(Device device) const override {
    return std::make_unique<AttentionOperands>(problem_, device);
  }
  double tolerance() const override { return tolerance_of(problem_.dtype, problem_.mode()); }
  bool allows_tf32() const override { return problem_.tf32; }

 private:
  AttentionProblem problem_;
};

std::string draw_attention(Random& random) {
  constexpr int64_t kMostWeights = 1 << 24, kMostElements = 1 << 23;
  const std::string pass = one_of<std::string>(random, {"forward", "backward"});
  const std::string type =
      one_of<std::string>(random, {"float32", "float32", "tf32", "bfloat16", "bfloat16", "float16", "float64"});
  const std::string layout = one_of<std::string>(random, {"dense", "heads"});
  for (;;) {
    const auto length = [&] {
      return random() % 2 == 0 ? log_uniform(random, 1, 512) : 16 * log_uniform(random, 1, 32);
    };
    const int64_t N = log_uniform(random, 1, 256), H = one_of<int64_t>(random, {1, 2, 4, 8, 8, 12, 16});
    const int64_t L = length(), S = random() % 3 > 0 ? L : length();
    const int64_t E = random() % 4 == 0 ? log_uniform(random, 4, 128) : one_of<int64_t>(random, {16, 32, 64, 64, 128});
    if (pass == "backward" && S == 1) continue;  // gradients of q and k are 0, so nothing but rounding is compared
    if (N * H * L * S > kMostWeights || N * H * std::max(L, S) * E > kMostElements) continue;
    std::ostringstream text;
    text << pass << ' ' << type << ' ' << layout;
    for (const int64_t each : {N, H, L, S, E}) text << ' ' << each;
    const bool can_mask = pass == "forward" && L == S;
    text << ' ' << one_of<std::string>(random, {"plain", can_mask ? "masked" : "plain", "dropout"});
    return text.str();
  }
}

// ---- Recurrent layers ----

class RecurrentOperands final : public CudaOperands {
 public:
  RecurrentOperands(const RecurrentProblem& problem, Device device) : problem_(problem) {
    const int64_t L = problem.length, N = problem.batch, H = problem.size;
    const auto make = [&](const Shape& shape) { return Array::empty(shape, problem.dtype, device); };
    for (Array* each : {&inputs_, &gates_, &dgates_}) *each = make({L, N, sums_of(problem.cell) * H});
    for (Array* each : {&hidden_, &dhidden_}) *each = make({L, N, H});
    for (Array* each : {&h0_, &dc_, &dh0_}) *each = make({N, H});
    cells_ = is_lstm() ? make({L, N, H}) : hidden_;
    c0_ = is_lstm() ? make({N, H}) : h0_;
    w_ = make({gates_of(problem.cell) * H, H});
  }

  void fill() override {
    fill_uniformly({&inputs_, &dhidden_, &h0_, &c0_});
    fill_uniformly({&w_}, 1 / std::sqrt(static_cast<double>(problem_.size)));  // larger weights amplify rounding errors
    backend("cuda").copy(inputs_, gates_);
    forward();
  }
  const Array& result() const override { return problem_.backward ? dgates_ : hidden_; }
  void reset() override {
    CudaOperands::reset();
    if (problem_.backward) backend("cuda").fill(dc_, 0);
    else backend("cuda").copy(inputs_, gates_);
  }
  bool launch(const std::string& algorithm) override {
    const ForcedAlgorithm forced(algorithm.c_str());
    if (!problem_.backward) forward();
    else
      backend("cuda").recurrent_sequence_backward({.cell = problem_.cell,
                                                   .dhidden = dhidden_,
                                                   .gates = gates_,
                                                   .w_hh = w_,
                                                   .c0 = c0_,
                                                   .cells = cells_,
                                                   .dc = dc_,
                                                   .dgates = dgates_,
                                                   .dh0 = dh0_});
    return true;
  }

 private:
  bool is_lstm() const { return problem_.cell == RecurrentCell::lstm; }
  void forward() {
    backend("cuda").recurrent_sequence({.cell = problem_.cell,
                                        .gates = gates_,
                                        .w_hh = w_,
                                        .h0 = h0_,
                                        .c0 = c0_,
                                        .cells = cells_,
                                        .outputs = hidden_,
                                        .hidden = hidden_});
  }

  const RecurrentProblem problem_;
  Array inputs_, gates_, dgates_, cells_, hidden_, dhidden_, h0_, c0_, dc_, dh0_, w_;
};

class CudaRecurrent final : public CudaProblem {
 public:
  explicit CudaRecurrent(const std::string& text) {
    std::istringstream words(text);
    std::string pass, type, cell;
    words >> pass >> type >> problem_.length >> problem_.batch >> problem_.size >> cell;
    const auto named = std::find(std::begin(kRecurrentCellNames), std::end(kRecurrentCellNames), cell);
    GRADUS_CHECK(words && named != std::end(kRecurrentCellNames), ValueError, "not a recurrent layer: ", text);
    problem_.cell = static_cast<RecurrentCell>(named - std::begin(kRecurrentCellNames));
    problem_.dtype = type == "tf32" ? DType::f32 : dtype_named(type);
    problem_.tf32 = type == "tf32", problem_.backward = pass == "backward";
  }

  std::vector<Candidate> candidates(int) const override { return candidates_of(recurrent_family(), problem_); }
  std::string selected() const override { return select(problem_).algorithm->name; }
  void use(const DeviceProperties& device) override { problem_.device = device; }
  std::unique_ptr<CudaOperands> operands(Device device) const override {
    return std::make_unique<RecurrentOperands>(problem_, device);
  }
  // Rounding errors of a step are in all later ones.
  double tolerance() const override { return 4 * tolerance_of(problem_.dtype, problem_.mode()); }
  bool allows_tf32() const override { return problem_.tf32; }

 private:
  RecurrentProblem problem_;
};

std::string draw_recurrent(Random& random) {
  const std::string pass = one_of<std::string>(random, {"forward", "backward"});
  const std::string type =
      one_of<std::string>(random, {"float32", "float32", "tf32", "bfloat16", "bfloat16", "float16", "float64"});
  const std::string cell = one_of<std::string>(random, {"lstm", "lstm", "gru", "gru", "rnn_tanh"});
  const int64_t size = random() % 3 == 0 ? log_uniform(random, 4, 512) : 16 * log_uniform(random, 1, 20);
  std::ostringstream text;
  text << pass << ' ' << type << ' ' << log_uniform(random, 1, 64) << ' ' << log_uniform(random, 1, 1024) << ' ' << size
       << ' ' << cell;
  return text.str();
}

}  // namespace

Family cuda_attention() {
  return {"cuda_attention", draw_attention,
          [](const std::string&, const std::string& text) { return std::make_unique<CudaAttention>(text); }};
}

Family cuda_recurrent() {
  return {"cuda_recurrent", draw_recurrent,
          [](const std::string&, const std::string& text) { return std::make_unique<CudaRecurrent>(text); }};
}

}  // namespace gradus::tune
