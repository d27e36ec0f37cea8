// The choices of select() (backends/openmp/gemm/gemm.h), and that products allocate the memory of the plan.
#include <sstream>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/tests/backends/decisions.h>
#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::openmp_detail;

namespace {

struct Sizes {
  int64_t m, n, k, products = 1;
};

// y = a b for row-major matrices, or for their transposes.
GemmProblem problem_of(const KernelTable& table, int threads, const Sizes& s, DType dtype, bool a_transposed,
                       bool b_transposed) {
  return {.table = &table,
          .threads = threads,
          .dtype = dtype,
          .rows = s.m,
          .columns = s.n,
          .depth = s.k,
          .a = a_transposed ? GemmProblem::Strides{1, s.m} : GemmProblem::Strides{s.k, 1},
          .b = b_transposed ? GemmProblem::Strides{1, s.k} : GemmProblem::Strides{s.n, 1},
          .c = {s.n, 1},
          .products = s.products};
}

std::string text_of(const GemmPlan& plan, const GemmAlgorithm& algorithm) {
  std::ostringstream out;
  out << algorithm.name << (plan.transposed ? " transposed" : "") << " |";
  if (plan.grain > 0) out << " grain " << plan.grain;
  if (plan.depth_at_once > 0) out << " depth " << plan.depth_at_once;
  if (plan.a_in_place) out << " a_in_place";
  if (plan.b_in_place) out << " b_in_place";
  if (plan.columns_in_place > 0) out << " columns_in_place " << plan.columns_in_place;
  if (plan.columns_at_once > 0) {
    out << " columns " << plan.columns_at_once;
    for (const Cut* cut : {&plan.cut, &plan.last_cut})
      out << ", " << cut->row_blocks << " x " << cut->column_blocks << " blocks of " << cut->rows << " x "
          << cut->columns;
  }
  if (plan.products_at_once > 1) out << ", products " << plan.products_at_once;
  out << " | " << plan.workspace_bytes;
  return out.str();
}
std::string text_of(const GemmPlan& plan) { return text_of(plan, *plan.algorithm) + '\n'; }

constexpr Sizes kSizes[] = {
    {1, 1000, 500},   {4, 512, 512},     {6, 10, 84},        {16, 16, 16},       {32, 32, 512},
    {128, 10, 5000},  {128, 100, 784},   {128, 784, 100},    {64, 64, 400},      {100, 2000, 20},
    {512, 512, 512},  {129, 5000, 1025}, {1024, 4, 4096},    {64, 9000, 64},     {7, 33, 4096},
    {16, 16, 32, 64}, {200, 70, 60, 3},  {128, 128, 64, 32}, {2048, 2048, 2048},
};

}  // namespace

TEST_CASE("the openmp backend chooses the listed algorithms and blocks for matrix products") {
  std::ostringstream out;
  out << "instruction set, type, A B (t: transposed) | algorithm | blocks | workspace in bytes, two threads\n";
  for (const Sizes& s : kSizes) {
    out << '\n' << s.m << " x " << s.n << " x " << s.k;
    if (s.products > 1) out << ", " << s.products << " products";
    out << '\n';
    for (const auto& [isa, table] : test::all_instruction_sets())
      for (DType dtype : {DType::f32, DType::f64, DType::bf16})
        for (int layout = 0; layout < 4; ++layout) {
          // The other instruction sets and types differ from AVX-512 only in tile sizes, so one layout is enough.
          if ((isa != "avx512" || dtype != DType::f32) && layout != 2) continue;
          const bool a = layout & 1, b = layout & 2;
          out << isa << ' ' << name(dtype) << (a ? " At" : " A") << (b ? "Bt" : "B") << " | "
              << text_of(select(problem_of(*table, 2, s, dtype, a, b)));
        }
  }
  test::check_decisions("backends/gemm_decisions.txt", out.str());
}

