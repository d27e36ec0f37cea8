// Products of half types, summed in float and rounded once. B is packed for all threads and converted to float. Then
// the threads share blocks of C, divided by C's shape alone; the thread that computes a block packs the block's part of
// A and keeps the block's sums through the whole depth. If the processor has bfloat16 dot products, elements of A and B
// are not converted; pairs of them along the depth are packed like floats. If C has few rows, B is converted while it
// is read.
#include <algorithm>
#include <cstring>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/array/dtype.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::openmp_detail {
namespace {

// A single product.
template <class H>
class HalfProduct {
 public:
  HalfProduct(const KernelTable& table, const GemmPlan& plan, const GemmArgs<H>& args)
      : halves_(kernels_of<H>(table)), kernels_(table.f32), plan_(plan), args_(args),
        pairs_(plan.algorithm == GemmAlgorithm::blocked_pairs),
        block_(pairs_ ? table.bf16_pairs_block : table.f32.block),
        steps_(pairs_ ? ceil_div(args.depth, 2) : args.depth), steps_at_once_(plan.depth_at_once) {}

  void run() const {
    if (plan_.algorithm == GemmAlgorithm::combine_rows || plan_.algorithm == GemmAlgorithm::row_dots) return few_rows();
    for (int64_t column = 0; column < args_.columns; column += plan_.columns_at_once)
      columns(column, std::min(plan_.columns_at_once, args_.columns - column));
  }

 private:
  // B is read in place, once or a few times.
  void few_rows() const {
    const int64_t rows = args_.rows, columns = args_.columns, depth = args_.depth;
    const Scratch<float> a(rows * depth), sums(rows * columns), bias(columns);
    for (int64_t m = 0; m < rows; ++m)
      widen(args_.a.data + m * args_.a.row_stride, args_.a.column_stride, depth, a.get() + m * depth);
    start(0, rows, 0, columns, bias.get(), sums.get(), columns);
    const GemmArgs<float, H> args{.rows = rows,
                                  .columns = columns,
                                  .depth = depth,
                                  .a = {a.get(), depth, 1},
                                  .b = args_.b,
                                  .c = {sums.get(), columns, 1},
                                  .accumulate = true};
    few_rows_gemm(halves_, plan_, args);
    finish(0, rows, 0, columns, sums.get(), columns);
  }

  // Computes `count` columns of C, starting at `first`.
  void columns(int64_t first, int64_t count) const {
    const int64_t tile = kernels_.tile_columns, tiles = ceil_div(count, tile), width = tiles * tile;
    const Scratch<float> packed_b(width * steps_);  // holds one block of the depth at a time
    const int64_t groups = ceil_div(tiles, kTilesTogether), depth_blocks = ceil_div(steps_, steps_at_once_);
    const int64_t grain = ceil_div(kLeastPacked, kTilesTogether * tile * steps_at_once_);
    const int64_t packed_floats = slot_size(std::min(kTilesTogether * tile, count) * steps_at_once_);
    parallel_each<float>(groups * depth_blocks, grain, packed_floats, [&](int64_t i, float* floats) {
      const int64_t k = i / groups * steps_at_once_, length = std::min(steps_at_once_, steps_ - k);
      const int64_t column = i % groups * kTilesTogether * tile;
      const int64_t some = std::min(kTilesTogether * tile, count - column);
      with_floats(args_.b.transposed(), first + column, some, k, length, floats, [&](const auto& b) {
        kernels_.pack_b(b.data, b.column_stride, b.row_stride, length, some,
                        packed_b.get() + k * width + column * length);
      });
    });

    const Cut& cut = first + count == args_.columns ? plan_.last_cut : plan_.cut;
    const int64_t blocks = cut.row_blocks * cut.column_blocks, stride = half_sums_stride(cut);
    const int64_t a_size = slot_size(cut.rows * steps_at_once_), sums_size = cut.rows * stride;
    const int64_t size = a_size + sums_size + half_floats_size(cut, steps_at_once_, has_start());
    parallel_each<float>(blocks, 1, size, [&](int64_t i, float* packed_a) {
      float *const sums = packed_a + a_size, *const floats = sums + sums_size;
      const int64_t row = i % cut.row_blocks * cut.rows, column = i / cut.row_blocks * cut.columns;
      BlockArgs<float> block;
      block.rows = std::min(cut.rows, args_.rows - row), block.columns = std::min(cut.columns, count - column);
      block.a = packed_a;
      block.b_packed = true;
      block.b_row_stride = tile;
      block.c = sums, block.c_row_stride = stride;
      if (has_start()) start(row, block.rows, first + column, block.columns, floats, sums, stride);
      for (int64_t k = 0; k < steps_; k += steps_at_once_) {
        block.depth = std::min(steps_at_once_, steps_ - k);
        block.b = packed_b.get() + k * width + column * block.depth, block.b_tile_step = block.depth * tile;
        block.accumulate = k > 0 || has_start();
        with_floats(args_.a, row, block.rows, k, block.depth, floats, [&](const auto& a) {
          kernels_.pack_a(a.data, a.row_stride, a.column_stride, block.rows, block.depth, packed_a);
        });
        block_(block);
      }
      finish(row, block.rows, first + column, block.columns, sums, stride);
    });
  }

