// y = a b over leading batch axes, and y = x wᵀ + bias, by gemm.h. Integers are left to NaiveBackend.
#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/backends/openmp/openmp.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/operand.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

template <class T, class AnyView>
Matrix<T> last_axes(const AnyView& view) {
  const int n = view.ndim();
  return {view.template as<std::remove_const_t<T>>(), view.strides[n - 2], view.strides[n - 1]};
}

// Merges the innermost batch axis into the rows if b does not vary along it: one product instead of many.
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

int64_t flops(const View& a, const View& y) { return 2 * y.numel() * a.shape[a.ndim() - 1]; }

// True if neither rows nor columns are contiguous; such products are computed in a contiguous copy.
bool has_gaps(const MutableView& y) {
  const int rows = y.ndim() - 2, columns = y.ndim() - 1;
  return y.strides[columns] != 1 && y.strides[rows] != 1 && y.shape[columns] != 1 && y.shape[rows] != 1;
}

// Selects a plan, opens the operator's event and runs the plan.
template <class T>
void run(const char* op, EventScope::Operands operands, int64_t flops, const GemmArgs<T>& args,
         const GemmBatch& batch = {}) {
  const KernelTable& table = kernel_table();
  const GemmPlan plan = select(problem_of(table, num_threads(), args, batch));
  EventScope event(op, "openmp", plan.implementation, operands, flops, plan.reason());
  gemm(table, plan, args, batch);
}

}  // namespace

std::unique_ptr<Backend> make_openmp_backend() { return std::make_unique<OpenmpBackend>(); }

void OpenmpBackend::matmul(const View& a, const View& b, const MutableView& y, bool accumulate) {
  if (!is_floating(y.dtype)) return NaiveBackend::matmul(a, b, y, accumulate);
  if (a.shape[a.ndim() - 1] == 0 && !accumulate) return fill(y, 0);
  if (a.shape[a.ndim() - 1] == 0) return;
  const Output result(*this, y, has_gaps(y), y.dtype, MemoryFormat::contiguous);
  View left = a, right = b;
  MutableView out = result.view();
  if (accumulate && has_gaps(y)) copy(y, out);
  join_rows(&left, &right, &out);
  const int rows = out.ndim() - 2;
  visit_floating(y.dtype, [&]<class T> {
    run<T>("matmul", {&a, &b, &y}, flops(a, y),
           {.rows = out.shape[rows],
            .columns = out.shape[rows + 1],
            .depth = left.shape[rows + 1],
            .a = last_axes<const T>(left),
            .b = last_axes<const T>(right),
            .c = last_axes<T>(out),
            .accumulate = accumulate},
           {.shape = batch_strides(out.shape),
            .a = batch_strides(left.strides),
            .b = batch_strides(right.strides),
            .c = batch_strides(out.strides)});
  });
  result.finish();
}

void OpenmpBackend::linear(const View& x, const View& w, const View& bias, const MutableView& y) {
  if (x.shape[1] == 0) return Backend::linear(x, w, bias, y);
  const bool strided_bias = bias && bias.strides[0] != 1 && bias.shape[0] > 1;
  const Input dense_bias(*this, bias, strided_bias, bias.dtype, MemoryFormat::contiguous);
  const Output result(*this, y, has_gaps(y), y.dtype, MemoryFormat::contiguous);
  visit_floating(y.dtype, [&]<class T> {
    run<T>("linear", {&x, &w, &y}, flops(x, y),
           {.rows = y.shape[0],
            .columns = y.shape[1],
            .depth = w.shape[1],
            .a = last_axes<const T>(x),
            .b = last_axes<const T>(w).transposed(),
            .c = last_axes<T>(result.view()),
            .column_bias = dense_bias.view().as<T>()});
  });
  result.finish();
}

}  // namespace gradus
