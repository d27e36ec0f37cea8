// C = A B: which way a product is taken. A single row or few read B where it lies; small products run on one thread
// with what is contiguous read in place; the others are blocked (gemm_blocked.cpp). All depends on shapes and strides
// alone.
#include <algorithm>
#include <optional>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

constexpr int64_t kLongRow = 2048;                   // elements
constexpr int64_t kSmallProduct = int64_t{1} << 19;  // multiplications: more are worth several threads
constexpr int64_t kSmallDepth = 512;
constexpr int64_t kLongSum = 256, kSomeRows = 32, kRowsOfDots = 128, kProductOfDots = int64_t{1} << 25;
constexpr int64_t kManyProducts = 16;   // from here on threads share whole products, however large
constexpr int64_t kColumnsInPlace = 4;  // tiles of C for which rows of A are not packed
constexpr int64_t kNarrow = 32;         // columns that are too few to pay for packing
constexpr int64_t kDeep = 4096;         // a depth that is worth being shared out
constexpr int64_t kDepthPieces = 16;

enum class Way { combination, dots, dots_of_columns, deep_dots, small, blocked };

// Rows of A whose elements would fall into one set of the first-level cache.
template <class T>
bool rows_collide(const Matrix<const T>& a) {
  return a.row_stride * static_cast<int64_t>(sizeof(T)) % 4096 == 0;
}

template <class T>
bool is_small(const GemmArgs<T>& args) {
  return args.depth <= kSmallDepth && args.rows * args.columns * args.depth <= kSmallProduct;
}

// True if each element of B is read so rarely, and sums are so long, that vectors of partial sums beat packing: with
// tens of rows packed operands cost as much to make, and to fetch from the other cores that made them, as to multiply.
template <class T>
bool dots_pay(const GemmArgs<T>& args) {
  if (args.rows <= kFewRows) return true;
  if (args.depth < kLongSum) return false;
  return args.rows <= kSomeRows ||
         (args.rows <= kRowsOfDots && args.rows * args.columns * args.depth <= kProductOfDots);
}

template <class T>
Way way_of(const GemmArgs<T>& args) {
  const bool a_along_depth = args.a.column_stride == 1, b_along_depth = args.b.row_stride == 1;
  // The strides of a single column or row say nothing.
  const bool b_along_rows = args.b.column_stride == 1 && !(b_along_depth && args.depth > args.columns);
  if (b_along_rows && (args.rows == 1 || (args.rows <= kFewRows && !is_small(args)))) return Way::combination;
  if (a_along_depth && b_along_depth && dots_pay(args)) return Way::dots;
  if (a_along_depth && b_along_depth && args.columns <= kFewRows) return Way::dots_of_columns;
  if (a_along_depth && b_along_depth && std::min(args.rows, args.columns) <= kNarrow && args.depth >= kDeep)
    return Way::deep_dots;
  return is_small(args) ? Way::small : Way::blocked;
}

