// Softmax and its gradient along an axis:
//   softmax      y = exp(x - m) / Z,  m = max(x),  Z = sum(exp(x - m));   dx = y (dy - sum(dy y))
//   log_softmax  y = x - m - ln Z;                                       dx = dy - exp(y) sum(dy)
//
// Rows are computed one at a time. If elements of different rows are closer in memory than those of a row (softmax over
// the channels of an image), several rows are first transposed in the cache.
#include <cmath>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// Computes a row; y may be x. The largest element is subtracted before the exponential, so that nothing overflows.
template <class C>
void softmax_row(const Kernels<C>& kernels, const C* x, C* y, int64_t size, SoftmaxKind kind) {
  const bool log = kind == SoftmaxKind::log_softmax, or_zeros = kind == SoftmaxKind::or_zeros;
  C max = kernels.max(x, size);
  if (or_zeros && max == -INFINITY) max = 0;
  C sum = kernels.exp_sum(x, max, log ? nullptr : y, size);
  if (or_zeros && sum == 0) sum = 1;
  if (log) kernels.affine(x, max, C(1), -std::log(sum), nullptr, nullptr, y, size);
  else kernels.affine(y, C(0), C(1) / sum, C(0), nullptr, nullptr, y, size);
}

template <class C>
void softmax_of(const View& x, int axis, SoftmaxKind kind, const MutableView& y) {
  const RowsAlong<2> rows(x.shape, axis, {&x.strides, &y.strides});
  rows.template each<C>(1, [&](C* buffer, const int64_t* at, int64_t count) {
    const bool direct = count == 1 && y.dtype == dtype_of<C> && rows.along[1] == 1;
    C* to = direct ? y.as<C>() + at[1] : buffer;
    const C* from = rows.load(0, x, at, count, to);
    for (int64_t i = 0; i < count * rows.pitch; i += rows.pitch)
      softmax_row(kernels_of<C>(kernel_table()), from + i, to + i, rows.size, kind);
    if (!direct) rows.store(1, to, y, at, count);
  });
}

template <class C>
void softmax_backward_of(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  const Kernels<C>& kernels = kernels_of<C>(kernel_table());
  const auto mul = kernels.of(BinaryOp::mul).apply;
  const RowsAlong<3> rows(y.shape, axis, {&y.strides, &dy.strides, &dx.strides});
  rows.template each<C>(3, [&](C* buffer, const int64_t* at, int64_t count) {
    const int64_t n = rows.size, pitch = rows.pitch;
    const C* output = rows.load(0, y, at, count, buffer + rows.room());
    const C* gradient = rows.load(1, dy, at, count, buffer + 2 * rows.room());
    for (C* out = buffer; out < buffer + count * pitch; out += pitch, output += pitch, gradient += pitch)
      if (log) {
        kernels.of(UnaryOp::exp).apply(output, out, n, {});
        kernels.combine(gradient, nullptr, out, C(0), C(1), -kernels.sum(gradient, n), C(0), out, n);
      } else {
        mul(gradient, output, out, n);
        kernels.affine(gradient, kernels.sum(out, n), C(1), C(0), nullptr, nullptr, out, n);
        mul(out, output, out, n);
      }
    rows.store(2, buffer, dx, at, count);
  });
}

}  // namespace

void OpenmpBackend::softmax(const View& x, int axis, SoftmaxKind kind, const MutableView& y) {
  EventScope event(kind == SoftmaxKind::log_softmax ? "log_softmax" : "softmax", "openmp", kernel_table().vectors,
                   {&x, &y}, 5 * x.numel());
  if (x.numel() == 0) return;
  visit_wide(y.dtype, [&]<class C> { softmax_of<C>(x, axis, kind, y); });
}

void OpenmpBackend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  EventScope event(log ? "log_softmax_backward" : "softmax_backward", "openmp", kernel_table().vectors, {&dy, &y, &dx},
                   4 * dx.numel());
  if (y.numel() == 0) return;
  visit_wide(dx.dtype, [&]<class C> { softmax_backward_of<C>(dy, y, axis, log, dx); });
}

}  // namespace gradus
