// Products with few rows: each element of B is used so rarely that B is read in place (gemv_kernel.h). Threads share
// the columns. B's elements may have a half type; they are converted while they are read.
#include <cmath>

#include <gradus/backends/openmp/gemm/half_rows.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {
namespace {

using namespace gemm_part;

// Calls product(args) for the chunks of columns of C, which threads share. If T is a half type, A and C of these
// arguments are floats: A is converted, and C is summed in float.
template <class T, class Product>
void for_chunks(const KernelTable& table, const GemmPlan& plan, const GemmArgs<T>& args, Product&& product) {
  const auto run = [&](const auto& wide) {
    parallel_for(wide.columns, plan.grain, [&](int64_t begin, int64_t end) { product(columns_of(wide, begin, end)); });
  };
  if constexpr (sizeof(T) > 2) {
    run(args);
  } else {
    const int64_t rows = args.rows, columns = args.columns, depth = args.depth;
    const HalfRows<T> half(table, args);
    const Scratch<float> a(rows * depth), sums(rows * columns), bias(columns);
    for (int64_t m = 0; m < rows; ++m)
      half.widen(args.a.data + m * args.a.row_stride, args.a.column_stride, depth, a.get() + m * depth);
    half.start(0, rows, 0, columns, bias.get(), sums.get(), columns);
    run(GemmArgs<float, T>{.rows = rows,
                           .columns = columns,
                           .depth = depth,
                           .a = {a.get(), depth, 1},
                           .b = args.b,
                           .c = {sums.get(), columns, 1},
                           .accumulate = true});
    half.finish(0, rows, 0, columns, sums.get(), columns);
  }
}

constexpr auto run_dots = []<class T>(const KernelTable& table, const GemmPlan& plan, const GemmArgs<T>& args, T*) {
  for_chunks(table, plan, args, [&](const auto& part) { kernels_of<T>(table).row_dots(part); });
};
constexpr auto run_combine = []<class T>(const KernelTable& table, const GemmPlan& plan, const GemmArgs<T>& args, T*) {
  for_chunks(table, plan, args, [&](const auto& part) {
    for (int64_t m = 0; m < part.rows; ++m) {
      auto* y = part.c.data + m * part.c.row_stride;
      if (!part.accumulate) std::fill_n(y, part.columns, 0.0f);
      for (int64_t i = 0; part.row_bias && i < part.columns; ++i) y[i] += part.row_bias[m];
      for (int64_t i = 0; part.column_bias && i < part.columns; ++i) y[i] += part.column_bias[i];
    }
    kernels_of<T>(table).combine_rows(part);
  });
};

// Plans chunks of whole columns of C. A chunk has at least `least_columns` columns and kLeastChunk multiply-adds, and
// its number of columns is a multiple of `step`.
GemmPlan plan_of(const GemmProblem& p, int64_t least_columns, int64_t step) {
  const int64_t columns = std::max(ceil_div(kLeastChunk, p.rows * p.depth), least_columns);
  GemmPlan plan;
  plan.grain = round_up(columns, p.is_half() ? 64 : step);
  if (p.is_half()) plan.workspace_bytes = (p.rows * (p.depth + p.columns) + p.columns) * int64_t{sizeof(float)};
  return plan;
}
GemmPlan plan_dots(const GemmProblem& p) { return plan_of(p, 1, 8); }
GemmPlan plan_combine(const GemmProblem& p) {
  constexpr int64_t kLongRow = 2048;  // elements
  return plan_of(p, std::min(p.columns / 4, kLongRow) + 1, 64);
}

// Calls f(height, count) for the groups of rows of A that gemv_kernel.h multiplies with each vector of B.
template <class F>
void for_panels(int64_t rows, int64_t most, bool halves, F&& f) {
  if (rows >= most) f(most, rows / most);
  rows %= most;
  if (halves && rows > 1) f(2, 1), rows -= 2;
  if (rows > 0) f(rows, 1);
}

// Indices in kParts after those of gemm_part. A pass reads and writes a row of C (combine_rows), or is a tile of sums
// (row_dots).
enum Part : size_t { kBBytes = 5, kCVectors, kPasses, kPartialVectors, kSharedLines };
// Conversions of half types. They are counted in elements, but kPartialHalves in partial vectors at the ends of rows.
enum HalfPart : size_t { kConverted = kSharedLines + 1, kGathered, kScattered, kPartialHalves };
constexpr WorkParts kParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                               {"loops", WorkLimit::loops},
                               {"calls", WorkLimit::loops},
                               {"products"},
                               {"far_bytes", WorkLimit::bytes},
                               {"b_bytes", WorkLimit::bytes},
                               {"c_vectors", WorkLimit::multiply_adds},
                               {"passes"},
                               {"partial_vectors"},
                               {"shared_lines"},
                               {"converted"},
                               {"gathered"},
                               {"scattered"},
                               {"partial_halves"}}};

