// The fused element-wise step of an LSTM and its gradient. Threads share the rows of the batch; one vector kernel
// computes a row.
#include <algorithm>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// Returns true if all views have contiguous rows of float or double, the types for which there are vector kernels.
bool vectorizable(std::initializer_list<const StridedLayout*> views) {
  for (const StridedLayout* view : views) {
    const bool dense = view->strides[1] == 1 || view->shape[1] <= 1;
    if (!dense || (view->dtype != DType::f32 && view->dtype != DType::f64)) return false;
  }
  return true;
}

template <class T, class AnyView>
auto* row_of(const AnyView& view, int64_t row) {
  return view.template as<T>() + row * view.strides[0];
}

// Calls f.operator()<T>(row, kernels) for all rows of (rows, size) matrices.
template <class F>
void for_rows(const StridedLayout& c, const F& f) {
  if (c.shape[1] == 0) return;
  visit_wide(c.dtype, [&]<class T> {
    parallel_each(c.shape[0], std::max<int64_t>(1, 2048 / c.shape[1]),
                  [&](int64_t row) { f.template operator()<T>(row, kernels_of<T>(kernel_table())); });
  });
}

}  // namespace

void OpenmpBackend::lstm_cell(const MutableView& gates, const View& c_before, const MutableView& c,
                              const MutableView& h) {
  if (!vectorizable({&gates, &c_before, &c, &h})) return Backend::lstm_cell(gates, c_before, c, h);
  EventScope event("lstm_cell", "openmp", kernel_table().vectors, {&gates, &c_before, &c, &h}, 30 * c.numel());
  for_rows(c, [&]<class T>(int64_t row, const Kernels<T>& kernels) {
    kernels.lstm_cell(row_of<T>(gates, row), row_of<T>(c_before, row), row_of<T>(c, row), row_of<T>(h, row),
                      c.shape[1]);
  });
}

void OpenmpBackend::lstm_cell_backward(const View& dh, const View& gates, const View& c_before, const View& c,
                                       const MutableView& dc, const MutableView& dgates) {
  if (!vectorizable({&dh, &gates, &c_before, &c, &dc, &dgates}))
    return Backend::lstm_cell_backward(dh, gates, c_before, c, dc, dgates);
  EventScope event("lstm_cell_backward", "openmp", kernel_table().vectors, {&dh, &gates, &c_before, &c, &dc, &dgates},
                   30 * c.numel());
  for_rows(c, [&]<class T>(int64_t row, const Kernels<T>& kernels) {
    kernels.lstm_cell_backward(row_of<T>(dh, row), row_of<T>(gates, row), row_of<T>(c_before, row), row_of<T>(c, row),
                               row_of<T>(dc, row), row_of<T>(dgates, row), c.shape[1]);
  });
}

}  // namespace gradus
