// C = A B by the plan of select.h. A single row or few read B where it is; the others are products of register tiles
// (gemm_blocked.cpp, gemm_half.cpp).
#include <algorithm>

#include <gradus/backends/openmp/gemm/few_rows.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
namespace {

// Few rows or columns and a great depth: splits of the depth are shared out, and their sums added in order.
template <class T>
void split_k_dots(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args) {
  const int64_t step = plan.depth_at_once, size = args.rows * args.columns;
  const Scratch<T> sums(kDepthSplits * size);
  parallel_for(kDepthSplits, 1, [&](int64_t begin, int64_t end) {
    for (int64_t split = begin; split < end; ++split)
      kernels.row_dots({.rows = args.rows,
                        .columns = args.columns,
                        .depth = std::min(step, args.depth - split * step),
                        .a = args.a.data + split * step,
                        .a_row_stride = args.a.row_stride,
                        .b = args.b.data + split * step,
                        .b_row_stride = args.b.column_stride,
                        .c = sums.get() + split * size,
                        .c_row_stride = args.columns,
                        .c_column_stride = 1});
  });
  for (int64_t split = 1; split < kDepthSplits; ++split)
    kernels.binary[BinaryOp::add].apply(sums.get(), sums.get() + split * size, sums.get(), size);
  for (int64_t m = 0; m < args.rows; ++m)
    for (int64_t n = 0; n < args.columns; ++n) {
      T* c = args.c.data + m * args.c.row_stride + n * args.c.column_stride;
      T value = sums[m * args.columns + n];
      if (args.accumulate) value += *c;
      if (args.row_bias) value += args.row_bias[m];
      if (args.column_bias) value += args.column_bias[n];
      *c = value;
    }
}

template <class T>
void product(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args, T* packed) {
  switch (plan.algorithm) {
    case GemmAlgorithm::combine_rows: return combine_rows(kernels, plan, args);
    case GemmAlgorithm::row_dots: return row_dots(kernels, plan, args);
    case GemmAlgorithm::split_k_dots: return split_k_dots(kernels, plan, args);
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
  const int64_t products = product_count(batch);
  const int slots = parallel_slots(products, plan.products_at_once);
  const Slots<T> packed(slots, plan.a_size + plan.b_size);  // of small products
  const auto some = [&](int64_t begin, int64_t end, int slot) {
    for (int64_t i = begin; i < end; ++i)
      if constexpr (sizeof(T) == 2) half_gemm(table, plan, product_of(args, batch, i));
      else product(kernels_of<T>(table), plan, product_of(args, batch, i), packed[slot]);
  };
  products == 1 ? some(0, 1, 0) : parallel_for(products, plan.products_at_once, slots, some);
}
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<float>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<double>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<Half>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<BFloat16>, GemmBatch);

}  // namespace gradus::openmp_detail
