#include <sstream>

#include <gradus/backends/cuda/gemm/select.h>
#include <gradus/benchmarks/tune/cuda/family.h>
#include <gradus/core/error.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>

namespace gradus::tune {
namespace {

using namespace cuda_detail;

struct Sizes {
  std::string type, form, epilogue;
  int64_t batch = 1, M = 0, N = 0, K = 0;

  explicit Sizes(const std::string& text) {
    std::istringstream words(text);
    words >> type >> form >> batch >> M >> N >> K >> epilogue;
    GRADUS_CHECK(words && form.size() == 2, ValueError, "not a matrix product: ", text);
  }
  bool is_tf32() const { return type == "tf32"; }
  DType dtype() const { return is_tf32() ? DType::f32 : dtype_named(type); }
  bool has(const char* what) const { return epilogue == what; }
  // The shape in memory.
  Shape stored(int64_t rows, int64_t columns, char order) const {
    if (order == 't') std::swap(rows, columns);
    return batch > 1 ? Shape{batch, rows, columns} : Shape{rows, columns};
  }
};

class GemmOperands final : public CudaOperands {
 public:
  GemmOperands(const Sizes& sizes, Device device) : sizes_(sizes) {
    const auto make = [&](const Shape& shape) { return Array::empty(shape, sizes.dtype(), device); };
    a_ = make(sizes.stored(sizes.M, sizes.K, sizes.form[0])), b_ = make(sizes.stored(sizes.K, sizes.N, sizes.form[1]));
    y_ = make(sizes.stored(sizes.M, sizes.N, 'n'));
    if (sizes.has("bias")) bias_ = make({sizes.N});
  }

  void fill() override {
    RandomState state;
    for (const Array& each : {a_, b_, bias_})
      if (each.defined()) ++state.seed, backend("cuda").uniform(each, state, -1, 1);
  }
  const Array& result() const override { return y_; }
  void reset() override {
    if (sizes_.has("add")) backend("cuda").fill(y_, 0);
    else CudaOperands::reset();
  }
  bool launch(const std::string& algorithm) override {
    const ForcedAlgorithm forced(algorithm.c_str());
    if (sizes_.has("bias")) {
      backend("cuda").linear(a_, b_, bias_, y_);
    } else {
      const auto operand = [](const Array& x, char order) { return order == 't' ? transposed(View(x)) : View(x); };
      backend("cuda").matmul(operand(a_, sizes_.form[0]), operand(b_, sizes_.form[1]), y_, sizes_.has("add"));
    }
    return true;
  }

 private:
  const Sizes sizes_;
  Array a_, b_, bias_, y_;
};

class CudaGemm final : public CudaProblem {
 public:
  explicit CudaGemm(const std::string& text) : sizes_(text) {
    const auto view = [&](int64_t rows, int64_t columns, char order) {
      View x;
      x.dtype = sizes_.dtype(), x.shape = sizes_.stored(rows, columns, order), x.strides = contiguous_strides(x.shape);
      return order == 't' ? transposed(x) : x;
    };
    View bias;
    bias.dtype = sizes_.dtype(), bias.shape = {sizes_.N}, bias.strides = {1};
    problem_ = {view(sizes_.M, sizes_.K, sizes_.form[0]),
                view(sizes_.K, sizes_.N, sizes_.form[1]),
                sizes_.has("bias") ? &bias : nullptr,
                view(sizes_.M, sizes_.N, 'n'),
                kH200,
                sizes_.is_tf32()};
  }

  std::vector<Candidate> candidates(int) const override { return candidates_of(gemm_family(), problem_); }
  std::string selected() const override { return select(problem_).algorithm->name; }
  void use(const DeviceProperties& device) override { problem_.device = device; }
  std::unique_ptr<CudaOperands> operands(Device device) const override {
    return std::make_unique<GemmOperands>(sizes_, device);
  }
  double tolerance() const override {
    return problem_.is_half() ? 2e-2 : problem_.library_mode() == MathMode::tf32 ? 5e-3 : 1e-4;
  }
  bool allows_tf32() const override { return sizes_.is_tf32(); }

 private:
  const Sizes sizes_;
  GemmProblem problem_;
};

// Linear layers and their gradients, heads of attention, and any sizes. Many are near the sizes where cuBLASLt becomes
// faster than the kernels for small products. A call of the fastest algorithm takes less than a millisecond.
std::string draw_gemm(Random& random) {
  constexpr double kMostElements = 1 << 24, kMostWork = 8e9;
  const std::string type = one_of<std::string>(
      random, {"float32", "float32", "float32", "float64", "tf32", "tf32", "bfloat16", "bfloat16", "float16"});
  const auto multiple = [&](int64_t most) {
    const int64_t unit = one_of<int64_t>(random, {8, 16, 32, 64});
    return unit * log_uniform(random, 1, std::max<int64_t>(most / unit, 1));
  };
  const uint64_t kind = random() % 10;
  for (;;) {
    std::string form = one_of<std::string>(random, {"nn", "nt", "tn", "tt"}), epilogue = "plain";
    int64_t batch = 1, M = 1, N = 1, K = 1;
    if (kind < 5) {  // a linear layer of `rows` rows
      const int64_t rows = random() % 2 == 0 ? log_uniform(random, 1, 4096) : multiple(4096);
      const int64_t in = random() % 4 == 0 ? log_uniform(random, 8, 4096) : multiple(4096);
      const int64_t out = random() % 4 == 0 ? log_uniform(random, 2, 1000) : multiple(2048);
      form = one_of<std::string>(random, {"nt", "nt", "nn", "tn"});
      if (form == "nt") M = rows, N = out, K = in, epilogue = random() % 2 == 0 ? "bias" : "plain";
      else if (form == "nn") M = rows, N = in, K = out;
      else M = out, N = in, K = rows, epilogue = random() % 4 == 0 ? "add" : "plain";
    } else if (kind < 7) {  // heads of attention
      const int64_t length = random() % 2 == 0 ? log_uniform(random, 4, 512) : multiple(512);
      const int64_t size = one_of<int64_t>(random, {8, 16, 32, 64, 64, 128});
      batch = log_uniform(random, 2, 512);
      form = one_of<std::string>(random, {"nt", "nn", "tn"});
      if (form == "nt") M = N = length, K = size;
      else M = K = length, N = size;
    } else {  // any
      const int64_t most = kind < 9 ? 512 : 4096;
      M = log_uniform(random, 1, most), N = log_uniform(random, 1, most), K = log_uniform(random, 1, most);
      epilogue = random() % 8 == 0 ? "add" : "plain";
    }
    const auto elements = static_cast<double>(batch * (M * K + K * N + M * N));
    if (elements > kMostElements || static_cast<double>(batch * M * N) * static_cast<double>(K) > kMostWork) continue;
    std::ostringstream text;
    text << type << ' ' << form;
    for (const int64_t each : {batch, M, N, K}) text << ' ' << each;
    text << ' ' << epilogue;
    return text.str();
  }
}

}  // namespace

Family cuda_gemm() {
  return {"cuda_gemm", draw_gemm,
          [](const std::string&, const std::string& text) { return std::make_unique<CudaGemm>(text); }};
}

}  // namespace gradus::tune
