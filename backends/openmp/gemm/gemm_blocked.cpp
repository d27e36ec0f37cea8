// C = A B in the manner of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008): one piece
// of the depth after another, its part of B is packed once for all threads, which then share out blocks of C, cut by
// its shape alone. Whoever takes a block packs its part of A, which stays in the second-level cache while the tiles of
// B, each of which stays in the first, go by.
#include <algorithm>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
namespace {

// What the plan says to read in place is not packed; of B those are whole vectors.
template <class T>
class Product {
 public:
  Product(const Kernels<T>& kernels, const GemmPlan& plan, const Cut& cut, const GemmArgs<T>& args)
      : kernels_(kernels), args_(args), rows_(args.rows), columns_(args.columns), cut_(cut),
        a_in_place_(plan.a_in_place), depth_step_(plan.depth_at_once),
        packed_columns_begin_(plan.b_in_place ? columns_ / kernels.vector_size * kernels.vector_size : 0) {}

  void run() {
    const Scratch<T> packed_b(round_up(columns_ - packed_columns_begin_, kernels_.tile_columns) * depth_step_);
    packed_b_ = packed_b.get();
    for (first_ = 0; first_ < args_.depth; first_ += depth_step_) {
      depth_ = std::min(depth_step_, args_.depth - first_);
      pack_b();
      multiply();
    }
  }

 private:
  void pack_b() {
    const int64_t tiles = ceil_div(columns_ - packed_columns_begin_, kernels_.tile_columns);
    const Matrix<const T>& b = args_.b;
    const int64_t grain = ceil_div(kLeastPacked, kernels_.tile_columns * depth_);
    parallel_for(tiles, grain, [&](int64_t begin, int64_t end) {
      const int64_t offset = begin * kernels_.tile_columns, column = packed_columns_begin_ + offset;
      const int64_t count = std::min(columns_ - column, (end - begin) * kernels_.tile_columns);
      kernels_.pack_b(b.data + first_ * b.row_stride + column * b.column_stride, b.row_stride, b.column_stride, depth_,
                      count, packed_b_ + offset * depth_);
    });
  }

  void multiply() {
    parallel_for(cut_.row_blocks * cut_.column_blocks, 1, [&](int64_t begin, int64_t end) {
      const Scratch<T> packed_a(a_in_place_ ? 0 : cut_.rows * depth_);
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t row = piece % cut_.row_blocks * cut_.rows, column = piece / cut_.row_blocks * cut_.columns;
        const int64_t height = std::min(cut_.rows, rows_ - row), last = std::min(columns_, column + cut_.columns);
        const int64_t split = std::clamp(packed_columns_begin_, column, last);
        const Matrix<const T>& a = args_.a;
        if (!a_in_place_)
          kernels_.pack_a(a.data + row * a.row_stride + first_ * a.column_stride, a.row_stride, a.column_stride, height,
                          depth_, packed_a.get());
        if (split > column) block(row, height, packed_a.get(), column, split - column, /*b_packed=*/false);
        if (last > split) block(row, height, packed_a.get(), split, last - split, /*b_packed=*/true);
      }
    });
  }

  void block(int64_t row, int64_t height, const T* packed_a, int64_t column, int64_t width, bool b_packed) const {
    BlockArgs<T> block;
    block.rows = height;
    block.columns = width;
    block.depth = depth_;
    block.a = packed_a;
    if (a_in_place_) {
      block.a = args_.a.data + row + first_ * args_.a.column_stride;
      block.a_step = args_.a.column_stride;
    }
    block.b = b_packed ? packed_b_ + (column - packed_columns_begin_) * depth_
                       : args_.b.data + first_ * args_.b.row_stride + column;
    block.b_tile_step = b_packed ? depth_ * kernels_.tile_columns : kernels_.tile_columns;
    block.b_packed = b_packed;
    block.b_row_stride = b_packed ? kernels_.tile_columns : args_.b.row_stride;
    block.c = args_.c.data + row * args_.c.row_stride + column;
    block.c_row_stride = args_.c.row_stride;
    const bool starts = first_ == 0;
    block.accumulate = args_.accumulate || !starts;
    block.row_bias = starts && args_.row_bias ? args_.row_bias + row : nullptr;
    block.column_bias = starts && args_.column_bias ? args_.column_bias + column : nullptr;
    kernels_.block(block);
  }

  const Kernels<T>& kernels_;
  const GemmArgs<T>& args_;
  const int64_t rows_, columns_;
  const Cut& cut_;
  const bool a_in_place_;
  const int64_t depth_step_;
  const int64_t packed_columns_begin_;  // columns before are read in place
  int64_t first_ = 0, depth_ = 0;       // the part of the depth that is multiplied now
  T* packed_b_ = nullptr;
};

}  // namespace

template <class T>
void blocked_gemm(const Kernels<T>& kernels, const GemmPlan& plan, const GemmArgs<T>& args) {
  for (int64_t column = 0; column < args.columns; column += plan.columns_at_once) {
    GemmArgs<T> part = args;
    part.columns = std::min(plan.columns_at_once, args.columns - column);
    part.b.data += column * args.b.column_stride;
    part.c.data += column;
    if (part.column_bias) part.column_bias += column;
    const bool last = column + part.columns == args.columns;
    Product<T>(kernels, plan, last ? plan.last_cut : plan.cut, part).run();
  }
}
template void blocked_gemm(const Kernels<float>&, const GemmPlan&, const GemmArgs<float>&);
template void blocked_gemm(const Kernels<double>&, const GemmPlan&, const GemmArgs<double>&);

}  // namespace gradus::openmp_detail
