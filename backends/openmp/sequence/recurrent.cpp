// The fused element-wise step of recurrent cells and its gradient. Threads share the rows of the batch; one vector
// kernel computes a row.
#include <algorithm>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/operand.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// An operand as a matrix with contiguous rows of float or double, the types for which there are vector kernels.
template <class AnyView>
Operand<AnyView> with_rows(Backend& backend, const AnyView& view) {
  const bool wide = view.dtype == DType::f32 || view.dtype == DType::f64;
  const bool dense = view.strides[1] == 1 || view.shape[1] <= 1;
  return {backend, view, !wide || !dense, wide ? view.dtype : DType::f32, MemoryFormat::contiguous};
}

// The same, for a result that is also read.
Output updated_with_rows(Backend& backend, const MutableView& view) {
  Output result = with_rows(backend, view);
  if (result.view().as<void>() != view.as<void>()) backend.copy(view, result.view());
  return result;
}

template <class T, class AnyView>
auto* row_of(const AnyView& view, int64_t row) {
  return view.template as<T>() + row * view.strides[0];
}

// Calls f.operator()<T>(row, kernels of the cell) for all rows of (rows, size) matrices.
template <class F>
void for_rows(RecurrentCell cell, const StridedLayout& c, const F& f) {
  if (c.shape[1] == 0) return;
  visit_wide(c.dtype, [&]<class T> {
    const RecurrentCellKernels<T>& kernels = kernels_of<T>(kernel_table()).cells[static_cast<size_t>(cell)];
    parallel_each(c.shape[0], std::max<int64_t>(1, 2048 / c.shape[1]),
                  [&](int64_t row) { f.template operator()<T>(row, kernels); });
  });
}

}  // namespace

void OpenmpBackend::recurrent_cell(RecurrentCell cell, const MutableView& gates, const View& c_before,
                                   const MutableView& c, const MutableView& h) {
  EventScope event("recurrent_cell", "openmp", kernel_table().vectors, {&gates, &c_before, &c, &h}, 30 * c.numel());
  const Output values = updated_with_rows(*this, gates), next = with_rows(*this, c), output = with_rows(*this, h);
  const Input before = with_rows(*this, c_before);
  for_rows(cell, next.view(), [&]<class T>(int64_t row, const RecurrentCellKernels<T>& kernels) {
    kernels.forward(row_of<T>(values.view(), row), row_of<T>(before.view(), row), row_of<T>(next.view(), row),
                    row_of<T>(output.view(), row), c.shape[1]);
  });
  for (const Output* result : {&values, &next, &output}) result->finish();
}

void OpenmpBackend::recurrent_cell_backward(RecurrentCell cell, const View& dh, const View& gates, const View& c_before,
                                            const View& c, const MutableView& dc, const MutableView& dgates) {
  EventScope event("recurrent_cell_backward", "openmp", kernel_table().vectors,
                   {&dh, &gates, &c_before, &c, &dc, &dgates}, 30 * c.numel());
  const Input g = with_rows(*this, dh), values = with_rows(*this, gates), before = with_rows(*this, c_before);
  const Input state = with_rows(*this, c);
  const Output dstate = updated_with_rows(*this, dc), dsums = with_rows(*this, dgates);
  for_rows(cell, state.view(), [&]<class T>(int64_t row, const RecurrentCellKernels<T>& kernels) {
    kernels.backward(row_of<T>(g.view(), row), row_of<T>(values.view(), row), row_of<T>(before.view(), row),
                     row_of<T>(state.view(), row), row_of<T>(dstate.view(), row), row_of<T>(dsums.view(), row),
                     c.shape[1]);
  });
  dstate.finish(), dsums.finish();
}

}  // namespace gradus
