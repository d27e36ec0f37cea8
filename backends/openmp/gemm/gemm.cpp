// C = A B by the plan of select.h. A single row or few read B where it is; small products run on one thread with what
// is contiguous read in place; the others are blocked (gemm_blocked.cpp, gemm_half.cpp).
#include <algorithm>
#include <optional>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
namespace {

// Few rows: B's rows, each times an element of A, are added up in C.
template <class T>
void combine_rows(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args) {
  parallel_for(args.columns, plan.grain, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    for (int64_t m = 0; m < args.rows; ++m) {
      T* y = args.c.data + m * args.c.row_stride + begin;
      const T row_bias = args.row_bias ? args.row_bias[m] : T(0);
      if (!args.accumulate) std::fill_n(y, count, T(0));
      for (int64_t i = 0; args.row_bias && i < count; ++i) y[i] += row_bias;
      for (int64_t i = 0; args.column_bias && i < count; ++i) y[i] += args.column_bias[begin + i];
    }
    kernels.combine_rows({.rows = args.rows,
                          .columns = count,
                          .depth = args.depth,
                          .a = args.a.data,
                          .a_row_stride = args.a.row_stride,
                          .a_step = args.a.column_stride,
                          .b = args.b.data + begin,
                          .b_row_stride = args.b.row_stride,
                          .y = args.c.data + begin,
                          .y_row_stride = args.c.row_stride});
  });
}

// Few rows: the columns of B are shared out.
template <class T>
void row_dots(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args) {
  parallel_for(args.columns, plan.grain, [&](int64_t begin, int64_t end) {
    kernels.row_dots({.rows = args.rows,
                      .columns = end - begin,
                      .depth = args.depth,
                      .a = args.a.data,
                      .a_row_stride = args.a.row_stride,
                      .b = args.b.data + begin * args.b.column_stride,
                      .b_row_stride = args.b.column_stride,
                      .c = args.c.data + begin * args.c.column_stride,
                      .c_row_stride = args.c.row_stride,
                      .c_column_stride = args.c.column_stride,
                      .accumulate = args.accumulate,
                      .row_bias = args.row_bias,
                      .column_bias = args.column_bias ? args.column_bias + begin : nullptr});
  });
}

// Few rows or columns and a great depth: pieces of the depth are shared out, and their sums added in order.
template <class T>
void split_k_dots(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args) {
  const int64_t step = plan.depth_at_once, size = args.rows * args.columns;
  const Scratch<T> sums(kDepthSplits * size);
  parallel_for(kDepthSplits, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece)
      kernels.row_dots({.rows = args.rows,
                        .columns = args.columns,
                        .depth = std::min(step, args.depth - piece * step),
                        .a = args.a.data + piece * step,
                        .a_row_stride = args.a.row_stride,
                        .b = args.b.data + piece * step,
                        .b_row_stride = args.b.column_stride,
                        .c = sums.get() + piece * size,
                        .c_row_stride = args.columns,
                        .c_column_stride = 1});
  });
  for (int64_t piece = 1; piece < kDepthSplits; ++piece)
    kernels.binary[BinaryOp::add].apply(sums.get(), sums.get() + piece * size, sums.get(), size);
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

// Small products of one shape, one after another. What cannot be read in place is packed.
template <class T>
class SmallProduct {
 public:
  SmallProduct(const Kernels<T>& kernels, const GemmPlan& plan)
      : kernels_(kernels), plan_(plan), width_(kernels.tile_columns), packed_(plan.a_size + plan.b_size) {}

  void run(const GemmArgs<T>& args) const {
    BlockArgs<T> block;
    block.rows = args.rows, block.depth = args.depth;
    if (!plan_.a_in_place) {
      kernels_.pack_a(args.a.data, args.a.row_stride, args.a.column_stride, args.rows, args.depth, packed_.get());
      block.a = packed_.get();
    } else {
      block.a = args.a.data;
      block.a_row_stride = args.a.row_stride, block.a_step = args.depth == 1 ? 1 : args.a.column_stride;
    }
    block.accumulate = args.accumulate;
    block.row_bias = args.row_bias;
    block.c_row_stride = args.c.row_stride;
    const auto columns = [&](int64_t begin, int64_t end, const T* b, int64_t tile_step, int64_t row_stride) {
      if (begin == end) return;
      block.columns = end - begin;
      block.b = b, block.b_tile_step = tile_step, block.b_row_stride = row_stride;
      block.c = args.c.data + begin;
      block.column_bias = args.column_bias ? args.column_bias + begin : nullptr;
      kernels_.block(block);
    };
    columns(0, plan_.columns_in_place, args.b.data, width_, args.b.row_stride);
    if (plan_.columns_in_place == args.columns) return;
    T* b = packed_.get() + plan_.a_size;
    kernels_.pack_b(args.b.data + plan_.columns_in_place * args.b.column_stride, args.b.row_stride,
                    args.b.column_stride, args.depth, args.columns - plan_.columns_in_place, b);
    columns(plan_.columns_in_place, args.columns, b, width_ * args.depth, width_);
  }

 private:
  const Kernels<T>& kernels_;
  const GemmPlan& plan_;
  const int64_t width_;
  const Scratch<T> packed_;
};

template <class T>
void product(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args, const SmallProduct<T>* small) {
  switch (plan.algorithm) {
    case GemmAlgorithm::combine_rows: return combine_rows(kernels, plan, args);
    case GemmAlgorithm::row_dots: return row_dots(kernels, plan, args);
    case GemmAlgorithm::split_k_dots: return split_k_dots(kernels, plan, args);
    case GemmAlgorithm::small: return small->run(args);
    case GemmAlgorithm::blocked:
    case GemmAlgorithm::blocked_pairs: return blocked_gemm(kernels, plan, args);
  }
}

// The same by way of row-major memory.
template <class T>
void dense_product(const Kernels<T>& kernels, const GemmPlan& plan, GemmArgs<T> args, const SmallProduct<T>* small) {
  const auto each = [&](auto&& f) {
    for (int64_t i = 0; i < args.rows; ++i)
      for (int64_t j = 0; j < args.columns; ++j) f(i, j);
  };
  const auto at = [](const auto& m, int64_t i, int64_t j) -> auto& {
    return m.data[i * m.row_stride + j * m.column_stride];
  };
  const Scratch<T> memory(args.rows * args.columns);
  const Matrix<T> target = args.c, dense{memory.get(), args.columns, 1};
  if (args.accumulate) each([&](int64_t i, int64_t j) { at(dense, i, j) = at(target, i, j); });
  args.c = dense;
  product(kernels, plan, args, small);
  each([&](int64_t i, int64_t j) { at(target, i, j) = at(dense, i, j); });
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
  const auto some = [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      for (int64_t i = begin; i < end; ++i) half_gemm(table, plan, product_of(args, batch, i));
    } else {
      const Kernels<T>& kernels = kernels_of<T>(table);
      std::optional<SmallProduct<T>> small;
      if (plan.algorithm == GemmAlgorithm::small) small.emplace(kernels, plan);
      for (int64_t i = begin; i < end; ++i)
        if (const GemmArgs<T> one = product_of(args, batch, i); plan.dense_c)
          dense_product(kernels, plan, one, small ? &*small : nullptr);
        else product(kernels, plan, one, small ? &*small : nullptr);
    }
  };
  const int64_t products = product_count(batch);
  products == 1 ? some(0, 1) : parallel_for(products, plan.products_at_once, some);
}
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<float>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<double>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<Half>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<BFloat16>, GemmBatch);

}  // namespace gradus::openmp_detail
