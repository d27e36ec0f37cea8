// y = a b over leading batch axes, and y = x wT + bias. float and double go to gemm.h; half types are widened to float
// for the product and rounded once; integers are NaiveBackend's.
#include <gradus/backends/openmp/gemm.h>
#include <gradus/backends/openmp/openmp.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/observer.h>
#include <gradus/core/parallel.h>

namespace gradus {
namespace {

using openmp::GemmArgs;
using openmp::Matrix;

constexpr int64_t kSmallProduct = int64_t{1} << 21;  // multiplications: below, whole products are what threads share

template <class T, class AnyView>
Matrix<T> last_axes(const AnyView& view) {
  const int n = view.ndim();
  return {view.template as<std::remove_const_t<T>>(), view.strides[n - 2], view.strides[n - 1]};
}

// Joins the innermost batch axis with the rows where b is the same for all of it: one product instead of many.
void join_rows(View* a, View* b, MutableView* y) {
  while (y->ndim() > 2) {
    const int at = y->ndim() - 3;
    const int64_t batch = y->shape[at], rows = y->shape[at + 1];
    const bool joins = batch == 1 || (b->strides[at] == 0 && a->strides[at] == rows * a->strides[at + 1] &&
                                      y->strides[at] == rows * y->strides[at + 1]);
    if (!joins) return;
    a->shape[at + 1] = y->shape[at + 1] = batch * rows;
    a->shape.erase(at), b->shape.erase(at), y->shape.erase(at);
    a->strides.erase(at), b->strides.erase(at), y->strides.erase(at);
  }
}

template <class T>
void multiply(View a, View b, MutableView y, bool accumulate) {
  join_rows(&a, &b, &y);
  const int batch_axes = y.ndim() - 2;
  GemmArgs<T> args{.rows = y.shape[batch_axes],
                   .columns = y.shape[batch_axes + 1],
                   .depth = a.shape[batch_axes + 1],
                   .a = last_axes<const T>(a),
                   .b = last_axes<const T>(b),
                   .c = last_axes<T>(y),
                   .accumulate = accumulate};
  int64_t batches = 1;
  for (int i = 0; i < batch_axes; ++i) batches *= y.shape[i];
  const openmp::KernelTable& table = openmp::kernel_table();
  const auto one = [&](int64_t batch) {
    GemmArgs<T> product = args;
    for (int i = batch_axes - 1; i >= 0; --i) {
      const int64_t index = batch % y.shape[i];
      batch /= y.shape[i];
      product.a.data += index * a.strides[i];
      product.b.data += index * b.strides[i];
      product.c.data += index * y.strides[i];
    }
    openmp::gemm(table, product);
  };
  const int64_t work = args.rows * args.columns * args.depth;
  const int64_t grain = work < kSmallProduct ? openmp::divide_up(kSmallProduct / 16, work + 1) : batches;
  parallel_for(batches, grain, [&](int64_t begin, int64_t end) {
    for (int64_t batch = begin; batch < end; ++batch) one(batch);
  });
}

}  // namespace

std::unique_ptr<Backend> make_openmp_backend() { return std::make_unique<OpenmpBackend>(); }

void OpenmpBackend::matmul(const View& a, const View& b, const MutableView& y, bool accumulate) {
  if (!is_floating(y.dtype)) return NaiveBackend::matmul(a, b, y, accumulate);
  EventScope event("matmul", "openmp", openmp::kernel_table().packed, {&a, &b, &y},
                   2 * y.numel() * a.shape[a.ndim() - 1]);
  if (y.dtype == DType::f32) return multiply<float>(a, b, y, accumulate);
  if (y.dtype == DType::f64) return multiply<double>(a, b, y, accumulate);
  const Array wide_a = Array::empty(a.shape), wide_b = Array::empty(b.shape), wide_y = Array::empty(y.shape);
  copy(a, wide_a), copy(b, wide_b);
  if (accumulate) copy(y, wide_y);
  multiply<float>(wide_a, wide_b, wide_y, accumulate);
  copy(wide_y, y);
}

void OpenmpBackend::linear(const View& x, const View& w, const View* bias, const MutableView& y) {
  EventScope event("linear", "openmp", openmp::kernel_table().packed, {&x, &w, &y}, 2 * y.numel() * w.shape[1]);
  const auto product = [&]<class T>(const View& x, const View& w, const View* bias, const MutableView& y) {
    openmp::gemm(openmp::kernel_table(), GemmArgs<T>{.rows = y.shape[0],
                                                     .columns = y.shape[1],
                                                     .depth = w.shape[1],
                                                     .a = last_axes<const T>(x),
                                                     .b = last_axes<const T>(w).transposed(),
                                                     .c = last_axes<T>(y),
                                                     .column_bias = bias ? bias->as<T>() : nullptr});
  };
  const DType dtype = y.dtype == DType::f64 ? DType::f64 : DType::f32;
  Array dense_bias;
  View bias_view;
  if (bias) {
    bias_view = *bias;
    if (bias->dtype != dtype || (bias->strides[0] != 1 && bias->shape[0] > 1)) {
      dense_bias = Array::empty(bias->shape, dtype);
      copy(*bias, dense_bias);
      bias_view = dense_bias;
    }
    bias = &bias_view;
  }
  if (y.dtype == DType::f32) return product.operator()<float>(x, w, bias, y);
  if (y.dtype == DType::f64) return product.operator()<double>(x, w, bias, y);
  const Array wide_x = Array::empty(x.shape), wide_w = Array::empty(w.shape), wide_y = Array::empty(y.shape);
  copy(x, wide_x), copy(w, wide_w);
  product.operator()<float>(wide_x, wide_w, bias, wide_y);
  copy(wide_y, y);
}

}  // namespace gradus