// Adds the parts of the work that both algorithms have. The threads share the columns in chunks of `grain` columns.
KernelWork with_operands(KernelWork work, const GemmProblem& p, int64_t grain, double panels) {
  const double depth = number(p.depth), columns = number(p.columns);
  work[kBBytes] = panels * depth * columns * number(p.element());
  const double share = share_of(p.threads, p.columns, grain);
  for (double& part : work) part *= share;
  work[kFarBytes] = (panels - 1) * far_bytes(work[kBBytes] / panels);
  work[kLoops] = share < 1 ? 1 : 0;
  if (p.is_half()) {
    const double rows = number(p.rows);
    work[kPartialHalves] += rows;
    work[p.a.column == 1 ? kConverted : kGathered] += rows * depth;
    work[p.has_rows() ? kConverted : kScattered] += rows * columns;
  }
  return work;
}

KernelWork dots_work(const GemmProblem& problem) {
  return of_batch(problem, [](const GemmProblem& p) {
    const Registers tile = p.tile();
    const double steps = number(ceil_div(p.depth, tile.vector));
    KernelWork work = {};
    double panels = 0;
    for_panels(p.rows, tile.dot_rows, false, [&](int64_t height, int64_t count) {
      const double rows = number(height), groups = number(count);
      const int64_t together = height == 1 ? 8 : 4;
      const double tiles = number(p.columns / together), rest = number(p.columns % together);
      work[kMultiplyAdds] += groups * steps * (tiles * tile_step(rows, number(together)) + rest * tile_step(rows, 1));
      work[kPasses] += groups * (tiles + rest);
      if (p.is_half() && p.depth % tile.vector > 0) work[kPartialHalves] += groups * number(p.columns);
      panels += groups;
    });
    work[kCVectors] = number(p.rows) * number(p.columns);
    return with_operands(work, p, plan_dots(p).grain, panels);
  });
}

KernelWork combine_work(const GemmProblem& problem) {
  return of_batch(problem, [](const GemmProblem& p) {
    const Registers tile = p.tile();
    const GemmPlan plan = plan_combine(p);
    const int64_t chunks = ceil_div(p.columns, plan.grain);
    const double depth = number(p.depth);
    const bool aligned = (p.is_half() ? p.columns * 4 : p.c.row * p.element()) % 64 == 0;
    const double vectors = number(ceil_div(p.columns, tile.vector));
    KernelWork work = {};
    double panels = 0;
    for_panels(p.rows, 4, true, [&](int64_t height, int64_t count) {
      const double rows = number(height), groups = number(count);
      const int64_t together = height == 1 ? 8 : 4 * tile.dot_rows / height;
      const double passes = number(p.depth / together + p.depth % together);
      work[kMultiplyAdds] += groups * depth * vectors * rows;
      work[kCVectors] += groups * rows * vectors * passes;
      work[kPasses] += groups * passes * number(chunks);
      if (p.is_half() && p.columns % tile.vector > 0) work[kPartialHalves] += groups * depth;
      // A masked store does not forward to the next load of the same bytes.
      if (p.columns < tile.vector) work[kPartialVectors] += groups * rows * passes;
      // Two threads write to the same cache line where the chunk of one thread ends and that of the next begins.
      if (chunks > 1 && p.threads > 1 && p.rows > 1 && !aligned) work[kSharedLines] += groups * rows * passes;
      panels += groups;
    });
    work[kSharedLines] /= panels;  // threads share a line only while they process the same panel of rows
    return with_operands(work, p, plan.grain, panels);
  });
}

}  // namespace

const GemmAlgorithm kRowDots = {
    .name = "row_dots",
    .reason = "both operands are contiguous along the sum, and too small to be worth packing",
    .parts = kParts,
    .can_run = [](const GemmProblem& p) { return p.b.row == 1 && (p.a.column == 1 || p.is_half()); },
    .work = dots_work,
    .plan = plan_dots,
    .launch = {run_dots, run_dots, run_dots, run_dots}};

const GemmAlgorithm kCombineRows = {
    .name = "combine_rows",
    .reason = "few rows, and B's rows are contiguous",
    .parts = kParts,
    .can_run = [](const GemmProblem& p) { return p.b.column == 1 && (p.has_rows() || p.is_half()); },
    .work = combine_work,
    .plan = plan_combine,
    .launch = {run_combine, run_combine, run_combine, run_combine}};

}  // namespace gradus::openmp_detail
