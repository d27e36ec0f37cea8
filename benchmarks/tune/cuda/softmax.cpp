#include <sstream>

#include <gradus/backends/cuda/norm/select.h>
#include <gradus/benchmarks/tune/cuda/family.h>
#include <gradus/core/error.h>
#include <gradus/core/registry.h>

namespace gradus::tune {
namespace {

using namespace cuda_detail;

// y = softmax(x), or dx from x, which is dy then, and y.
class SoftmaxOperands final : public CudaOperands {
 public:
  SoftmaxOperands(const SoftmaxProblem& problem, bool columns, Device device)
      : backward_(problem.backward), axis_(columns ? 0 : 1) {
    const Shape shape = columns ? Shape{problem.size, problem.rows} : Shape{problem.rows, problem.size};
    for (Array* each : {&x_, &y_, &dx_}) *each = Array::empty(shape, problem.dtype, device);
  }

  void fill() override {
    RandomState state;
    backend("cuda").uniform(x_, state, -1, 1);
    backend("cuda").softmax(x_, axis_, SoftmaxKind::softmax, y_);
  }
  const Array& result() const override { return backward_ ? dx_ : y_; }
  bool launch(const std::string& algorithm) override {
    const ForcedAlgorithm forced(algorithm.c_str());
    if (backward_) backend("cuda").softmax_backward(x_, y_, axis_, /*log=*/false, dx_);
    else backend("cuda").softmax(x_, axis_, SoftmaxKind::softmax, y_);
    return true;
  }

 private:
  const bool backward_;
  const int axis_;
  Array x_, y_, dx_;
};

class CudaSoftmax final : public CudaProblem {
 public:
  explicit CudaSoftmax(const std::string& text) {
    std::istringstream words(text);
    std::string pass, type, layout;
    words >> pass >> type >> layout >> problem_.rows >> problem_.size;
    GRADUS_CHECK(words, ValueError, "not a softmax: ", text);
    problem_.dtype = dtype_named(type);
    problem_.backward = pass == "backward";
    columns_ = layout == "columns", problem_.strided = columns_ && problem_.rows > 1;
    problem_.vectorized = !columns_ && problem_.size * static_cast<int64_t>(size_of(problem_.dtype)) % 16 == 0;
  }

  std::vector<Candidate> candidates(int) const override { return candidates_of(softmax_family(), problem_); }
  std::string selected() const override { return select(problem_).algorithm->name; }
  void use(const DeviceProperties& device) override { problem_.device = device; }
  std::unique_ptr<CudaOperands> operands(Device device) const override {
    return std::make_unique<SoftmaxOperands>(problem_, columns_, device);
  }
  double tolerance() const override { return size_of(problem_.dtype) == 2 ? 2e-2 : 1e-4; }

 private:
  SoftmaxProblem problem_;
  bool columns_ = false;
};

std::string draw_softmax(Random& random) {
  constexpr int64_t kMostElements = 1 << 25;
  const std::string pass = one_of<std::string>(random, {"forward", "backward"});
  const std::string type =
      one_of<std::string>(random, {"float32", "float32", "float32", "float64", "bfloat16", "float16"});
  const std::string layout = one_of<std::string>(random, {"rows", "rows", "rows", "columns"});
  for (;;) {
    int64_t rows = log_uniform(random, 1, 1 << 18), size = log_uniform(random, 2, 65536);
    if (random() % 3 > 0 && size >= 8) size = size / 8 * 8;
    if (rows * size > kMostElements) continue;
    std::ostringstream text;
    text << pass << ' ' << type << ' ' << layout << ' ' << rows << ' ' << size;
    return text.str();
  }
}

}  // namespace

Family cuda_softmax() {
  return {"cuda_softmax", draw_softmax,
          [](const std::string&, const std::string& text) { return std::make_unique<CudaSoftmax>(text); }};
}

}  // namespace gradus::tune
