// Products of half types. C is cut into blocks, by shape alone, which the threads share out; for each, blocks of A and B
// are widened to float, multiplied by gemm(), and the sums rounded once. Where the processor has dot products of
// bfloat16, the elements of A and B stay as they are, in pairs along the depth that take the place of floats.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include <gradus/backends/openmp/gemm.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/dtype.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

constexpr int64_t kBlock = 512;       // most rows and columns of a block of C
constexpr int64_t kDepthBlock = 512;  // of A and B that are widened at a time
constexpr int64_t kBlocksWanted = 8;
constexpr int64_t kLeastBlock = int64_t{1} << 18;  // multiplications that are worth a block of their own
constexpr int64_t kFewRows = 6;                    // of C, for which the instruction does not pay

template <class H>
const uint16_t* bits(const H* x) {
  return reinterpret_cast<const uint16_t*>(x);
}
template <class H>
uint16_t* bits(H* x) {
  return reinterpret_cast<uint16_t*>(x);
}

template <class H>
class HalfProduct {
 public:
  HalfProduct(const KernelTable& table, const GemmArgs<H>& args, const GemmBatch& batch)
      : table_(table), args_(args), batch_(batch),
        pairs_(std::is_same_v<H, BFloat16> && table.bf16_pairs && std::min(args.rows, args.columns) > kFewRows),
        pair_kernels_(table.f32) {
    pair_kernels_.block = table.bf16_pairs_block;
    for (int64_t size : batch.shape) products_ *= size;
    height_ = divide_up(args.rows, divide_up(args.rows, kBlock));
    width_ = divide_up(args.columns, divide_up(args.columns, kBlock));
    while (products_ * blocks() < kBlocksWanted && height_ * width_ * args.depth > 2 * kLeastBlock) {
      int64_t& longer = width_ > height_ ? width_ : height_;
      longer = round_up(divide_up(longer, 2), 16);
    }
    length_ = divide_up(args.depth, std::max<int64_t>(1, divide_up(args.depth, kDepthBlock)));
    length_ += length_ % 2;  // no pair straddles blocks
  }

  void run() const {
    const int64_t grain = divide_up(kLeastBlock, height_ * width_ * args_.depth + 1);
    parallel_for(products_ * blocks(), grain, [&](int64_t begin, int64_t end) {
      const Scratch<float> a(height_ * length_), b(width_ * length_), sums(height_ * width_), row(width_);
      for (int64_t i = begin; i < end; ++i) block(i, {a.get(), b.get(), sums.get(), row.get()});
    });
  }

 private:
  struct Memory {
    float *a, *b, *sums, *row;
  };
  int64_t blocks() const { return divide_up(args_.rows, height_) * divide_up(args_.columns, width_); }

  void block(int64_t index, const Memory& memory) const {
    GemmArgs<H> args = args_;
    int64_t product = index / blocks();
    for (int axis = batch_.shape.size() - 1; axis >= 0; --axis) {
      const int64_t at = product % batch_.shape[axis];
      product /= batch_.shape[axis];
      if (args.depth > 0) args.a.data += at * batch_.a[axis], args.b.data += at * batch_.b[axis];
      args.c.data += at * batch_.c[axis];
      if (args.residual.data) args.residual.data += at * batch_.residual[axis];
    }
    const int64_t down = divide_up(args.rows, height_), row = index % blocks() % down * height_,
                  column = index % blocks() / down * width_;
    args.rows = std::min(height_, args.rows - row), args.columns = std::min(width_, args.columns - column);
    if (args.depth > 0) args.a.data += row * args.a.row_stride, args.b.data += column * args.b.column_stride;
    args.c.data += row * args.c.row_stride + column * args.c.column_stride;
    if (args.residual.data) args.residual.data += row * args.residual.row_stride + column * args.residual.column_stride;
    if (args.row_bias) args.row_bias += row;
    if (args.column_bias) args.column_bias += column;

    start(args, memory);
    for (int64_t k = 0; k < args.depth; k += length_) {
      const int64_t length = std::min(length_, args.depth - k);
      const Matrix<const H> a{args.a.data + k * args.a.column_stride, args.a.row_stride, args.a.column_stride};
      const Matrix<const H> b{args.b.data + k * args.b.row_stride, args.b.row_stride, args.b.column_stride};
      const GemmArgs<float> part{.rows = args.rows,
                                 .columns = args.columns,
                                 .depth = pairs_ ? divide_up(length, 2) : length,
                                 .a = floats(a, args.rows, length, memory.a),
                                 .b = floats(b.transposed(), args.columns, length, memory.b).transposed(),
                                 .c = {memory.sums, args.columns, 1},
                                 .accumulate = true};
      if (pairs_) tile_gemm(pair_kernels_, part);
      else gemm(table_, part);
    }
    finish(args, memory);
  }

