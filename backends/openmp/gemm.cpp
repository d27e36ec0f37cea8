// C = A B in the manner of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008): A and B are
// packed once into the order in which the register tile (gemm_kernel.h) reads them, cut along the depth so that a tile of
// B stays in the first-level cache and a block of A in the second. C is cut into blocks, by its shape alone, which the
// threads share out.
#include <algorithm>

#include <gradus/backends/openmp/gemm.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

constexpr int64_t kDepthBlock = 256;  // rows of a packed tile of B that share the first-level cache
constexpr int64_t kRowPanels = 8;     // register tiles in a block of C, at most
constexpr int64_t kColumnTiles = 8;
constexpr int64_t kBlocksWanted = 16;                  // blocks of C for the threads to share
constexpr int64_t kLeastBlock = int64_t{1} << 17;      // multiplications that are worth a block of their own
constexpr int64_t kLeastPacked = 8192;                 // elements that are worth a chunk of packing
constexpr int64_t kDepthInPlace = 512;                 // operands deeper than this are packed, whatever their layout
constexpr int64_t kRowsInPlace = 128;                  // rows of C for which B is not packed
constexpr int64_t kPackedElements = int64_t{1} << 24;  // most elements packed at a time

// How C is cut: `rows` by `columns` a block, `row_blocks` by `column_blocks` of them.
struct Cut {
  int64_t rows, columns, row_blocks, column_blocks;
};

Cut cut_of(int64_t rows, int64_t columns, int64_t depth, int64_t tile_rows, int64_t tile_columns) {
  int64_t row_step = tile_rows * kRowPanels, column_step = tile_columns * kColumnTiles;
  const auto blocks = [&] { return divide_up(rows, row_step) * divide_up(columns, column_step); };
  while (blocks() < kBlocksWanted) {
    const int64_t height = std::min(rows, row_step), width = std::min(columns, column_step);
    if (height * width * depth < 2 * kLeastBlock) break;
    if (width >= height && width > tile_columns)
      column_step = std::max(tile_columns, round_up(width / 2, tile_columns));
    else if (height > tile_rows) row_step = std::max(tile_rows, divide_up(height, 2));
    else break;
  }
  const int64_t row_blocks = divide_up(rows, row_step);
  row_step = divide_up(rows, row_blocks);
  return {row_step, column_step, divide_up(rows, row_step), divide_up(columns, column_step)};
}

// C has unit column stride here. A is read in place where its columns are contiguous; so are B's whole vectors where its
// rows are and too few rows of C share them to pay for packing.
template <class T>
class Product {
 public:
  Product(const Kernels<T>& kernels, const GemmArgs<T>& args)
      : kernels_(kernels), args_(args), rows_(args.rows), columns_(args.columns),
        cut_(cut_of(args.rows, args.columns, args.depth, kernels.tile_rows, kernels.tile_columns)),
        a_in_place_(args.a.row_stride == 1 && args.a.column_stride != 0 && args.depth <= kDepthInPlace),
        b_in_place_(args.b.column_stride == 1 && args.depth <= kDepthInPlace && args.rows <= kRowsInPlace),
        packed_columns_begin_(b_in_place_ ? columns_ / kernels.vector_size * kernels.vector_size : 0),
        padded_columns_(round_up(columns_ - packed_columns_begin_, kernels.tile_columns)) {}

  void run() {
    const int64_t depth_blocks =
        std::max<int64_t>(1, divide_up(args_.depth, a_in_place_ || b_in_place_ ? kDepthInPlace : kDepthBlock));
    depth_step_ = divide_up(args_.depth, depth_blocks);
    const int64_t at_once =
        std::clamp<int64_t>(kPackedElements / ((rows_ + padded_columns_) * kDepthBlock), 1, depth_blocks);
    const int64_t depth_at_once = std::min(at_once * depth_step_, args_.depth);
    const Scratch<T> packed_a(a_in_place_ ? 0 : rows_ * depth_at_once), packed_b(padded_columns_ * depth_at_once);
    const Scratch<int64_t> offsets(2 * std::max<int64_t>(depth_step_, 1));
    packed_a_ = packed_a.get(), packed_b_ = packed_b.get();
    packed_offsets_ = offsets.get(), in_place_offsets_ = offsets.get() + depth_step_;
    for (int64_t k = 0; k < depth_step_; ++k) {
      packed_offsets_[k] = k * kernels_.tile_columns;
      in_place_offsets_[k] = k * args_.b.row_stride;
    }
    for (int64_t first = 0; first == 0 || first < args_.depth; first += std::max<int64_t>(depth_at_once, 1)) {
      first_ = first, depth_ = std::min(depth_at_once, args_.depth - first);
      pack();
      multiply();
    }
  }

