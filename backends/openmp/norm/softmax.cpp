// Softmax and its gradient along an axis:
//   softmax      y = exp(x - m) / Z,  m = max(x),  Z = sum(exp(x - m));   dx = y (dy - sum(dy y))
//   log_softmax  y = x - m - ln Z;                                       dx = dy - exp(y) sum(dy)
//
// Two loop orders. By rows, where the axis is the innermost one in memory. By lanes, where other elements are closer
// (the channels of an image): a strip of neighbouring rows goes along the axis together, and maxima and sums are rows
// of numbers.
#include <gradus/backends/openmp/simd/softmax.h>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

constexpr int64_t kStrip = 1024;           // neighbours that go together
constexpr int64_t kStripElements = 65536;  // of a strip: they stay in the cache

// The nest of rows, and how the axis is strided: operand 0 is the result.
template <int N>
struct Rows {
  StridedLoop<N> nest;
  int64_t size, strip, along[N];

  Rows(const Shape& shape, int axis, const Strides* const (&strides)[N])
      : nest(rows_of(shape, axis), strides), size(shape.size() ? shape[axis] : 1) {
    for (int k = 0; k < N; ++k) along[k] = shape.size() ? (*strides[k])[axis] : 0;
    bool lanes = size > 1 && nest.ndim > 0 && nest.shape[nest.ndim - 1] >= 8;
    for (int k = 0; k < N; ++k) lanes = lanes && step_of(nest, k) < along[k];
    strip = lanes ? std::clamp<int64_t>(kStripElements / size, 16, kStrip) : 1;
  }

  // Calls f(memory, offsets, rows) for strips of at most `strip` neighbouring rows; chunks by shape. `memory` is the
  // thread's, `elements` of it.
  template <class C, class F>
  void each(int64_t elements, F&& f) const {
    const int64_t least = ceil_div(kGrain / 4, size);
    parallel_chunks<C>(nest.numel, round_up(least, strip), elements, [&](int64_t begin, int64_t end, C* memory) {
      for_each_run(nest, begin, end, [&](const int64_t* at, int64_t count) {
        for (int64_t i = 0; i < count; i += strip) {
          int64_t offsets[N];
          for (int k = 0; k < N; ++k) offsets[k] = at[k] + i * step_of(nest, k);
          f(memory, offsets, std::min(strip, count - i));
        }
      });
    });
  }
};

// Lanes of operand k of type C at element i of the axis.
template <class C, int N>
const C* lanes_of(const Rows<N>& rows, int k, const View& x, const int64_t* at, int64_t i, int64_t count, C* buffer) {
  return load_block(x, at[k] + i * rows.along[k], step_of(rows.nest, k), count, buffer);
}

template <class C>
void softmax_of(const View& x, int axis, bool log, const MutableView& y) {
  const Kernels<C>& kernels = kernels_of<C>(kernel_table());
  const Rows<2> rows(x.shape, axis, {&y.strides, &x.strides});
  const bool direct = y.dtype == dtype_of<C> && rows.along[0] == 1;
  if (rows.strip == 1)
    return rows.template each<C>(direct ? 0 : rows.size, [&](C* buffer, const int64_t* at, int64_t) {
      C* to = direct ? y.as<C>() + at[0] : buffer;
      softmax_row(kernels, load_block(x, at[1], rows.along[1], rows.size, to), to, rows.size, log);
      if (!direct) store_block(to, y, at[0], rows.along[0], rows.size);
    });
  const auto maximum = kernels.of(BinaryOp::maximum).apply, add = kernels.of(BinaryOp::add).apply,
             sub = kernels.of(BinaryOp::sub).apply, mul = kernels.of(BinaryOp::mul).apply;
  const auto exp = kernels.of(UnaryOp::exp).apply, ln = kernels.of(UnaryOp::log).apply,
             reciprocal = kernels.of(UnaryOp::reciprocal).apply;
  rows.template each<C>(rows.size * rows.strip, [&](C* work, const int64_t* at, int64_t count) {
    C max[kStrip], sum[kStrip], buffer[kStrip];
    for (int64_t i = 0; i < rows.size; ++i) {
      const C* from = lanes_of(rows, 1, x, at, i, count, buffer);
      if (i == 0) std::copy_n(from, count, max);
      else maximum(max, from, max, count);
    }
    std::fill_n(sum, count, C(0));
    for (int64_t i = 0; i < rows.size; ++i) {
      C* shifted = work + i * rows.strip;
      sub(lanes_of(rows, 1, x, at, i, count, buffer), max, shifted, count);
      C* e = log ? buffer : shifted;
      exp(shifted, e, count, {});
      add(sum, e, sum, count);
    }
    if (log) ln(sum, sum, count, {});
    else reciprocal(sum, sum, count, {});
    for (int64_t i = 0; i < rows.size; ++i) {
      C* result = work + i * rows.strip;
      (log ? sub : mul)(result, sum, result, count);
      store_block(result, y, at[0] + i * rows.along[0], step_of(rows.nest, 0), count);
    }
  });
}

