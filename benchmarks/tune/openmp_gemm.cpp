// Matrix products on the openmp backend. A problem is "TYPE ORDER ROWS COLUMNS DEPTH PRODUCTS". The order has a letter
// for A and one for B: n if the matrix is row-major, t if it is transposed, as the weights of a linear layer are.
#include <sstream>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/benchmarks/tune/tune.h>
#include <gradus/core/ops/ops.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/registry.h>

namespace gradus::tune {
namespace {

using namespace openmp_detail;

class Gemm final : public Problem {
 public:
  Gemm(const std::string& device, const std::string& text) : table_(table_of_device(device)) {
    std::istringstream words(text);
    std::string type;
    words >> type >> order_ >> rows_ >> columns_ >> depth_ >> products_;
    GRADUS_CHECK(words && order_.size() == 2, ValueError, "not a matrix product: ", text);
    dtype_ = dtype_named(type);
  }

  std::vector<Candidate> candidates(int threads) const override {
    const KernelFamily<GemmAlgorithm>& family = gemm_family();
    const GemmProblem p = problem(threads);
    std::vector<Candidate> all;
    for (const GemmCandidate& each : openmp_detail::candidates(p)) all.push_back(candidate_of(family, p.kind(), each));
    return all;
  }

  std::string selected() const override { return select(problem(2)).algorithm->name; }

  void run(const std::string& candidate) override {
    if (!y_.defined()) {
      a_ = matrices(rows_, depth_, order_[0] == 't');
      b_ = matrices(depth_, columns_, order_[1] == 't');
      y_ = matrices(rows_, columns_, false);
    }
    const ForcedAlgorithm forced(candidate.c_str());
    backend("openmp").matmul(a_, b_, y_, false);
  }

 private:
  GemmProblem problem(int threads) const {
    const auto strides = [](bool transposed, int64_t rows, int64_t columns) {
      return transposed ? GemmProblem::Strides{1, rows} : GemmProblem::Strides{columns, 1};
    };
    return {.table = &table_,
            .threads = threads,
            .dtype = dtype_,
            .rows = rows_,
            .columns = columns_,
            .depth = depth_,
            .a = strides(order_[0] == 't', rows_, depth_),
            .b = strides(order_[1] == 't', depth_, columns_),
            .c = {columns_, 1},
            .products = products_};
  }

  Array matrices(int64_t rows, int64_t columns, bool transposed) const {
    const Shape shape = transposed ? Shape{products_, columns, rows} : Shape{products_, rows, columns};
    const Array all = Array::empty(shape, dtype_);
    backend("openmp").uniform(all, {}, -1, 1);
    return transposed ? all.transpose(1, 2) : all;
  }

  const KernelTable& table_;
  std::string order_;
  int64_t rows_ = 0, columns_ = 0, depth_ = 0, products_ = 0;
  DType dtype_ = DType::f32;
  Array a_, b_, y_;
};

std::string draw_product(Random& random) {
  constexpr int64_t kMostWork = int64_t{1} << 26, kMostElements = int64_t{1} << 22;
  const std::string type =
      one_of<std::string>(random, {"float32", "float32", "float32", "float64", "float16", "bfloat16"});
  const std::string order = one_of<std::string>(random, {"nn", "nt", "nt", "tn", "tt"});
  for (;;) {
    int64_t sizes[3];
    for (int64_t& size : sizes) size = log_uniform(random, 1, random() % 4 == 0 ? 16 : 4096);
    const int64_t products = random() % 4 == 0 ? log_uniform(random, 2, 128) : 1;
    const auto [rows, columns, depth] = sizes;
    const int64_t largest = std::max({rows * columns, rows * depth, columns * depth});
    if (rows * columns * depth * products > kMostWork || largest * products > kMostElements) continue;
    std::ostringstream text;
    text << type << ' ' << order << ' ' << rows << ' ' << columns << ' ' << depth << ' ' << products;
    return text.str();
  }
}

}  // namespace

Family openmp_gemm() {
  return {"gemm", draw_product,
          [](const std::string& device, const std::string& text) { return std::make_unique<Gemm>(device, text); }};
}

}  // namespace gradus::tune
