// Products of half types, summed in float and rounded once. B is packed for all threads, widened to float; then they
// share out blocks of C, cut by its shape alone, and whoever takes a block packs its part of A and keeps the block's
// sums until the depth ends. Where the processor has dot products of bfloat16, the elements of A and B stay as they
// are, in pairs along the depth that take the place of floats. With a few rows of C, B is widened as it is read.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/dtype.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp_detail {
namespace {

constexpr int64_t kLine = 512;  // elements that are brought together at a time

template <class H>
const uint16_t* bits(const H* x) {
  return reinterpret_cast<const uint16_t*>(x);
}
template <class H>
uint16_t* bits(H* x) {
  return reinterpret_cast<uint16_t*>(x);
}

// One product.
template <class H>
class HalfProduct {
 public:
  HalfProduct(const KernelTable& table, const GemmPlan& plan, const GemmArgs<H>& args)
      : halves_(table.halves), kernels_(table.f32), plan_(plan), args_(args),
        pairs_(plan.algorithm == GemmAlgorithm::blocked_pairs),
        block_(pairs_ ? table.bf16_pairs_block : table.f32.block),
        steps_(pairs_ ? ceil_div(args.depth, 2) : args.depth), steps_at_once_(plan.depth_at_once) {}

  void run() const {
    if (plan_.algorithm == GemmAlgorithm::combine_rows) return few_rows(/*along_rows=*/true);
    if (plan_.algorithm == GemmAlgorithm::row_dots) return few_rows(/*along_rows=*/false);
    for (int64_t column = 0; column < args_.columns; column += plan_.columns_at_once)
      columns(column, std::min(plan_.columns_at_once, args_.columns - column));
  }

 private:
  static constexpr bool kBFloat16 = std::is_same_v<H, BFloat16>;

  // B is read once, or a few times, in place.
  void few_rows(bool along_rows) const {
    const int64_t rows = args_.rows, depth = args_.depth;
    const Scratch<float> a(rows * depth);
    for (int64_t m = 0; m < rows; ++m)
      widen(args_.a.data + m * args_.a.row_stride, args_.a.column_stride, depth, a.get() + m * depth);
    parallel_for(args_.columns, plan_.grain, [&](int64_t begin, int64_t end) {
      const int64_t columns = end - begin;
      const Scratch<float> sums(rows * columns);
      if (has_start()) start(0, rows, begin, columns, sums.get(), columns);
      else std::fill_n(sums.get(), rows * columns, 0.0f);
      const uint16_t* b = bits(args_.b.data + begin * args_.b.column_stride);
      if (along_rows) {
        (kBFloat16 ? halves_.combine_rows_bfloat16 : halves_.combine_rows_half)({.rows = rows,
                                                                                 .columns = columns,
                                                                                 .depth = depth,
                                                                                 .a = a.get(),
                                                                                 .a_row_stride = depth,
                                                                                 .a_step = 1,
                                                                                 .b = b,
                                                                                 .b_row_stride = args_.b.row_stride,
                                                                                 .y = sums.get(),
                                                                                 .y_row_stride = columns});
      } else {
        (kBFloat16 ? halves_.row_dots_bfloat16 : halves_.row_dots_half)({.rows = rows,
                                                                         .columns = columns,
                                                                         .depth = depth,
                                                                         .a = a.get(),
                                                                         .a_row_stride = depth,
                                                                         .b = b,
                                                                         .b_row_stride = args_.b.column_stride,
                                                                         .c = sums.get(),
                                                                         .c_row_stride = columns,
                                                                         .c_column_stride = 1,
                                                                         .accumulate = true});
      }
      finish(0, rows, begin, columns, sums.get(), columns);
    });
  }

