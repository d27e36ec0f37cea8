// Chooses the algorithm of C = A B among the descriptors, and runs batches of products.
#include <gradus/backends/openmp/gemm/gemm.h>

#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {
namespace {

// Calls f(candidate, transposed) for all algorithms that can run. An algorithm runs in the orientation in
// which C has fewer rows than columns, if it can.
template <class F>
void for_orientations(const GemmProblem& p, F&& f) {
  const bool tall = p.rows > p.columns;
  uint32_t seen = 0;
  for (const bool transposed : {tall, !tall})
    gemm_family().for_candidates(
        transposed ? p.transposed() : p,
        [&](const GemmCandidate& candidate) {
          seen |= uint32_t{1} << candidate.index;
          f(candidate, transposed);
        },
        seen);
}

// The transposed product: C^T = B^T A^T.
template <class T>
GemmArgs<T> transposed(GemmArgs<T> args) {
  std::swap(args.rows, args.columns);
  std::swap(args.a, args.b);
  std::swap(args.row_bias, args.column_bias);
  args.a = args.a.transposed(), args.b = args.b.transposed(), args.c = args.c.transposed();
  return args;
}

// The arguments of product `index` of a batch.
template <class T>
GemmArgs<T> product_of(GemmArgs<T> args, const GemmBatch& batch, int64_t index) {
  for (int axis = batch.shape.size() - 1; axis >= 0; --axis) {
    const int64_t at = index % batch.shape[axis];
    index /= batch.shape[axis];
    args.a.data += at * batch.a[axis];
    args.b.data += at * batch.b[axis];
    args.c.data += at * batch.c[axis];
  }
  return args;
}

}  // namespace

Sharing::Sharing(const GemmProblem& p) : threads(p.threads) {
  constexpr int64_t kSmallProduct = int64_t{1} << 19, kManyProducts = 16;
  if (p.products <= 1) return;
  const int64_t work = p.rows * p.columns * p.depth;
  const bool whole = work <= kSmallProduct || p.products >= kManyProducts;
  products_at_once = whole ? ceil_div(kLeastChunk, work + 1) : p.products;
  chunks = ceil_div(p.products, products_at_once);
  if (chunks > 1) threads = 1;
}

GemmProblem GemmProblem::transposed() const {
  const auto turned = [](const Strides& strides) { return Strides{strides.column, strides.row}; };
  GemmProblem p = *this;
  p.rows = columns, p.columns = rows;
  p.a = turned(b), p.b = turned(a), p.c = turned(c);
  return p;
}

const KernelFamily<GemmAlgorithm>& gemm_family() {
  static const KernelFamily<GemmAlgorithm> family(
      "gemm", {"full", "f16", "bf16"}, {&kCombineRows, &kRowDots, &kSmall, &kBlocked, &kBlockedHalf, &kBlockedPairs},
      tuned_devices(), tuning_table());
  return family;
}

std::vector<GemmCandidate> candidates(const GemmProblem& problem) {
  std::vector<GemmCandidate> all;
  for_orientations(problem, [&](const GemmCandidate& each, bool) { all.push_back(each); });
  return all;
}

GemmPlan select(const GemmProblem& problem) {
  if (problem.rows == 0 || problem.columns == 0) return {};
  thread_local RecentPlans<GemmProblem, GemmPlan> recent;
  const auto rows = static_cast<uint64_t>(problem.rows), columns = static_cast<uint64_t>(problem.columns);
  return recent.get(problem, (rows * 8191 + columns) * 8191 + static_cast<uint64_t>(problem.depth), [&] {
    const KernelFamily<GemmAlgorithm>& family = gemm_family();
    GemmProblem compared = problem;
    compared.threads = family.threads(problem.device_index());
    GemmCandidate best;
    bool transposed = false;
    for_orientations(compared, [&](const GemmCandidate& each, bool its_transposed) {
      if (each.estimated_us < best.estimated_us) best = each, transposed = its_transposed;
    });
    GRADUS_CHECK(best.algorithm, Error, "no algorithm of gemm can run");
    const Sharing sharing(problem);
    GemmProblem one = transposed ? problem.transposed() : problem;
    one.threads = sharing.threads;
    GemmPlan plan = best.algorithm->plan(one);
    plan.algorithm = best.algorithm;
    plan.implementation = family.implementation(problem.device_index(), best.index);
    plan.transposed = transposed;
    plan.products_at_once = sharing.products_at_once;
    plan.workspace_bytes *= std::min<int64_t>(problem.threads, sharing.chunks);
    return plan;
  });
}

template <class T>
void gemm(const KernelTable& table, const GemmPlan& plan, GemmArgs<T> args, GemmBatch batch) {
  if (args.rows == 0 || args.columns == 0) return;
  if (plan.transposed) args = transposed(args), std::swap(batch.a, batch.b);
  const int64_t products = numel_of(batch.shape), packed_size = plan.a_size + plan.b_size;
  // In a batch, products other than small ones allocate inside parallel chunks, which a dry run skips. So a dry run
  // allocates their maximum here.
  const bool in_chunks = detail::skips_chunks && products > 1 && packed_size == 0;
  const Scratch<uint8_t> of_batch(in_chunks ? static_cast<int64_t>(plan.workspace_bytes) : 0);
  const auto launch = std::get<GemmRun<T>>(plan.algorithm->launch);
  const auto run = [&](int64_t i, T* packed) { launch(table, plan, product_of(args, batch, i), packed); };
  if (products == 1) return run(0, Scratch<T>(packed_size).get());  // not in a chunk, so that a dry run allocates too
  parallel_each<T>(products, plan.products_at_once, packed_size, run);
}
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<float>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<double>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<Half>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<BFloat16>, GemmBatch);

}  // namespace gradus::openmp_detail
