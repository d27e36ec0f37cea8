// How the backend "cuda" multiplies matrices, decided without a GPU for the properties of an H200. The expected
// decisions for linear layers of known nets, products of attention and square matrices are in gemm_plans.txt. After an
// intended change,
// GRADUS_WRITE_DECISIONS=1 build/cpu-release/tests/test_cuda "plans of matrix products on CUDA are those written down"
// overwrites that file, and its diff shows what changed.
#include <sstream>

#include <gradus/backends/cuda/gemm/select.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/decisions.h>

using namespace gradus;
using namespace gradus::cuda_detail;

namespace {

struct GemmType {
  const char* name;
  DType dtype;
  bool tf32;
};
constexpr GemmType gemm_types[] = {
    {"f32 ", DType::f32, false}, {"tf32", DType::f32, true}, {"bf16", DType::bf16, false}, {"f64 ", DType::f64, false}};

View matrix_of(Shape shape, DType dtype, bool transposed = false) {
  View view;
  view.dtype = dtype, view.shape = shape, view.strides = contiguous_strides(shape);
  if (transposed) {
    const int n = view.ndim();
    std::swap(view.shape[n - 1], view.shape[n - 2]);
    std::swap(view.strides[n - 1], view.strides[n - 2]);
  }
  return view;
}

// Describes a plan: "small_tiles 16x32 /4 0" is implementation, tile, split-K and bytes of workspace; "cublaslt tn …"
// tells which operands cuBLASLt transposes.
std::string describe_gemm(const GemmPlan& plan) {
  std::ostringstream text;
  text << plan.algorithm->name;
  if (plan.tile.rows > 0) text << " " << plan.tile.rows << "x" << plan.tile.columns << " /" << plan.split_k;
  else text << " " << (plan.a.transposed ? "t" : "n") << (plan.b.transposed ? "t" : "n");
  if (plan.a_copy || plan.b_copy || plan.y_copy) text << " copied";
  text << " " << plan.workspace_bytes;
  return text.str();
}

GemmPlan plan_gemm(const View& a, const View& b, const View* bias, const View& y, bool tf32 = false) {
  return select({a, b, bias, y, kH200, tf32});
}

}  // namespace

TEST_CASE("plans of matrix products on CUDA are those written down") {
  std::ostringstream plans;
  plans
      << "# What select() in backends/cuda/gemm decides on an H200 for a linear layer, y = x wT + bias of x (M, "
         "K) and\n# w (N, K), for its gradients dx = dy w and dw = dyT x, and for batches. Implementation, tile and "
         "/split-K, or\n# what a library transposes; bytes of workspace. Written by tests/cuda/gemm_select_test.cpp.\n";
  constexpr int64_t layers[][3] = {
      {128, 100, 784},   {128, 10, 100}, {64, 120, 400},   {64, 84, 120},    {64, 10, 84},       {1024, 120, 400},
      {1024, 84, 120},   {1024, 10, 84}, {128, 10, 784},   {128, 10, 25088}, {512, 512, 18432},  {32, 512, 18432},
      {32, 10, 512},     {512, 10, 512}, {2048, 512, 128}, {32, 512, 128},   {1024, 128, 128},   {1024, 2048, 128},
      {1024, 128, 2048}, {1, 1000, 512}, {64, 1024, 256},  {256, 256, 256},  {512, 512, 512},    {4096, 4096, 4096},
      {1, 1, 1},         {7, 13, 29},    {128, 10, 2048},  {300, 300, 40},   {1024, 50257, 768},
  };
  for (const auto& [M, N, K] : layers) {
    plans << "\nM " << M << ", N " << N << ", K " << K << "\n";
    for (const GemmType& type : gemm_types) {
      const View x = matrix_of({M, K}, type.dtype), w = matrix_of({N, K}, type.dtype),
                 bias = matrix_of({N}, type.dtype), y = matrix_of({M, N}, type.dtype);
      const View w_transposed = matrix_of({N, K}, type.dtype, true), y_transposed = matrix_of({M, N}, type.dtype, true);
      plans << "y  " << type.name << " " << describe_gemm(plan_gemm(x, w_transposed, &bias, y, type.tf32)) << "\n"
            << "dx " << type.name << " " << describe_gemm(plan_gemm(y, w, nullptr, x, type.tf32)) << "\n"
            << "dw " << type.name << " " << describe_gemm(plan_gemm(y_transposed, x, nullptr, w, type.tf32)) << "\n";
    }
  }
  constexpr int64_t batches[][4] = {{64, 64, 64, 32}, {96, 512, 512, 64}, {8, 3, 5, 7}};
  for (const auto& [batch, M, N, K] : batches) {
    plans << "\nbatch " << batch << ", M " << M << ", N " << N << ", K " << K << "\n";
    for (const GemmType& type : gemm_types)
      plans << "y  " << type.name << " "
            << describe_gemm(plan_gemm(matrix_of({batch, M, K}, type.dtype), matrix_of({batch, N, K}, type.dtype, true),
                                       nullptr, matrix_of({batch, M, N}, type.dtype), type.tf32))
            << "\n";
  }
  test::check_decisions("cuda/gemm_plans.txt", plans.str());
}

