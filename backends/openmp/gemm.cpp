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

// C has unit column stride here.
template <class T>
void gemm_rows(const Kernels<T>& kernels, const GemmArgs<T>& args) {
  const int64_t rows = args.rows, columns = args.columns;
  const Cut cut = cut_of(rows, columns, args.depth, kernels.tile_rows, kernels.tile_columns);
  const int64_t padded_columns = round_up(columns, kernels.tile_columns);
  const int64_t depth_blocks_all = std::max<int64_t>(1, divide_up(args.depth, kDepthBlock));
  const int64_t depth_step = divide_up(args.depth, depth_blocks_all);
  const int64_t blocks_at_once =
      std::clamp<int64_t>(kPackedElements / ((rows + padded_columns) * kDepthBlock), 1, depth_blocks_all);
  const int64_t depth_at_once = std::min(blocks_at_once * depth_step, args.depth);
  const Scratch<T> packed_a(rows * depth_at_once), packed_b(padded_columns * depth_at_once);
  const Scratch<int64_t> offsets(std::max<int64_t>(depth_step, 1));
  for (int64_t k = 0; k < depth_step; ++k) offsets[k] = k * kernels.tile_columns;

  for (int64_t first = 0; first == 0 || first < args.depth; first += std::max<int64_t>(depth_at_once, 1)) {
    const int64_t depth = std::min(depth_at_once, args.depth - first);
    const int64_t depth_blocks = depth > 0 ? divide_up(depth, depth_step) : 1;

    // Pack: one piece of work is a row block of A or a column block of B, for one depth block.
    const int64_t pieces = cut.row_blocks + cut.column_blocks;
    const int64_t elements_per_piece = (rows + columns) * depth_step / pieces + 1;
    parallel_for(pieces * depth_blocks, divide_up(8192, elements_per_piece), [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t k = piece / pieces * depth_step, length = std::min(depth_step, depth - k);
        if (length <= 0) continue;
        const int64_t at = piece % pieces;
        if (at < cut.row_blocks) {
          const int64_t row = at * cut.rows, height = std::min(cut.rows, rows - row);
          kernels.pack_a(args.a.data + row * args.a.row_stride + (first + k) * args.a.column_stride, args.a.row_stride,
                         args.a.column_stride, height, length, packed_a.get() + rows * k + row * length);
        } else {
          const int64_t column = (at - cut.row_blocks) * cut.columns, width = std::min(cut.columns, columns - column);
          kernels.pack_b(args.b.data + (first + k) * args.b.row_stride + column * args.b.column_stride,
                         args.b.row_stride, args.b.column_stride, length, width,
                         packed_b.get() + padded_columns * k + column * length);
        }
      }
    });

    const int64_t work = std::min(cut.rows, rows) * std::min(cut.columns, columns) * depth;
    parallel_for(
        cut.row_blocks * cut.column_blocks, divide_up(kLeastBlock / 4, work + 1), [&](int64_t begin, int64_t end) {
          for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t row = piece % cut.row_blocks * cut.rows, column = piece / cut.row_blocks * cut.columns;
            BlockArgs<T> block;
            block.rows = std::min(cut.rows, rows - row);
            block.columns = std::min(cut.columns, columns - column);
            block.offsets = offsets.get();
            block.c = args.c.data + row * args.c.row_stride + column;
            block.c_row_stride = args.c.row_stride;
            for (int64_t i = 0; i < depth_blocks; ++i) {
              const int64_t k = i * depth_step;
              block.depth = std::min(depth_step, depth - k);
              block.a = packed_a.get() + rows * k + row * block.depth;
              block.b = packed_b.get() + padded_columns * k + column * block.depth;
              block.b_tile_step = block.depth * kernels.tile_columns;
              const bool starts = first + k == 0, ends = first + k + block.depth == args.depth;
              block.accumulate = args.accumulate || !starts;
              block.row_bias = starts && args.row_bias ? args.row_bias + row : nullptr;
              block.column_bias = starts && args.column_bias ? args.column_bias + column : nullptr;
              block.relu = args.relu && ends;
              kernels.block(block);
            }
          }
        });
  }
}

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
  if (args.c.column_stride == 1) return gemm_rows(kernels, args);

  const Matrix<T> target = args.c;
  const Scratch<T> rows(args.rows * args.columns);
  args.c = {rows.get(), args.columns, 1};
  const auto each = [&](auto&& f) {
    for (int64_t i = 0; i < args.rows; ++i)
      for (int64_t j = 0; j < args.columns; ++j)
        f(rows[i * args.columns + j], target.data[i * target.row_stride + j * target.column_stride]);
  };
  if (args.accumulate) each([](T& mine, T& theirs) { mine = theirs; });
  gemm_rows(kernels, args);
  each([](T& mine, T& theirs) { theirs = mine; });
}

}  // namespace

void gemm(const KernelTable& table, const GemmArgs<float>& args) { gemm_any(table, args); }
void gemm(const KernelTable& table, const GemmArgs<double>& args) { gemm_any(table, args); }

}  // namespace gradus::openmp
