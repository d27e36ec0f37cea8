// fill and copy. Elements of the same type are moved as integers of their size; for each pair of different types there
// is a loop that converts.
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// Copies an array row by row if the rows, which are the innermost axis, are short and contiguous in both x and y.
// Returns false if the loop nest does not have this form.
template <class T>
bool copy_short_rows(const StridedLoop<2>& nest, const View& x, const MutableView& y) {
  constexpr int64_t kShort = 1024 / sizeof(T);
  if (nest.ndim < 2 || nest.numel == 0 || step_of(nest, 0) != 1 || step_of(nest, 1) != 1) return false;
  const int64_t length = nest.shape[nest.ndim - 1];
  if (length > kShort) return false;
  const StridedLoop<2> rows = without_axis(nest, nest.ndim - 1);
  const int64_t y_step = step_of(rows, 0), x_step = step_of(rows, 1);
  const auto copy_run = [&](const int64_t* at, int64_t count) {
    copy_rows<T>(
        count, length, [&](int64_t i) { return x.as<T>() + at[1] + i * x_step; },
        [&](int64_t i) { return y.as<T>() + at[0] + i * y_step; });
  };
  parallel_runs(rows, copy_run, std::max<int64_t>(1, kGrain / length));
  return true;
}

// Transposes a matrix, in vectors and in pieces that fit in the cache, if x is contiguous along another axis than y.
// Returns false if the loop nest does not have this form.
template <class T>
bool copy_transposed(const StridedLoop<2>& nest, const View& x, const MutableView& y) {
  constexpr int64_t kPiece = 64;  // columns per piece
  const int inner = nest.ndim - 1;
  int other = inner;
  while (other >= 0 && nest.strides[1][other] != 1) --other;
  if (other < 0 || other == inner || nest.strides[0][inner] != 1) return false;
  const int64_t rows = nest.shape[inner], columns = nest.shape[other];
  if (rows < 4 || columns < 4) return false;
  const StridedLoop<2> matrices = without_axis(without_axis(nest, inner), other);
  const int64_t pieces = ceil_div(columns, kPiece), x_row = nest.strides[1][inner], y_row = nest.strides[0][other];
  const auto transpose = kernels_of<T>(kernel_table()).transpose;
  parallel_each(matrices.numel * pieces, std::max<int64_t>(1, kGrain / (rows * kPiece)), [&](int64_t i) {
    const auto at = offsets_of(matrices, i / pieces);
    const int64_t column = i % pieces * kPiece;
    transpose({x.as<T>() + at[1] + column, x_row, rows, std::min(kPiece, columns - column),
               y.as<T>() + at[0] + column * y_row, y_row});
  });
  return true;
}

// Converts `count` elements, which have the strides x_step and y_step.
template <class From, class To>
void convert_run(const View& x, int64_t x_at, int64_t x_step, const MutableView& y, int64_t y_at, int64_t y_step,
                 int64_t count) {
  const From* in = x.as<From>() + x_at;
  To* out = y.as<To>() + y_at;
  if (x_step == 1 && y_step == 1) return convert_block(in, out, count);
  for (int64_t i = 0; i < count; ++i) out[i * y_step] = scalar::convert<To>(in[i * x_step]);
}

}  // namespace

void OpenmpBackend::fill(const MutableView& y, const Scalar& value) {
  EventScope event("fill", "openmp", "loops", {&y});
  const StridedLoop<1> nest(y.shape, {&y.strides});
  const int64_t step = step_of(nest, 0);
  visit(y.dtype, [&]<class T> {
    const T element = value.cast<T>();
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &element, sizeof(T));
    const bool same_bytes = std::count(bytes, bytes + sizeof(T), bytes[0]) == sizeof(T);  // usually a fill with 0
    parallel_runs(nest, [&](const int64_t* at, int64_t count) {
      T* out = y.as<T>() + at[0];
      if (step == 1 && same_bytes)
        std::memset(static_cast<void*>(out), bytes[0], static_cast<size_t>(count) * sizeof(T));
      else if (step == 1) std::fill_n(out, count, element);
      else
        for (int64_t i = 0; i < count; ++i) out[i * step] = element;
    });
  });
}

void OpenmpBackend::copy(const View& x, const MutableView& y) {
  EventScope event("copy", "openmp", "loops", {&x, &y});
  const StridedLoop<2> nest(y.shape, {&y.strides, &x.strides});
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1);
  if (x.dtype != y.dtype) {
    // A pointer, so that the loop over the runs is compiled once and not for each pair of types.
    decltype(&convert_run<float, double>) convert = nullptr;
    visit(x.dtype, [&]<class From> { visit(y.dtype, [&]<class To> { convert = convert_run<From, To>; }); });
    return parallel_runs(nest,
                         [&](const int64_t* at, int64_t count) { convert(x, at[1], x_step, y, at[0], y_step, count); });
  }
  if (size_of(y.dtype) == 4 && copy_transposed<float>(nest, x, y)) return;
  if (size_of(y.dtype) == 8 && copy_transposed<double>(nest, x, y)) return;
  visit_bits(y.dtype, [&]<class Bits> {
    if (copy_short_rows<Bits>(nest, x, y)) return;
    parallel_runs(nest, [&](const int64_t* at, int64_t count) {
      Bits* out = y.as<Bits>() + at[0];
      const Bits* in = x.as<Bits>() + at[1];
      if (y_step == 1 && x_step == 1) std::memmove(out, in, static_cast<size_t>(count) * sizeof(Bits));
      else if (y_step == 1 && x_step == 0) std::fill_n(out, count, *in);
      else if (y_step == 1 && x_step == -1) std::reverse_copy(in - (count - 1), in + 1, out);
      else
        for (int64_t i = 0; i < count; ++i) out[i * y_step] = in[i * x_step];
    });
  });
}

}  // namespace gradus