  // `count` columns of C from `first` on.
  void columns(int64_t first, int64_t count) const {
    const int64_t tile = kernels_.tile_columns, tiles = ceil_div(count, tile), width = tiles * tile;
    const Scratch<float> packed_b(width * steps_);  // for one piece of the depth after another
    const int64_t groups = ceil_div(tiles, kTilesTogether), pieces = ceil_div(steps_, steps_at_once_);
    parallel_for(groups * pieces, ceil_div(kLeastPacked, kTilesTogether * tile * steps_at_once_),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t k = i / groups * steps_at_once_, length = std::min(steps_at_once_, steps_ - k);
                     const int64_t column = i % groups * kTilesTogether * tile;
                     pack_b(k, length, first + column, std::min(kTilesTogether * tile, count - column),
                            packed_b.get() + k * width + column * length);
                   }
                 });

    const Cut& cut = first + count == args_.columns ? plan_.last_cut : plan_.cut;
    parallel_for(cut.row_blocks * cut.column_blocks, 1, [&](int64_t begin, int64_t end) {
      const int64_t stride = half_sums_stride(cut);
      const Scratch<float> packed_a(cut.rows * steps_at_once_), sums(cut.rows * stride);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i % cut.row_blocks * cut.rows, column = i / cut.row_blocks * cut.columns;
        BlockArgs<float> block;
        block.rows = std::min(cut.rows, args_.rows - row), block.columns = std::min(cut.columns, count - column);
        block.a = packed_a.get();
        block.b_packed = true;
        block.b_row_stride = tile;
        block.c = sums.get(), block.c_row_stride = stride;
        if (has_start()) start(row, block.rows, first + column, block.columns, sums.get(), stride);
        for (int64_t k = 0; k < steps_; k += steps_at_once_) {
          block.depth = std::min(steps_at_once_, steps_ - k);
          block.b = packed_b.get() + k * width + column * block.depth, block.b_tile_step = block.depth * tile;
          block.accumulate = k > 0 || has_start();
          pack_a(k, block.depth, row, block.rows, packed_a.get());
          block_(block);
        }
        finish(row, block.rows, first + column, block.columns, sums.get(), stride);
      }
    });
  }

  void pack_a(int64_t k, int64_t length, int64_t row, int64_t rows, float* packed) const {
    const auto pack = [&](const Matrix<const float>& a) {
      kernels_.pack_a(a.data, a.row_stride, a.column_stride, rows, length, packed);
    };
    with_floats(args_.a, row, rows, k, length, pack);
  }
  void pack_b(int64_t k, int64_t length, int64_t column, int64_t columns, float* packed) const {
    const auto pack = [&](const Matrix<const float>& b) {
      kernels_.pack_b(b.data, b.column_stride, b.row_stride, length, columns, packed);
    };
    with_floats(args_.b.transposed(), column, columns, k, length, pack);
  }

  // use(rows [row, row + rows) and steps [k, k + length) of a matrix): as floats, or as pairs along the steps, which
  // are there already where steps follow each other in memory.
  template <class Use>
  void with_floats(const Matrix<const H>& from, int64_t row, int64_t rows, int64_t k, int64_t length, Use&& use) const {
    const int64_t elements = std::min(pairs_ ? 2 * length : length, args_.depth - k * (pairs_ ? 2 : 1));
    const H* data = from.data + row * from.row_stride + k * (pairs_ ? 2 : 1) * from.column_stride;
    const bool along_steps = from.column_stride == 1;
    if (pairs_ && along_steps && from.row_stride % 2 == 0 && elements % 2 == 0 &&
        reinterpret_cast<uintptr_t>(data) % alignof(float) == 0)
      return use(Matrix<const float>{reinterpret_cast<const float*>(data), from.row_stride / 2, 1});
    const Scratch<float> floats(rows * length);
    if (along_steps) {
      for (int64_t i = 0; i < rows; ++i) {
        float* to = floats.get() + i * length;
        if (!pairs_) {
          widen(data + i * from.row_stride, 1, length, to);
          continue;
        }
        to[length - 1] = 0;  // an odd element is paired with zero
        std::memcpy(to, data + i * from.row_stride, static_cast<size_t>(elements) * sizeof(H));
      }
      return use(Matrix<const float>{floats.get(), length, 1});
    }
    for (int64_t i = 0; i < length; ++i) {
      const H* column = data + i * (pairs_ ? 2 : 1) * from.column_stride;
      const H* next = 2 * i + 1 < elements ? column + from.column_stride : nullptr;
      if (pairs_) pair_up(column, next, from.row_stride, rows, floats.get() + i * rows);
      else widen(column, from.row_stride, rows, floats.get() + i * rows);
    }
    use(Matrix<const float>{floats.get(), 1, rows});
  }

  bool has_start() const { return args_.accumulate || args_.row_bias || args_.column_bias; }

  // What is added to the product, for a part of C.
  void start(int64_t row, int64_t rows, int64_t column, int64_t columns, float* sums, int64_t stride) const {
    const Scratch<float> bias(columns);
    if (args_.column_bias) widen(args_.column_bias + column, 1, columns, bias.get());
    else std::fill_n(bias.get(), columns, 0.0f);
    for (int64_t i = row; i < row + rows; ++i, sums += stride) {
      const float row_bias = args_.row_bias ? static_cast<float>(args_.row_bias[i]) : 0.0f;
      if (args_.accumulate)
        widen(args_.c.data + i * args_.c.row_stride + column * args_.c.column_stride, args_.c.column_stride, columns,
              sums);
      else std::fill_n(sums, columns, 0.0f);
      for (int64_t j = 0; j < columns; ++j) sums[j] += row_bias + bias[j];
    }
  }

  void finish(int64_t row, int64_t rows, int64_t column, int64_t columns, const float* sums, int64_t stride) const {
    const auto narrow = kBFloat16 ? halves_.to_bfloat16 : halves_.to_half;
    const int64_t step = args_.c.column_stride;
    for (int64_t i = row; i < row + rows; ++i, sums += stride) {
      H* to = args_.c.data + i * args_.c.row_stride + column * step;
      if (step == 1) {
        narrow(sums, bits(to), columns);
        continue;
      }
      H line[kLine];
      for (int64_t j = 0; j < columns; j += kLine) {
        const int64_t count = std::min(kLine, columns - j);
        narrow(sums + j, bits(line), count);
        for (int64_t n = 0; n < count; ++n) to[(j + n) * step] = line[n];
      }
    }
  }

  // `count` elements, `step` apart: as they are, or brought together.
  static const H* together(const H* from, int64_t step, int64_t count, H (&line)[kLine]) {
    if (step == 1) return from;
    for (int64_t i = 0; i < count; ++i) line[i] = from[i * step];
    return line;
  }
  void widen(const H* from, int64_t step, int64_t count, float* to) const {
    const auto kernel = kBFloat16 ? halves_.from_bfloat16 : halves_.from_half;
    if (step == 1) return kernel(bits(from), to, count);
    H line[kLine];
    for (int64_t i = 0; i < count; i += kLine) {
      const int64_t some = std::min(kLine, count - i);
      kernel(bits(together(from + i * step, step, some, line)), to + i, some);
    }
  }
  void pair_up(const H* even, const H* odd, int64_t step, int64_t count, float* to) const {
    H evens[kLine], odds[kLine];
    for (int64_t i = 0; i < count; i += step == 1 ? count : kLine) {
      const int64_t some = step == 1 ? count : std::min(kLine, count - i);
      halves_.pair_up(bits(together(even + i * step, step, some, evens)),
                      odd ? bits(together(odd + i * step, step, some, odds)) : nullptr, to + i, some);
    }
  }

  const HalfKernels& halves_;
  const Kernels<float>& kernels_;
  const GemmPlan& plan_;
  const GemmArgs<H>& args_;
  const bool pairs_;
  void (*const block_)(const BlockArgs<float>&);
  const int64_t steps_, steps_at_once_;  // of the depth: elements or pairs
};

}  // namespace

template <class H>
void half_gemm(const KernelTable& table, const GemmPlan& plan, const GemmArgs<H>& args) {
  HalfProduct<H>(table, plan, args).run();
}
template void half_gemm(const KernelTable&, const GemmPlan&, const GemmArgs<Half>&);
template void half_gemm(const KernelTable&, const GemmPlan&, const GemmArgs<BFloat16>&);

}  // namespace gradus::openmp_detail