template <class C>
void softmax_backward_of(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  const Kernels<C>& kernels = kernels_of<C>(kernel_table());
  const Rows<3> rows(y.shape, axis, {&dx.strides, &dy.strides, &y.strides});
  const auto add = kernels.of(BinaryOp::add).apply, sub = kernels.of(BinaryOp::sub).apply,
             mul = kernels.of(BinaryOp::mul).apply;
  const auto exp = kernels.of(UnaryOp::exp).apply;
  if (rows.strip == 1)
    return rows.template each<C>(3 * rows.size, [&](C* out, const int64_t* at, int64_t) {
      const int64_t n = rows.size;
      const C* gradient = load_block(dy, at[1], rows.along[1], n, out + n);
      const C* output = load_block(y, at[2], rows.along[2], n, out + 2 * n);
      if (log) {
        exp(output, out, n, {});
        kernels.combine(gradient, nullptr, out, C(0), C(1), -kernels.sum(gradient, n), C(0), out, n);
      } else {
        mul(gradient, output, out, n);
        kernels.affine(gradient, kernels.sum(out, n), C(1), C(0), nullptr, nullptr, out, n);
        mul(out, output, out, n);
      }
      store_block(out, dx, at[0], rows.along[0], n);
    });
  rows.template each<C>(0, [&](C*, const int64_t* at, int64_t count) {
    C sum[kStrip], result[kStrip], g_buffer[kStrip], y_buffer[kStrip];
    std::fill_n(sum, count, C(0));
    for (int64_t i = 0; i < rows.size; ++i) {
      const C* term = lanes_of(rows, 1, dy, at, i, count, g_buffer);
      if (!log) mul(term, lanes_of(rows, 2, y, at, i, count, y_buffer), result, count), term = result;
      add(sum, term, sum, count);
    }
    for (int64_t i = 0; i < rows.size; ++i) {
      const C* gradient = lanes_of(rows, 1, dy, at, i, count, g_buffer);
      const C* output = lanes_of(rows, 2, y, at, i, count, y_buffer);
      if (log) {
        exp(output, result, count, {});
        mul(result, sum, result, count);
        sub(gradient, result, result, count);
      } else {
        sub(gradient, sum, result, count);
        mul(result, output, result, count);
      }
      store_block(result, dx, at[0] + i * rows.along[0], step_of(rows.nest, 0), count);
    }
  });
}

}  // namespace

void OpenmpBackend::softmax(const View& x, int axis, bool log, const MutableView& y) {
  EventScope event(log ? "log_softmax" : "softmax", "openmp", kernel_table().vectors, {&x, &y}, 5 * x.numel());
  if (x.numel() == 0) return;
  visit_wide(y.dtype, [&]<class C> { softmax_of<C>(x, axis, log, y); });
}

void OpenmpBackend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  EventScope event(log ? "log_softmax_backward" : "softmax_backward", "openmp", kernel_table().vectors, {&dy, &y, &dx},
                   4 * dx.numel());
  if (y.numel() == 0) return;
  visit_wide(dx.dtype, [&]<class C> { softmax_backward_of<C>(dy, y, axis, log, dx); });
}

}  // namespace gradus