  // The sums before the first product: all that is added to it.
  void start(const GemmArgs<H>& args, const Memory& memory) const {
    const Matrix<const H> given =
        args.accumulate ? Matrix<const H>{args.c.data, args.c.row_stride, args.c.column_stride} : args.residual;
    for (int64_t i = 0; i < args.rows; ++i) {
      float* sums = memory.sums + i * args.columns;
      if (given.data) widen(given.data + i * given.row_stride, given.column_stride, args.columns, sums);
      else std::fill_n(sums, args.columns, 0.0f);
      if (args.row_bias) {
        const auto bias = static_cast<float>(args.row_bias[i]);
        for (int64_t j = 0; j < args.columns; ++j) sums[j] += bias;
      }
      if (args.column_bias) {
        widen(args.column_bias, 1, args.columns, memory.row);
        for (int64_t j = 0; j < args.columns; ++j) sums[j] += memory.row[j];
      }
    }
  }

  void finish(const GemmArgs<H>& args, const Memory& memory) const {
    const auto narrow = std::is_same_v<H, BFloat16> ? table_.halves.to_bfloat16 : table_.halves.to_half;
    H line[kBlock];
    for (int64_t i = 0; i < args.rows; ++i) {
      float* sums = memory.sums + i * args.columns;
      if (args.relu)
        for (int64_t j = 0; j < args.columns; ++j) sums[j] = sums[j] < 0 ? 0 : sums[j];
      H* to = args.c.data + i * args.c.row_stride;
      const bool dense = args.c.column_stride == 1 || args.columns == 1;
      narrow(sums, bits(dense ? to : line), args.columns);
      for (int64_t j = 0; !dense && j < args.columns; ++j) to[j * args.c.column_stride] = line[j];
    }
  }

  // `count` elements, `step` apart: as they are, or brought together.
  static const H* together(const H* from, int64_t step, int64_t count, H (&line)[kBlock]) {
    if (step == 1) return from;
    for (int64_t i = 0; i < count; ++i) line[i] = from[i * step];
    return line;
  }
  void widen(const H* from, int64_t step, int64_t count, float* to) const {
    const auto kernel = std::is_same_v<H, BFloat16> ? table_.halves.from_bfloat16 : table_.halves.from_half;
    H line[kBlock];
    kernel(bits(together(from, step, count, line)), to, count);
  }

  // A block (rows, length) as floats, or as pairs along the length; the axis that is contiguous stays so.
  Matrix<const float> floats(const Matrix<const H>& from, int64_t rows, int64_t length, float* to) const {
    if (from.column_stride == 1) {
      const int64_t width = pairs_ ? divide_up(length, 2) : length;
      for (int64_t i = 0; i < rows; ++i) {
        const H* row = from.data + i * from.row_stride;
        if (!pairs_) {
          widen(row, 1, length, to + i * width);
          continue;
        }
        to[i * width + width - 1] = 0;  // an odd element is paired with zero
        std::memcpy(to + i * width, row, static_cast<size_t>(length) * sizeof(H));
      }
      return {to, width, 1};
    }
    const int64_t step = pairs_ ? 2 : 1;
    for (int64_t k = 0; k < length; k += step) {
      const H* column = from.data + k * from.column_stride;
      float* line = to + k / step * rows;
      if (!pairs_) {
        widen(column, from.row_stride, rows, line);
        continue;
      }
      H even[kBlock], odd[kBlock];
      const bool last = k + 1 == length;
      table_.halves.pair_up(bits(together(column, from.row_stride, rows, even)),
                            last ? nullptr : bits(together(column + from.column_stride, from.row_stride, rows, odd)),
                            line, rows);
    }
    return {to, 1, rows};
  }

  const KernelTable& table_;
  const GemmArgs<H>& args_;
  const GemmBatch& batch_;
  const bool pairs_;
  Kernels<float> pair_kernels_;
  int64_t products_ = 1, height_ = 0, width_ = 0, length_ = 0;
};

}  // namespace

void gemm(const KernelTable& table, const GemmArgs<Half>& args, const GemmBatch& batch) {
  if (args.rows > 0 && args.columns > 0) HalfProduct<Half>(table, args, batch).run();
}
void gemm(const KernelTable& table, const GemmArgs<BFloat16>& args, const GemmBatch& batch) {
  if (args.rows > 0 && args.columns > 0) HalfProduct<BFloat16>(table, args, batch).run();
}

}  // namespace gradus::openmp