 private:
  // One piece of work is a row block of A or a column block of B, for one depth block.
  void pack() {
    const int64_t a_pieces = a_in_place_ ? 0 : cut_.row_blocks;
    const int64_t b_pieces = divide_up(columns_ - packed_columns_begin_, cut_.columns), pieces = a_pieces + b_pieces;
    if (pieces == 0 || depth_ == 0) return;
    const int64_t elements = (a_in_place_ ? 0 : rows_) + columns_ - packed_columns_begin_;
    const int64_t grain = divide_up(kLeastPacked * pieces, elements * depth_step_ + 1);
    parallel_for(pieces * divide_up(depth_, depth_step_), grain, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t k = piece / pieces * depth_step_, length = std::min(depth_step_, depth_ - k);
        const int64_t at = piece % pieces;
        const Matrix<const T>&a = args_.a, &b = args_.b;
        if (at < a_pieces) {
          const int64_t row = at * cut_.rows, height = std::min(cut_.rows, rows_ - row);
          kernels_.pack_a(a.data + row * a.row_stride + (first_ + k) * a.column_stride, a.row_stride, a.column_stride,
                          height, length, packed_a_ + rows_ * k + row * length);
        } else {
          const int64_t offset = (at - a_pieces) * cut_.columns, column = packed_columns_begin_ + offset;
          kernels_.pack_b(b.data + (first_ + k) * b.row_stride + column * b.column_stride, b.row_stride,
                          b.column_stride, length, std::min(cut_.columns, columns_ - column),
                          packed_b_ + padded_columns_ * k + offset * length);
        }
      }
    });
  }

  void multiply() {
    const int64_t work = std::min(cut_.rows, rows_) * std::min(cut_.columns, columns_) * depth_;
    parallel_for(
        cut_.row_blocks * cut_.column_blocks, divide_up(kLeastBlock / 4, work + 1), [&](int64_t begin, int64_t end) {
          for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t row = piece % cut_.row_blocks * cut_.rows, column = piece / cut_.row_blocks * cut_.columns;
            const int64_t height = std::min(cut_.rows, rows_ - row),
                          end_column = std::min(columns_, column + cut_.columns);
            const int64_t split = std::clamp(packed_columns_begin_, column, end_column);
            for (int64_t k = 0; k == 0 || k < depth_; k += depth_step_) {
              if (split > column) block(row, height, column, split - column, k, /*b_packed=*/false);
              if (end_column > split) block(row, height, split, end_column - split, k, /*b_packed=*/true);
              if (depth_ == 0) break;
            }
          }
        });
  }

  void block(int64_t row, int64_t height, int64_t column, int64_t width, int64_t k, bool b_packed) const {
    BlockArgs<T> block;
    block.rows = height;
    block.columns = width;
    block.depth = std::min(depth_step_, depth_ - k);
    if (a_in_place_) {
      block.a = args_.a.data + row + (first_ + k) * args_.a.column_stride;
      block.a_step = args_.a.column_stride;
    } else {
      block.a = packed_a_ + rows_ * k + row * block.depth;
    }
    block.b = b_packed ? packed_b_ + padded_columns_ * k + (column - packed_columns_begin_) * block.depth
                       : args_.b.data + (first_ + k) * args_.b.row_stride + column;
    block.b_tile_step = b_packed ? block.depth * kernels_.tile_columns : kernels_.tile_columns;
    block.offsets = b_packed ? packed_offsets_ : in_place_offsets_;
    block.c = args_.c.data + row * args_.c.row_stride + column;
    block.c_row_stride = args_.c.row_stride;
    const bool starts = first_ + k == 0, ends = first_ + k + block.depth == args_.depth;
    block.accumulate = args_.accumulate || !starts;
    block.row_bias = starts && args_.row_bias ? args_.row_bias + row : nullptr;
    block.column_bias = starts && args_.column_bias ? args_.column_bias + column : nullptr;
    block.relu = args_.relu && ends;
    kernels_.block(block);
  }

  const Kernels<T>& kernels_;
  const GemmArgs<T>& args_;
  const int64_t rows_, columns_;
  const Cut cut_;
  const bool a_in_place_, b_in_place_;
  const int64_t packed_columns_begin_;  // columns before are read in place
  const int64_t padded_columns_;        // packed ones, filled up to whole tiles
  int64_t depth_step_ = 0;              // of one depth block
  int64_t first_ = 0, depth_ = 0;       // the part of the depth that is packed now
  T *packed_a_ = nullptr, *packed_b_ = nullptr;
  int64_t *packed_offsets_ = nullptr, *in_place_offsets_ = nullptr;
};

template <class T>
void gemm_any(const KernelTable& table, GemmArgs<T> args) {
  if (args.rows == 0 || args.columns == 0) return;
  if (args.columns == 1) args.c.column_stride = 1;
  if (args.c.column_stride != 1 && (args.c.row_stride == 1 || args.rows == 1)) {  // C^T = B^T A^T
    args.c.row_stride = 1;
    std::swap(args.rows, args.columns);
    std::swap(args.a, args.b);
    args.a = args.a.transposed(), args.b = args.b.transposed(), args.c = args.c.transposed();
    std::swap(args.row_bias, args.column_bias);
  }
  const Kernels<T>& kernels = kernels_of<T>(table);
  if (args.c.column_stride == 1) return Product<T>(kernels, args).run();

  const Matrix<T> target = args.c;
  const Scratch<T> rows(args.rows * args.columns);
  args.c = {rows.get(), args.columns, 1};
  const auto each = [&](auto&& f) {
    for (int64_t i = 0; i < args.rows; ++i)
      for (int64_t j = 0; j < args.columns; ++j)
        f(rows[i * args.columns + j], target.data[i * target.row_stride + j * target.column_stride]);
  };
  if (args.accumulate) each([](T& mine, T& theirs) { mine = theirs; });
  Product<T>(kernels, args).run();
  each([](T& mine, T& theirs) { theirs = mine; });
}

}  // namespace

void gemm(const KernelTable& table, const GemmArgs<float>& args) { gemm_any(table, args); }
void gemm(const KernelTable& table, const GemmArgs<double>& args) { gemm_any(table, args); }

}  // namespace gradus::openmp
