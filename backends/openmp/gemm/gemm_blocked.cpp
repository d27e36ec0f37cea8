// C = A B in the manner of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008): one piece
// of the depth after another, its part of B is packed once for all threads, which then share out blocks of C, cut by
// its shape alone. Whoever takes a block packs its part of A, which stays in the second-level cache while the tiles of
// B, each of which stays in the first, go by.
#include <algorithm>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

constexpr int64_t kColumnsAtOnce = 4096;           // most columns of B that are packed at a time
constexpr int64_t kRowPanels = 20;                 // register tiles in a block of C, at most
constexpr int64_t kRowPanelsWanted = 5;            // below, B's tiles are loaded for too little
constexpr int64_t kColumnTilesWanted = 8;          // below, A is packed for too little
constexpr int64_t kBlocksWanted = 8;               // blocks of C for the threads to share
constexpr int64_t kLeastBlock = int64_t{1} << 18;  // multiplications that are worth a block of their own
constexpr int64_t kShallow = 32;        // a depth with which C costs more to write than to compute: row by row
constexpr int64_t kDepthInPlace = 512;  // operands deeper than this are packed, whatever their layout
constexpr int64_t kRowsInPlace = 128;   // rows of C for which B is not packed

}  // namespace

Cut cut_of(int64_t rows, int64_t columns, int64_t depth, int64_t tile_rows, int64_t tile_columns) {
  int64_t row_step = depth <= kShallow ? std::min(rows, tile_rows) : rows, column_step = columns;
  while (row_step > tile_rows * kRowPanels) row_step = divide_up(row_step, 2);
  const auto blocks = [&] { return divide_up(rows, row_step) * divide_up(columns, column_step); };
  while (blocks() < kBlocksWanted && row_step * column_step * depth >= 2 * kLeastBlock) {
    const bool tall = row_step > tile_rows * kRowPanelsWanted, wide = column_step > tile_columns * kColumnTilesWanted;
    if (tall || (!wide && row_step >= column_step && row_step > tile_rows)) row_step = divide_up(row_step, 2);
    else if (column_step > tile_columns) column_step = round_up(divide_up(column_step, 2), tile_columns);
    else break;
  }
  row_step = divide_up(rows, divide_up(rows, row_step));
  return {row_step, column_step, divide_up(rows, row_step), divide_up(columns, column_step)};
}

namespace {

// A is read in place where its columns are contiguous; so are B's whole vectors where its rows are and too few rows of
// C share them to pay for packing.
template <class T>
class Product {
 public:
  Product(const Kernels<T>& kernels, const GemmArgs<T>& args)
      : kernels_(kernels), args_(args), rows_(args.rows), columns_(args.columns),
        cut_(cut_of(args.rows, args.columns, args.depth, kernels.tile_rows, kernels.tile_columns)),
        a_in_place_(args.a.row_stride == 1 && args.a.column_stride != 0 && args.depth <= kDepthInPlace),
        b_in_place_(args.b.column_stride == 1 && args.depth <= kDepthInPlace && args.rows <= kRowsInPlace),
        packed_columns_begin_(b_in_place_ ? columns_ / kernels.vector_size * kernels.vector_size : 0) {
    const int64_t most = a_in_place_ || b_in_place_ ? kDepthInPlace : kDepthBlock;
    depth_step_ = divide_up(args.depth, divide_up(args.depth, most));
  }

  void run() {
    const Scratch<T> packed_b(round_up(columns_ - packed_columns_begin_, kernels_.tile_columns) * depth_step_);
    const Scratch<int64_t> offsets(2 * depth_step_);
    packed_b_ = packed_b.get();
    packed_offsets_ = offsets.get(), in_place_offsets_ = offsets.get() + depth_step_;
    for (int64_t k = 0; k < depth_step_; ++k) {
      packed_offsets_[k] = k * kernels_.tile_columns;
      in_place_offsets_[k] = k * args_.b.row_stride;
    }
    for (first_ = 0; first_ < args_.depth; first_ += depth_step_) {
      depth_ = std::min(depth_step_, args_.depth - first_);
      pack_b();
      multiply();
    }
  }

 private:
  void pack_b() {
    const int64_t tiles = divide_up(columns_ - packed_columns_begin_, kernels_.tile_columns);
    const Matrix<const T>& b = args_.b;
    const int64_t grain = divide_up(kLeastPacked, kernels_.tile_columns * depth_);
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
    block.offsets = b_packed ? packed_offsets_ : in_place_offsets_;
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
  const Cut cut_;
  const bool a_in_place_, b_in_place_;
  const int64_t packed_columns_begin_;  // columns before are read in place
  int64_t depth_step_ = 0;
  int64_t first_ = 0, depth_ = 0;  // the part of the depth that is multiplied now
  T* packed_b_ = nullptr;
  int64_t *packed_offsets_ = nullptr, *in_place_offsets_ = nullptr;
};

}  // namespace

template <class T>
void blocked_gemm(const Kernels<T>& kernels, const GemmArgs<T>& args) {
  const int64_t parts = divide_up(args.columns, kColumnsAtOnce);
  const int64_t step = round_up(divide_up(args.columns, parts), kernels.tile_columns);
  for (int64_t column = 0; column < args.columns; column += step) {
    GemmArgs<T> part = args;
    part.columns = std::min(step, args.columns - column);
    part.b.data += column * args.b.column_stride;
    part.c.data += column;
    if (part.column_bias) part.column_bias += column;
    Product<T>(kernels, part).run();
  }
}
template void blocked_gemm(const Kernels<float>&, const GemmArgs<float>&);
template void blocked_gemm(const Kernels<double>&, const GemmArgs<double>&);

}  // namespace gradus::openmp