TEST_CASE("the README lists the algorithms of matrix products on CUDA") {
  std::string table = "| algorithm | reason |\n|---|---|\n";
  for (const GemmAlgorithm* each : gemm_family().algorithms)
    table += "| `" + std::string(each->name) + "` | " + each->reason + " |\n";
  test::check_table("backends/cuda/README.md", "algorithms of gemm", table);
}

TEST_CASE("plans of matrix products on CUDA: a test can force an algorithm") {
  const View a = matrix_of({64, 256}, DType::f32), b = matrix_of({64, 256}, DType::f32, true);
  const View y = matrix_of({64, 64}, DType::f32);
  for (const GemmAlgorithm* each : gemm_family().algorithms) {
    const ForcedAlgorithm forced(each->name);
    CHECK(plan_gemm(a, b, nullptr, y).algorithm == each);
  }
  const ForcedAlgorithm forced("small_tiles");  // has no batches
  const View batch = matrix_of({2, 64, 64}, DType::f32);
  CHECK(plan_gemm(batch, batch, nullptr, batch).algorithm == &kCublasLt);
}

TEST_CASE("plans of matrix products on CUDA: types") {
  const auto plan = [](DType dtype, bool tf32) {
    return plan_gemm(matrix_of({4096, 512}, dtype), matrix_of({512, 4096}, dtype), nullptr,
                     matrix_of({4096, 4096}, dtype), tf32);
  };
  CHECK(plan(DType::f32, false).math_mode == MathMode::fma);
  CHECK(plan(DType::f32, true).math_mode == MathMode::tf32);
  CHECK(plan(DType::f64, true).math_mode == MathMode::fma);
  CHECK(plan(DType::f16, true).math_mode == MathMode::half);
  CHECK(plan(DType::i64, false).algorithm == &kInteger);
  CHECK(plan(DType::i64, false).workspace_bytes == 0);
  CHECK(plan(DType::f32, false).workspace_bytes == size_t{32} << 20);
}

TEST_CASE("plans of matrix products on CUDA: a bias is part of small products and of cuBLASLt's") {
  const auto plan = [](int64_t M, const View& bias) {
    return plan_gemm(matrix_of({M, 512}, DType::f32), matrix_of({512, 512}, DType::f32, true), &bias,
                     matrix_of({M, 512}, DType::f32));
  };
  View bias = matrix_of({512}, DType::f32);
  CHECK(plan(8, bias).algorithm == &kSmallDots);
  CHECK(plan(8, bias).adds_bias);
  CHECK(plan(4096, bias).algorithm == &kCublasLt);
  CHECK(plan(4096, bias).adds_bias);
  bias.strides[0] = 2;
  CHECK(plan(8, bias).adds_bias);
  CHECK_FALSE(plan(4096, bias).adds_bias);
}