TEST_CASE("every algorithm of matrix products that can run has the listed blocks and the listed work") {
  std::ostringstream out;
  out << "instruction set, type, A B (t: transposed) | algorithm | blocks | workspace in bytes, two threads | work\n";
  const auto tables = test::all_instruction_sets();
  const auto list = [&](size_t set, const Sizes& s, DType dtype, bool a, bool b) {
    const GemmProblem p = problem_of(*tables[set].second, 2, s, dtype, a, b);
    for (const bool turned : {false, true}) {
      const GemmProblem problem = turned ? p.transposed() : p;
      gemm_family().for_candidates(problem, [&](const GemmCandidate& each) {
        out << tables[set].first << ' ' << name(dtype) << (a ? " At" : " A") << (b ? "Bt" : "B")
            << (turned ? ", C^T" : "") << " | " << text_of(each.algorithm->plan(problem), *each.algorithm) << " | ";
        test::print_work(out, each.algorithm->parts, each.work);
        out << '\n';
      });
    }
  };
  for (const Sizes& s : kSizes) {
    if (tables.empty()) break;
    out << '\n' << s.m << " x " << s.n << " x " << s.k << (s.products > 1 ? ", several products\n" : "\n");
    list(0, s, DType::f64, false, false);
    list(1, s, DType::f32, true, true);
    list(2, s, DType::bf16, false, true);
  }
  test::check_decisions("backends/gemm_work.txt", out.str());
}

TEST_CASE("the number of threads changes nothing but the workspace of a product's plan") {
  bool larger = false;
  for (const auto& [isa, table] : test::all_instruction_sets())
    for (const Sizes& s : kSizes)
      for (DType dtype : {DType::f32, DType::f16}) {
        GemmPlan one = select(problem_of(*table, 1, s, dtype, false, false));
        const GemmPlan many = select(problem_of(*table, 16, s, dtype, false, false));
        larger = larger || many.workspace_bytes > one.workspace_bytes;
        one.workspace_bytes = many.workspace_bytes;
        CHECK(text_of(one) == text_of(many));
      }
  CHECK(larger);
}

TEST_CASE("openmp matrix products allocate the scratch memory of their plan and report its algorithm") {
  struct Last final : Observer {
    std::string implementation;
    void on_end(const ObservedEvent& event) override { implementation = event.implementation; }
  } last;
  add_observer(&last);
  DeviceRuntime& memory = runtime(DeviceType::cpu);
  const Sizes sizes[] = {{1, 300, 40}, {4, 70, 80},     {20, 16, 16},   {30, 50, 300},    {40, 9, 5000},  {100, 90, 80},
                         {70, 500, 9}, {300, 200, 600}, {5, 7, 40, 20}, {60, 70, 90, 20}, {150, 4200, 33}};
  for (const Sizes& s : sizes)
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
      for (int layout = 0; layout < 4; ++layout) {
        const bool a_transposed = layout & 1, b_transposed = layout & 2;
        const auto matrices = [&](int64_t rows, int64_t columns, bool transposed) {
          return transposed ? test::random({s.products, columns, rows}, dtype).transpose(1, 2)
                            : test::random({s.products, rows, columns}, dtype);
        };
        const Array a = matrices(s.m, s.k, a_transposed), b = matrices(s.k, s.n, b_transposed);
        const Array y = Array::empty({s.products, s.m, s.n}, dtype);
        for (CpuIsa isa : test::instruction_sets()) {
          set_cpu_isa(isa);
          const KernelTable& table = kernel_table();
          for (int threads : {1, 2, 3}) {
            INFO(name(isa) << ' ' << name(dtype) << ' ' << s.m << " x " << s.n << " x " << s.k << ", " << s.products
                           << " products, layout " << layout << ", " << threads << " threads");
            set_num_threads(threads);
            const GemmPlan plan = select(problem_of(table, threads, s, dtype, a_transposed, b_transposed));
            memory.reset_peak_memory_stats(0);
            const int64_t before = memory.memory_stats(0).allocated;
            test::openmp().matmul(a, b, y, false);
            const int64_t taken = memory.memory_stats(0).peak_allocated - before;
            CHECK(last.implementation == plan.implementation);
            // In a batch of blocked products each product allocates its own memory when a thread starts it.
            if (threads == 1 || s.products == 1) CHECK(taken == plan.workspace_bytes);
            else CHECK(taken <= plan.workspace_bytes);
          }
        }
      }
  remove_observer(&last);
  set_cpu_isa(best_cpu_isa());
  set_num_threads(2);
}
