// C = A B by the plan of select.h; half types: gemm_half.cpp. With few rows, B is read in place; other products use
// register tiles. Small products run on one thread and read contiguous operands in place. Large ones follow Goto and
// van de Geijn ("Anatomy of high-performance matrix multiplication", 2008): for each block of the depth, B is packed
// once for all threads, which then share blocks of C, divided by C's shape alone. The thread that computes a block
// packs the block's part of A, which stays in the second-level cache, while each tile of B stays in the first-level
// cache.
#include <algorithm>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {
namespace {

// A product by register tiles. Operands that the plan says to read in place are not packed; columns of B in place are
// whole vectors.
template <class T>
class TiledProduct {
 public:
  TiledProduct(const Kernels<T>& kernels, const GemmPlan& plan, const Cut& cut, const GemmArgs<T>& args)
      : kernels_(kernels), plan_(plan), cut_(cut), args_(args), width_(kernels.tile_columns),
        packed_columns_begin_(plan.b_in_place ? args.columns / kernels.vector_size * kernels.vector_size
                                              : plan.columns_in_place),
        tiles_(ceil_div(args.columns - packed_columns_begin_, width_)) {}

  // Processes one block of the depth after another, on all threads.
  void run() {
    const Scratch<T> packed_b(tiles_ * width_ * plan_.depth_at_once);
    packed_b_ = packed_b.get();
    const int64_t blocks = cut_.row_blocks * cut_.column_blocks;
    const int64_t packed_a_size = plan_.a_in_place ? 0 : slot_size(cut_.rows * plan_.depth_at_once);
    for (first_ = 0; first_ < args_.depth; first_ += plan_.depth_at_once) {
      depth_ = std::min(plan_.depth_at_once, args_.depth - first_);
      parallel_for(tiles_, ceil_div(kLeastPacked, width_ * depth_),
                   [&](int64_t begin, int64_t end) { pack_b(begin, end); });
      parallel_each<T>(blocks, 1, packed_a_size, [&](int64_t i, T* packed_a) { multiply(i, packed_a); });
    }
  }
  // Runs on this thread; `packed` has room for the packed operands.
  void run_small(T* packed) {
    packed_b_ = packed + plan_.a_size, depth_ = args_.depth;
    if (tiles_ > 0) pack_b(0, tiles_);
    multiply(0, packed);
  }

 private:
  void pack_b(int64_t first_tile, int64_t end_tile) const {
    const Matrix<const T>& b = args_.b;
    const int64_t offset = first_tile * width_, column = packed_columns_begin_ + offset;
    const int64_t count = std::min(args_.columns - column, (end_tile - first_tile) * width_);
    kernels_.pack_b(b.data + first_ * b.row_stride + column * b.column_stride, b.row_stride, b.column_stride, depth_,
                    count, packed_b_ + offset * depth_);
  }

  // Computes block i of C, first the columns whose B is read in place, then those whose B is packed.
  void multiply(int64_t i, T* packed_a) const {
    const int64_t row = i % cut_.row_blocks * cut_.rows, column = i / cut_.row_blocks * cut_.columns;
    const int64_t height = std::min(cut_.rows, args_.rows - row), end = std::min(args_.columns, column + cut_.columns);
    const int64_t split = std::clamp(packed_columns_begin_, column, end);
    const Matrix<const T>& a = args_.a;
    const T* from = a.data + row * a.row_stride + first_ * a.column_stride;
    if (!plan_.a_in_place) kernels_.pack_a(from, a.row_stride, a.column_stride, height, depth_, packed_a);

    BlockArgs<T> block;
    block.rows = height, block.depth = depth_;
    block.a = plan_.a_in_place ? from : packed_a;
    // With a depth of 1, the column stride is irrelevant.
    if (plan_.a_in_place) block.a_row_stride = a.row_stride, block.a_step = depth_ == 1 ? 1 : a.column_stride;
    block.c_row_stride = args_.c.row_stride;
    block.accumulate = args_.accumulate || first_ > 0;
    block.row_bias = first_ == 0 && args_.row_bias ? args_.row_bias + row : nullptr;
    const auto columns = [&](int64_t begin, int64_t end) {
      if (begin == end) return;
      block.columns = end - begin;
      block.c = args_.c.data + row * args_.c.row_stride + begin;
      block.column_bias = first_ == 0 && args_.column_bias ? args_.column_bias + begin : nullptr;
      kernels_.block(block);
    };
    block.b = args_.b.data + first_ * args_.b.row_stride + column;
    block.b_row_stride = args_.b.row_stride, block.b_tile_step = width_;
    columns(column, split);
    if (split == end) return;  // there are no packed columns
    block.b = packed_b_ + (split - packed_columns_begin_) * depth_, block.b_packed = true;
    block.b_row_stride = width_, block.b_tile_step = depth_ * width_;
    columns(split, end);
  }

  const Kernels<T>& kernels_;
  const GemmPlan& plan_;
  const Cut cut_;
  const GemmArgs<T>& args_;
  const int64_t width_;                 // of a tile
  const int64_t packed_columns_begin_;  // columns before this one are read in place
  const int64_t tiles_;                 // number of packed tiles
  int64_t first_ = 0, depth_ = 0;       // the current block of the depth
  T* packed_b_ = nullptr;
};

template <class T>
void product(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args, T* packed) {
  if (plan.algorithm == GemmAlgorithm::combine_rows || plan.algorithm == GemmAlgorithm::row_dots)
    return few_rows_gemm(kernels, plan, args);
  if (plan.algorithm == GemmAlgorithm::small)
    return TiledProduct<T>(kernels, plan, {args.rows, args.columns, 1, 1}, args).run_small(packed);
  for (int64_t column = 0; column < args.columns; column += plan.columns_at_once) {
    const GemmArgs<T> part = columns_of(args, column, std::min(column + plan.columns_at_once, args.columns));
    const bool last = column + part.columns == args.columns;
    TiledProduct<T>(kernels, plan, last ? plan.last_cut : plan.cut, part).run();
  }
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

template <class T>
void gemm(const KernelTable& table, const GemmPlan& plan, GemmArgs<T> args, GemmBatch batch) {
  if (args.rows == 0 || args.columns == 0) return;
  if (plan.transposed) args = transposed(args), std::swap(batch.a, batch.b);
  // packed_size: small products only
  const int64_t products = numel_of(batch.shape), packed_size = plan.a_size + plan.b_size;
  // In a batch, products other than small ones allocate inside parallel chunks, which a dry run skips. So a dry run
  // allocates their maximum here.
  const bool in_chunks = detail::skips_chunks && products > 1 && plan.algorithm != GemmAlgorithm::small;
  const Scratch<uint8_t> of_batch(in_chunks ? static_cast<int64_t>(plan.workspace_bytes) : 0);
  const auto run = [&](int64_t i, [[maybe_unused]] T* packed) {
    if constexpr (sizeof(T) == 2) half_gemm(table, plan, product_of(args, batch, i));
    else product(kernels_of<T>(table), plan, product_of(args, batch, i), packed);
  };
  if (products == 1) return run(0, Scratch<T>(packed_size).get());  // not in a chunk, so that a dry run allocates too
  parallel_each<T>(products, plan.products_at_once, packed_size, run);
}
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<float>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<double>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<Half>, GemmBatch);
template void gemm(const KernelTable&, const GemmPlan&, GemmArgs<BFloat16>, GemmBatch);

}  // namespace gradus::openmp_detail
