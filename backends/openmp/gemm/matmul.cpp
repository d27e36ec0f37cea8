// y = a b over leading batch axes, and y = x wT + bias: by gemm.h, but integers are NaiveBackend's.
#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/openmp.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using openmp::GemmArgs;
using openmp::Matrix;

template <class T, class AnyView>
Matrix<T> last_axes(const AnyView& view) {
  const int n = view.ndim();
  return {view.template as<std::remove_const_t<T>>(), view.strides[n - 2], view.strides[n - 1]};
}

const char* implementation(DType dtype) {
  const openmp::KernelTable& table = openmp::kernel_table();
  return dtype == DType::bf16 && table.bf16_pairs ? table.bf16_pairs : table.packed;
}

// Joins the innermost batch axis with the rows where b is the same for all of it: one product instead of many.
void join_rows(View* a, View* b, MutableView* y) {
  while (y->ndim() > 2) {
    const int at = y->ndim() - 3;
    const int64_t batch = y->shape[at], rows = y->shape[at + 1];
    const auto follows = [&](const Strides& strides) { return strides[at] == rows * strides[at + 1]; };
    const bool joins = batch == 1 || (b->strides[at] == 0 && follows(a->strides) && follows(y->strides));
    if (!joins) return;
    const auto join = [&](StridedLayout& layout) {
      layout.shape[at + 1] *= batch;
      layout.shape.erase(at), layout.strides.erase(at);
    };
    join(*a), join(*y);
    b->shape.erase(at), b->strides.erase(at);
  }
}

Dims batch_strides(const Strides& strides) { return {strides.data(), static_cast<size_t>(strides.size() - 2)}; }

void multiply(View a, View b, MutableView y, bool accumulate) {
  join_rows(&a, &b, &y);
  const int rows = y.ndim() - 2;
  visit_floating(y.dtype, [&]<class T> {
    openmp::gemm(openmp::kernel_table(),
                 GemmArgs<T>{.rows = y.shape[rows],
                             .columns = y.shape[rows + 1],
                             .depth = a.shape[rows + 1],
                             .a = last_axes<const T>(a),
                             .b = last_axes<const T>(b),
                             .c = last_axes<T>(y),
                             .accumulate = accumulate},
                 {.shape = batch_strides(y.shape),
                  .a = batch_strides(a.strides),
                  .b = batch_strides(b.strides),
                  .c = batch_strides(y.strides)});
  });
}

int64_t flops(const View& a, const View& y) { return 2 * y.numel() * a.shape[a.ndim() - 1]; }

}  // namespace

std::unique_ptr<Backend> make_openmp_backend() { return std::make_unique<OpenmpBackend>(); }

void OpenmpBackend::matmul(const View& a, const View& b, const MutableView& y, bool accumulate) {
  if (!is_floating(y.dtype)) return NaiveBackend::matmul(a, b, y, accumulate);
  EventScope event("matmul", "openmp", implementation(y.dtype), {&a, &b, &y}, flops(a, y));
  multiply(a, b, y, accumulate);
}

void OpenmpBackend::linear(const View& x, const View& w, const View* bias, const MutableView& y) {
  EventScope event("linear", "openmp", implementation(y.dtype), {&x, &w, &y}, flops(x, y));
  Array dense_bias;
  if (bias && bias->strides[0] != 1 && bias->shape[0] > 1) {
    dense_bias = Array::empty(bias->shape, bias->dtype);
    copy(*bias, dense_bias);
  }
  visit_floating(y.dtype, [&]<class T> {
    const T* column_bias = bias ? bias->as<T>() : nullptr;
    openmp::gemm(openmp::kernel_table(),
                 GemmArgs<T>{.rows = y.shape[0],
                             .columns = y.shape[1],
                             .depth = w.shape[1],
                             .a = last_axes<const T>(x),
                             .b = last_axes<const T>(w).transposed(),
                             .c = last_axes<T>(y),
                             .column_bias = dense_bias.defined() ? dense_bias.data<T>() : column_bias});
  });
}

}  // namespace gradus