// Few rows: B's rows, each times an element of A, are added up in C.
template <class T>
void combination(const Kernels<T>& kernels, const GemmArgs<T>& args) {
  // Pieces of rows that are long enough to be read from memory one after another.
  const int64_t grain = std::max(kLeastChunk / (args.rows * args.depth), std::min(args.columns / 4, kLongRow));
  parallel_for(args.columns, round_up(grain + 1, 64), [&](int64_t begin, int64_t end) {
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
void dots(const Kernels<T>& kernels, const GemmArgs<T>& args) {
  const int64_t grain = round_up(divide_up(kLeastChunk, args.rows * args.depth), 8);
  parallel_for(args.columns, grain, [&](int64_t begin, int64_t end) {
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
void deep_dots(const Kernels<T>& kernels, const GemmArgs<T>& args) {
  const int64_t step = divide_up(args.depth, kDepthPieces), size = args.rows * args.columns;
  const Scratch<T> sums(kDepthPieces * size);
  parallel_for(kDepthPieces, 1, [&](int64_t begin, int64_t end) {
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
  for (int64_t piece = 1; piece < kDepthPieces; ++piece)
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
  SmallProduct(const Kernels<T>& kernels, const GemmArgs<T>& args)
      : kernels_(kernels), width_(kernels.tile_columns), a_packed_(needs_packing(kernels, args)),
        columns_in_place_(args.b.column_stride == 1 ? args.columns / kernels.vector_size * kernels.vector_size : 0),
        packed_(a_size(args) + round_up(args.columns - columns_in_place_, width_) * args.depth) {
    for (int64_t k = 0; k < args.depth; ++k) packed_offsets_[k] = k * width_;
    for (int64_t k = 0; k < args.depth; ++k) in_place_offsets_[k] = k * args.b.row_stride;
  }

  void run(const GemmArgs<T>& args) const {
    BlockArgs<T> block;
    block.rows = args.rows, block.depth = args.depth;
    if (a_packed_) {
      kernels_.pack_a(args.a.data, args.a.row_stride, args.a.column_stride, args.rows, args.depth, packed_.get());
      block.a = packed_.get();
    } else {
      block.a = args.a.data;
      block.a_row_stride = args.a.row_stride, block.a_step = args.depth == 1 ? 1 : args.a.column_stride;
    }
    block.accumulate = args.accumulate;
    block.row_bias = args.row_bias;
    block.c_row_stride = args.c.row_stride;
    const auto columns = [&](int64_t begin, int64_t end, const T* b, int64_t tile_step, const int64_t* offsets) {
      if (begin == end) return;
      block.columns = end - begin;
      block.b = b, block.b_tile_step = tile_step, block.offsets = offsets;
      block.c = args.c.data + begin;
      block.column_bias = args.column_bias ? args.column_bias + begin : nullptr;
      kernels_.block(block);
    };
    columns(0, columns_in_place_, args.b.data, width_, in_place_offsets_);
    if (columns_in_place_ == args.columns) return;
    T* b = packed_.get() + a_size(args);
    kernels_.pack_b(args.b.data + columns_in_place_ * args.b.column_stride, args.b.row_stride, args.b.column_stride,
                    args.depth, args.columns - columns_in_place_, b);
    columns(columns_in_place_, args.columns, b, width_ * args.depth, packed_offsets_);
  }

 private:
  static bool needs_packing(const Kernels<T>& kernels, const GemmArgs<T>& args) {
    if (args.depth > 1 && args.a.column_stride == 0) return true;  // BlockArgs::a_step has another meaning for 0
    if (args.a.row_stride == 1) return false;
    return args.columns > kColumnsInPlace * kernels.tile_columns || (rows_collide(args.a) && args.rows > 4);
  }
  int64_t a_size(const GemmArgs<T>& args) const { return a_packed_ ? round_up(args.rows * args.depth, 16) : 0; }

  const Kernels<T>& kernels_;
  const int64_t width_;
  const bool a_packed_;
  const int64_t columns_in_place_;
  const Scratch<T> packed_;
  int64_t packed_offsets_[kSmallDepth], in_place_offsets_[kSmallDepth];
};

// Turned so that rows of C are contiguous, if either way they are, and a single column is a single row.
template <class T>
GemmArgs<T> oriented(const GemmArgs<T>& args, GemmBatch* batch) {
  const bool by_rows = args.c.column_stride == 1 || args.columns == 1;
  const bool by_columns = args.c.row_stride == 1 || args.rows == 1;
  const bool turn = by_columns && (!by_rows || (args.columns == 1 && args.rows > 1));
  if (turn) std::swap(batch->a, batch->b);
  GemmArgs<T> turned = turn ? transposed(args) : args;
  if (turned.columns == 1) turned.c.column_stride = 1;
  return turned;
}

// The blocks write whole vectors: other results pass through `dense`.
template <class T>
void product(const Kernels<T>& kernels, Way way, GemmArgs<T> args, const SmallProduct<T>* small) {
  const auto each = [&](auto&& f) {
    for (int64_t i = 0; i < args.rows; ++i)
      for (int64_t j = 0; j < args.columns; ++j) f(i, j);
  };
  const auto at = [](const auto& m, int64_t i, int64_t j) -> auto& {
    return m.data[i * m.row_stride + j * m.column_stride];
  };
  if (way == Way::dots) return dots(kernels, args);
  if (way == Way::dots_of_columns) return dots(kernels, transposed(args));
  if (way == Way::deep_dots) return deep_dots(kernels, args.rows < args.columns ? transposed(args) : args);
  if (args.c.column_stride != 1) {
    const Scratch<T> memory(args.rows * args.columns);
    const Matrix<T> target = args.c, dense{memory.get(), args.columns, 1};
    if (args.accumulate) each([&](int64_t i, int64_t j) { at(dense, i, j) = at(target, i, j); });
    args.c = dense;
    product(kernels, way, args, small);
    return each([&](int64_t i, int64_t j) { at(target, i, j) = at(dense, i, j); });
  }
  if (way == Way::combination) combination(kernels, args);
  else if (way == Way::small) small->run(args);
  else blocked_gemm(kernels, args);
}

template <class T>
void gemm_any(const KernelTable& table, const GemmArgs<T>& given, GemmBatch batch) {
  if (given.rows == 0 || given.columns == 0) return;
  GemmArgs<T> args = oriented(given, &batch);
  without_empty_depth(&args, &batch);
  const Kernels<T>& kernels = kernels_of<T>(table);
  const Way way = way_of(args);
  share_products(product_count(batch), args.rows * args.columns * args.depth, [&](int64_t begin, int64_t end) {
    std::optional<SmallProduct<T>> small;
    if (way == Way::small) small.emplace(kernels, args);
    for (int64_t i = begin; i < end; ++i) product(kernels, way, product_of(args, batch, i), small ? &*small : nullptr);
  });
}

}  // namespace

int64_t product_count(const GemmBatch& batch) {
  int64_t products = 1;
  for (int64_t size : batch.shape) products *= size;
  return products;
}

void share_products(int64_t products, int64_t work, RangeFunction some) {
  if (products == 1) return some(0, 1);
  const bool share = work <= kSmallProduct || products >= kManyProducts;
  parallel_for(products, share ? divide_up(kLeastChunk, work + 1) : products, some);
}

void gemm(const KernelTable& table, const GemmArgs<float>& args, const GemmBatch& batch) {
  gemm_any(table, args, batch);
}
void gemm(const KernelTable& table, const GemmArgs<double>& args, const GemmBatch& batch) {
  gemm_any(table, args, batch);
}

}  // namespace gradus::openmp