TEST_CASE("plans of matrix products on CUDA: operands without a unit stride are copied to the workspace") {
  constexpr int64_t kMiB = 1 << 20;
  View a = matrix_of({1024, 512}, DType::f32), b = matrix_of({512, 1024}, DType::f32);
  View y = matrix_of({1024, 1024}, DType::f32);
  CHECK_FALSE(plan_gemm(a, b, nullptr, y).swapped);
  CHECK(plan_gemm(a, b, nullptr, matrix_of({1024, 1024}, DType::f32, true)).swapped);
  a.strides = {1024, 2};
  GemmPlan plan = plan_gemm(a, b, nullptr, y);
  CHECK((plan.a_copy == 32 * kMiB && !plan.b_copy && !plan.y_copy));
  CHECK((plan.a.leading == 512 && plan.b.leading == 1024));
  CHECK(plan.workspace_bytes == 34 * kMiB);
  b.strides = {2, 1024}, y.strides = {2048, 2};
  plan = plan_gemm(a, b, nullptr, y);
  CHECK((plan.a_copy == 32 * kMiB && plan.b_copy == 34 * kMiB && plan.y_copy == 36 * kMiB));
  CHECK(plan.workspace_bytes == 40 * kMiB);

  // The kernels for small products support any strides and alignment.
  View x = matrix_of({8, 64}, DType::f32), w = matrix_of({8, 64}, DType::f32, true);
  y = matrix_of({8, 8}, DType::f32), y.strides = {16, 2};
  plan = plan_gemm(x, w, nullptr, y);
  CHECK((plan.algorithm == &kSmallDots && plan.workspace_bytes == 0 && plan.a_vectorized));
  x.data = reinterpret_cast<const void*>(uintptr_t{4});
  CHECK_FALSE(plan_gemm(x, w, nullptr, y).a_vectorized);
}

TEST_CASE("plans of matrix products on CUDA: operands without a common step are copied") {
  View a = matrix_of({3, 4, 64, 64}, DType::f32);
  const View b = matrix_of({3, 4, 64, 64}, DType::f32), y = b;
  GemmPlan plan = plan_gemm(a, b, nullptr, y);
  CHECK((!plan.a_copy && plan.batch == 12 && plan.batch_steps[0] == 4096));
  a.strides[0] = a.strides[1] = 0;  // broadcast
  plan = plan_gemm(a, b, nullptr, y);
  CHECK((!plan.a_copy && plan.batch == 12 && plan.batch_steps[0] == 0));
  a.strides[1] = 4096;
  plan = plan_gemm(a, b, nullptr, y);
  CHECK((plan.a_copy && !plan.b_copy && plan.batch == 12 && plan.batch_steps[0] == 4096));
  plan = plan_gemm(b, b, nullptr, a);
  CHECK((plan.y_copy && !plan.a_copy && plan.batch == 12 && plan.batch_steps[2] == 4096));
}

TEST_CASE("plans of matrix products on CUDA: sizes and offsets of small products have 31 bits, and grids 65,535 rows") {
  const auto can_run = [](const GemmAlgorithm& algorithm, int64_t M, int64_t N, int64_t K, bool broadcasts = false) {
    View a = matrix_of({M, K}, DType::f32), b = matrix_of({K, N}, DType::f32, true);
    if (broadcasts) a.strides[1] = b.strides[0] = 0;
    const GemmProblem problem(a, b, nullptr, matrix_of({M, N}, DType::f32), kH200, false);
    const bool chosen = select(problem).algorithm == &algorithm;
    CHECK((algorithm.can_run(problem) || !chosen));
    return algorithm.can_run(problem);
  };
  constexpr int64_t kLarge = int64_t{1} << 31;
  CHECK((can_run(kSmallDots, 8 * 65535, 4, 64) && !can_run(kSmallDots, 8 * 65535 + 1, 4, 64)));
  CHECK((can_run(kSmallTiles, 16 * 65535, 4, 64) && !can_run(kSmallTiles, 16 * 65535 + 1, 4, 64)));
  for (const GemmAlgorithm* each : {&kSmallDots, &kSmallTiles}) {
    CHECK_FALSE(can_run(*each, 1, kLarge, 1));
    CHECK_FALSE(can_run(*each, 1, 1, kLarge));
    CHECK_FALSE(can_run(*each, 8, 1025, kLarge / 1024));
    CHECK_FALSE(can_run(*each, 1, 1, kLarge, /*broadcasts=*/true));
  }
  CHECK(can_run(kCublasLt, kLarge, 1, 1));
}

TEST_CASE("plans of matrix products on CUDA: only clusters share K") {
  const View a = matrix_of({1024, 10}, DType::f32, true), b = matrix_of({1024, 84}, DType::f32);
  const View y = matrix_of({10, 84}, DType::f32);
  CHECK(plan_gemm(a, b, nullptr, y).split_k == 8);
  for (const int capability : {75, 80, 86, 89}) {
    const DeviceProperties device = limited(kH200, 90, capability);
    const GemmProblem problem{a, b, nullptr, y, device, true};
    CHECK(kSmallTiles.plan(problem).split_k == 1);
    CHECK(kCublasLt.plan(problem).math_mode == (capability < 80 ? MathMode::fma : MathMode::tf32));
  }
}