  // Calls use(matrix) with rows [row, row + rows) and steps [k, k + length) of a matrix, as floats or as pairs along
  // the steps. Pairs are used in place if steps are contiguous and aligned; otherwise the elements are written to
  // `floats`.
  template <class Use>
  void with_floats(const Matrix<const H>& from, int64_t row, int64_t rows, int64_t k, int64_t length, float* floats,
                   Use&& use) const {
    const int64_t elements = std::min(pairs_ ? 2 * length : length, args_.depth - k * (pairs_ ? 2 : 1));
    const H* data = from.data + row * from.row_stride + k * (pairs_ ? 2 : 1) * from.column_stride;
    const bool along_steps = from.column_stride == 1;
    if (pairs_ && along_steps && from.row_stride % 2 == 0 && elements % 2 == 0 &&
        reinterpret_cast<uintptr_t>(data) % alignof(float) == 0)
      return use(Matrix<const float>{reinterpret_cast<const float*>(data), from.row_stride / 2, 1});
    if (along_steps && !pairs_) {
      for (int64_t i = 0; i < rows; ++i) widen(data + i * from.row_stride, 1, length, floats + i * length);
      return use(Matrix<const float>{floats, length, 1});
    }
    for (int64_t i = 0; i < length; ++i) {
      const H* column = data + i * (pairs_ ? 2 : 1) * from.column_stride;
      // The last odd element is paired with zero.
      const H* next = 2 * i + 1 < elements ? column + from.column_stride : nullptr;
      if (pairs_) pair_up(column, next, from.row_stride, rows, floats + i * rows);
      else widen(column, from.row_stride, rows, floats + i * rows);
    }
    use(Matrix<const float>{floats, 1, rows});
  }

  bool has_start() const { return args_.accumulate || args_.row_bias || args_.column_bias; }

  // Computes the terms that are added to the product, for a part of C; `bias` has room for its columns.
  void start(int64_t row, int64_t rows, int64_t column, int64_t columns, float* bias, float* sums,
             int64_t stride) const {
    if (args_.column_bias) widen(args_.column_bias + column, 1, columns, bias);
    else std::fill_n(bias, columns, 0.0f);
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
    const int64_t step = args_.c.column_stride;
    for (int64_t i = row; i < row + rows; ++i, sums += stride) {
      H* to = args_.c.data + i * args_.c.row_stride + column * step;
      if (step == 1) halves_.narrow(sums, to, columns);
      else
        for (int64_t j = 0; j < columns; ++j) to[j * step] = static_cast<H>(sums[j]);
    }
  }

  // Converts `count` elements with stride `step`.
  void widen(const H* from, int64_t step, int64_t count, float* to) const {
    if (step == 1) return halves_.widen(from, to, count);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i * step]);
  }
  // Combines the bits of an even element (low half) and the next odd one (high half; zeros if `odd` is null).
  static void pair_up(const H* even, const H* odd, int64_t step, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t pair = even[i * step].bits | (odd ? static_cast<uint32_t>(odd[i * step].bits) << 16 : 0u);
      std::memcpy(to + i, &pair, 4);
    }
  }

  const HalfKernels<H>& halves_;
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
