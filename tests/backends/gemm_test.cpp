// The algorithms of matrix products on the openmp backend (backends/openmp/gemm/gemm.h), compared with naive.
#include <array>

#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/core/op_lists.h>
#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// A matrix (rows, columns) in one of four layouts: row-major, column-major, rows with gaps, every second column.
Array matrix(int64_t rows, int64_t columns, DType dtype, int layout) {
  switch (layout) {
    case 1: return random({columns, rows}, dtype).transpose(0, 1);
    case 2: return random({rows, columns + 3}, dtype).slice(1, 1, columns + 1);
    case 3: return random({rows, 2 * columns}, dtype).slice(1, 0, 2 * columns, 2);
    default: return random({rows, columns}, dtype);
  }
}

// The error of a sum of k products grows with k, but slowly.
double allowed(DType dtype, int64_t k) { return tolerance_of(dtype) * (k > 256 ? 8 : 4); }

void check_product(DType dtype, int64_t m, int64_t n, int64_t k, int layout_a, int layout_b, bool accumulate) {
  INFO(name(dtype) << " " << m << " x " << n << " x " << k << ", layouts " << layout_a << " " << layout_b
                   << ", accumulate " << accumulate);
  const Array a = matrix(m, k, dtype, layout_a), b = matrix(k, n, dtype, layout_b);
  compare(random({m, n}, dtype), allowed(dtype, k),
          [&](Backend& on, const Array& y) { on.matmul(a, b, y, accumulate); });
}

}  // namespace

TEST_CASE("products around the edges of register tiles") {
  // Tiles are 14, 6 or 5 rows high and 2 vectors of 2 to 16 elements wide.
  int layout = 0;
  for (int64_t m : {1, 2, 4, 5, 6, 7, 13, 14, 15, 29})
    for (int64_t n : {1, 3, 8, 15, 16, 17, 31, 32, 33, 65})
      check_product(layout % 3 ? DType::f32 : DType::f64, m, n, 37, layout % 4, layout / 4 % 4, layout % 5 == 0),
          ++layout;
}

TEST_CASE("products in all transposes and layouts") {
  for (DType dtype : {DType::f32, DType::f64})
    for (int layout_a = 0; layout_a < 4; ++layout_a)
      for (int layout_b = 0; layout_b < 4; ++layout_b) {
        check_product(dtype, 21, 40, 50, layout_a, layout_b, layout_b % 2);   // small
        check_product(dtype, 60, 90, 130, layout_a, layout_b, layout_a % 2);  // blocked
      }
  check_product(DType::f32, 150, 200, 700, 0, 0, true);
  check_product(DType::f32, 150, 200, 700, 1, 0, false);
  check_product(DType::f32, 40, 300, 1100, 0, 1, false);
  check_product(DType::f32, 130, 700, 10, 0, 0, false);  // shallow
  check_product(DType::f32, 50, 5000, 32, 1, 1, true);
  check_product(DType::f32, 16, 1024, 128, 0, 0, false);  // rows of A that share cache sets
  check_product(DType::f32, 30, 20, 1024, 0, 0, false);
}

TEST_CASE("products with one or a few rows or columns") {
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t few : {1, 2, 3, 4, 5, 6, 7})
      for (const auto& [n, k] : {std::array<int64_t, 2>{1, 1}, {9, 50}, {50, 9}, {67, 131}, {33, 32}})
        for (int layout = 0; layout < 4; ++layout) {
          if (few > 2 && layout > 1) continue;
          check_product(dtype, few, n, k, layout / 2 * 3, layout % 2, few % 2);
          check_product(dtype, n, few, k, layout / 2 * 3, layout % 2, few % 2);
        }
  check_product(DType::f32, 1, 700, 300, 0, 0, false);  // divided among threads
  check_product(DType::f32, 1, 700, 300, 0, 1, false);
  check_product(DType::f32, 700, 2, 300, 0, 1, true);
  for (DType dtype : {DType::f32, DType::f64})  // deep products: the depth is divided among threads
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{128, 10, 5003}, {7, 300, 4096}, {32, 33, 4111}})
      for (bool accumulate : {false, true}) check_product(dtype, m, n, k, 0, 1, accumulate);
  // Long sums of numbers of the same sign keep their precision.
  for (const auto& [m, n] : {std::array<int64_t, 2>{1, 1}, {1, 20}, {3, 20}, {20, 20}}) {
    const Array tenths = Array::empty({m, 5000}, DType::f32), ones = Array::empty({5000, n}, DType::f32);
    naive().fill(tenths, 0.1), naive().fill(ones, 1);
    compare(Array::empty({m, n}, DType::f32), 2 * tolerance_of(DType::f32),
            [&](Backend& on, const Array& y) { on.matmul(tenths, ones, y, false); });
  }
  const Array a = random({1, 300}), b = random({300, 50}), wide = random({50, 2});
  compare(wide, 1e-4, [&](Backend& on, const Array& y) {  // c is a column of a wider matrix
    on.matmul(b.transpose(0, 1), a.transpose(0, 1), y.slice(1, 1, 2), true);
  });
}

