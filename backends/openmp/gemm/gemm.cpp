// C = A B by the plan of select.h. A single row or few read B where it is; the others are products of register tiles
// (gemm_blocked.cpp, gemm_half.cpp).
#include <algorithm>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
namespace {

template <class T>
void product(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args, T* packed) {
  switch (plan.algorithm) {
    case GemmAlgorithm::combine_rows:
    case GemmAlgorithm::row_dots: return few_rows_gemm(kernels, plan, args);
    case GemmAlgorithm::small: return small_gemm(kernels, plan, args, packed);
    case GemmAlgorithm::blocked:
    case GemmAlgorithm::blocked_pairs: return blocked_gemm(kernels, plan, args);
  }
}

// Product `index` of a batch.
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

// An empty sum is a product of zeros; empty operands have no address to count from.
template <class T>
void without_empty_depth(GemmArgs<T>* args, GemmBatch* batch) {
  if (args->depth > 0) return;
  static constexpr T zero{};
  args->depth = 1;
  args->a = args->b = {&zero, 0, 0};
  batch->a = batch->b = Dims::filled(batch->shape.size(), 0);
}

}  // namespace

template <class T>
void gemm(const KernelTable& table, const GemmPlan& plan, GemmArgs<T> args, GemmBatch batch) {
  if (args.rows == 0 || args.columns == 0) return;
  if (plan.transposed) args = transposed(args), std::swap(batch.a, batch.b);
  without_empty_depth(&args, &batch);
  const int64_t packed_size = plan.a_size + plan.b_size;  // of small products
  const auto run = [&](int64_t i, [[maybe_unused]] T* packed) {
    if constexpr (sizeof(T) == 2) half_gemm(table, plan, product_of(args, batch, i));
    else product(kernels_of<T>(table), plan, product_of(args, batch, i), packed);
  };
  parallel_each<T>(product_count(batch), plan.products_at_once, packed_size, run);
}
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<float>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<double>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<Half>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<BFloat16>, GemmBatch);

}  // namespace gradus::openmp_detail