TEST_CASE("products of tens of rows, both operands contiguous along a long depth") {
  for (DType dtype : {DType::f32, DType::f64}) {
    check_product(dtype, 7, 9, 256, 0, 1, false);
    check_product(dtype, 31, 130, 300, 2, 1, true);
    check_product(dtype, 128, 100, 784, 0, 1, false);
    check_product(dtype, 33, 1, 401, 0, 1, true);
  }
}

TEST_CASE("empty products, and products of infinities") {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{0, 5, 3}, {4, 0, 3}, {1, 0, 3}, {4, 5, 0}, {1, 5, 0}, {40, 1, 0}})
    for (DType dtype : {DType::f32, DType::bf16})
      for (bool accumulate : {false, true}) check_product(dtype, m, n, k, 0, 1, accumulate);
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 40, 9}, {3, 40, 40}, {20, 40, 9}, {100, 100, 100}}) {
    const Array a = random({m, k}), b = random({k, n}), turned = random({n, k});
    a.data<float>()[k / 2] = INFINITY;
    b.data<float>()[n / 2] = 0, turned.data<float>()[k / 2] = 0;
    b.data<float>()[n - 1] = NAN, turned.data<float>()[k] = -INFINITY;
    compare(random({m, n}), 1e-4, [&](Backend& on, const Array& y) { on.matmul(a, b, y, false); });
    compare(random({m, n}), 1e-4, [&](Backend& on, const Array& y) { on.matmul(a, turned.transpose(0, 1), y, false); });
  }
}

TEST_CASE("batches of products") {
  // Small products with and without packing; many larger ones; few larger ones.
  for (const auto& sizes :
       {std::array<int64_t, 4>{7, 16, 16, 32}, {64, 5, 17, 9}, {20, 1, 40, 33}, {17, 20, 70, 60}, {3, 90, 80, 100}})
    for (int layout = 0; layout < 8; ++layout) {
      const int64_t count = sizes[0], m = sizes[1], n = sizes[2], k = sizes[3];
      const DType dtype = layout == 2 ? DType::f64 : layout == 3 ? DType::bf16 : layout == 6 ? DType::f16 : DType::f32;
      const Array a = layout & 1 ? random({count, k, m}, dtype).transpose(1, 2) : random({count, m, k}, dtype);
      const Array b = layout & 2 ? random({count, n, k}, dtype).transpose(1, 2) : random({count, k, n}, dtype);
      const Array one = random({k, n}, dtype);
      INFO(count << " products " << m << " x " << n << " x " << k << ", layout " << layout);
      compare(random({count, m, n}, dtype), allowed(dtype, k),
              [&](Backend& on, const Array& y) { on.matmul(a, b, y, layout & 4); });
      compare(random({count, m, n}, dtype), allowed(dtype, k), [&](Backend& on, const Array& y) {
        on.matmul(a, one.expand({count, k, n}), y, layout & 4);
      });
      compare(random({n, count, m}, dtype), allowed(dtype, k), [&](Backend& on, const Array& y) {
        on.matmul(a, b, y.permute({1, 2, 0}), layout & 4);
      });
    }
}

// C = C + A B + row_bias + column_bias, for all combinations of terms and all types.
TEMPLATE_TEST_CASE("a product adds biases and the previous C", "", float, double, Half, BFloat16) {
  using T = TestType;
  const DType dtype = dtype_of<T>;
  for (const auto& sizes :
       {std::array<int64_t, 3>{1, 300, 40}, {300, 1, 40}, {3, 70, 80}, {70, 3, 80}, {20, 50, 33}, {120, 130, 600}})
    for (bool turned : {false, true}) {
      const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
      INFO(name(dtype) << " " << m << " x " << n << " x " << k << ", turned " << turned);
      const Array a = random({m, k}, dtype), b = matrix(k, n, dtype, turned);
      const Array row_bias = random({m, 1}, dtype), column_bias = random({1, n}, dtype);
      const auto as_matrix = [](const Array& x) {
        return openmp_detail::Matrix<T>{x.data<T>(), x.strides()[0], x.strides()[1]};
      };
      const auto constant = [&](const Array& x) {
        const auto given = as_matrix(x);
        return openmp_detail::Matrix<const T>{given.data, given.row_stride, given.column_stride};
      };
      compare(matrix(m, n, dtype, turned), allowed(dtype, k), [&](Backend& on, const Array& y) {
        if (on.name() == "naive") {
          const Array sum = Array::empty({m, n}, DType::f64), product = Array::empty({m, n}, DType::f64);
          on.copy(y, sum);
          on.matmul(dense(a), dense(b), product, false);
          for (const Array& term : {product, dense(row_bias).expand({m, n}), dense(column_bias).expand({m, n})})
            on.binary(BinaryOp::add, sum, term, sum);
          return on.copy(sum, y);
        }
        const openmp_detail::GemmArgs<T> args{.rows = m,
                                              .columns = n,
                                              .depth = k,
                                              .a = constant(a),
                                              .b = constant(b),
                                              .c = as_matrix(y),
                                              .accumulate = true,
                                              .row_bias = row_bias.data<T>(),
                                              .column_bias = column_bias.data<T>()};
        const openmp_detail::KernelTable& table = openmp_detail::kernel_table();
        openmp_detail::gemm(table, select(openmp_detail::problem_of(table, num_threads(), args)), args);
      });
    }
}

TEST_CASE("half types are converted or paired block by block") {
  for (DType dtype : {DType::bf16, DType::f16})
    for (int layout_a = 0; layout_a < 4; ++layout_a)
      for (int layout_b = 0; layout_b < 4; ++layout_b) {
        check_product(dtype, 7, 33, 15, layout_a, layout_b, false);
        check_product(dtype, 40, 45, 71, layout_a, layout_b, true);
      }
  check_product(DType::bf16, 600, 530, 40, 0, 1, false);
  check_product(DType::bf16, 30, 40, 1301, 1, 0, true);  // odd depth of several blocks
  check_product(DType::f16, 9, 1100, 530, 0, 0, false);
  check_product(DType::bf16, 1, 200, 300, 0, 1, false);
  check_product(DType::bf16, 300, 2100, 90, 0, 0, false);   // more columns than are packed at a time
  check_product(DType::bf16, 20, 300, 40000, 1, 1, false);  // packed in narrow strips
}

TEST_CASE("half types with one or a few rows or columns are converted while they are read") {
  for (DType dtype : {DType::bf16, DType::f16})
    for (int64_t few : {1, 2, 3, 5, 6})
      for (const auto& [n, k] : {std::array<int64_t, 2>{1, 1}, {9, 50}, {700, 33}, {67, 131}})
        for (int layout = 0; layout < 8; ++layout) {
          check_product(dtype, few, n, k, layout / 2, layout % 2, few % 2);
          check_product(dtype, n, few, k, layout % 2, layout / 2, few % 2);
        }
}

// If the processor has bfloat16 instructions, their sums differ from float's only by float roundings, which may change
// the rounded result by one unit in the last place.
TEST_CASE("dot products of bfloat16 agree with products of converted floats") {
  if (best_cpu_isa() != CpuIsa::avx512) return;
  const CpuIsa before = cpu_isa();
  const Array a = random({65, 201}, DType::bf16), b = random({201, 70}, DType::bf16);
  const Array paired = Array::empty({65, 70}, DType::bf16), widened = Array::empty({65, 70}, DType::bf16);
  test::openmp().matmul(a, b, paired, false);
  set_cpu_isa(CpuIsa::avx2);
  test::openmp().matmul(a, b, widened, false);
  set_cpu_isa(before);
  int64_t different = 0;
  for (int64_t i = 0; i < paired.numel(); ++i) {
    const int x = paired.data<BFloat16>()[i].bits, y = widened.data<BFloat16>()[i].bits;
    const float size = std::abs(static_cast<float>(widened.data<BFloat16>()[i]));
    if (size > 0.1f) CHECK(std::abs(x - y) <= 1);
    different += x != y;
  }
  CHECK(different < paired.numel() / 50);
}
