// The fused steps of recurrent layers: rows of the batch in parallel, each by one vector kernel.
#include <algorithm>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/parallel.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// Rows without gaps between their elements, which are all of one type that has vectors.
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

// Calls f.operator()<T>(row) for all rows of (rows, size) matrices.
template <class F>
void for_rows(DType dtype, int64_t rows, int64_t size, const F& f) {
  if (size == 0) return;
  parallel_for(rows, std::max<int64_t>(1, 2048 / size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (dtype == DType::f64) f.template operator()<double>(row);
      else f.template operator()<float>(row);
    }
  });
}

}  // namespace

void OpenmpBackend::lstm_cell(const MutableView& gates, const View& c_before, const MutableView& c,
                              const MutableView& h) {
  if (!vectorizable({&gates, &c_before, &c, &h})) return Backend::lstm_cell(gates, c_before, c, h);
  EventScope event("lstm_cell", "openmp", kernel_table().vectors, {&gates, &c_before, &c, &h}, 30 * c.numel());
  const int64_t size = c.shape[1];
  for_rows(c.dtype, c.shape[0], size, [&]<class T>(int64_t row) {
    T* sums = row_of<T>(gates, row);
    kernels_of<T>(kernel_table())
        .lstm_cell({size,
                    {sums, sums + size, sums + 2 * size, sums + 3 * size},
                    row_of<T>(c_before, row),
                    row_of<T>(c, row),
                    row_of<T>(h, row)});
  });
}

void OpenmpBackend::lstm_cell_backward(const View& dh, const View& gates, const View& c_before, const View& c,
                                       const MutableView& dc, const MutableView& dgates) {
  if (!vectorizable({&dh, &gates, &c_before, &c, &dc, &dgates}))
    return Backend::lstm_cell_backward(dh, gates, c_before, c, dc, dgates);
  EventScope event("lstm_cell_backward", "openmp", kernel_table().vectors, {&dh, &gates, &c_before, &c, &dc, &dgates},
                   30 * c.numel());
  const int64_t size = c.shape[1];
  for_rows(c.dtype, c.shape[0], size, [&]<class T>(int64_t row) {
    const T* active = row_of<T>(gates, row);
    T* sums = row_of<T>(dgates, row);
    kernels_of<T>(kernel_table())
        .lstm_cell_backward({size,
                             row_of<T>(dh, row),
                             {active, active + size, active + 2 * size, active + 3 * size},
                             row_of<T>(c_before, row),
                             row_of<T>(c, row),
                             row_of<T>(dc, row),
                             {sums, sums + size, sums + 2 * size, sums + 3 * size}});
  });
}

}  // namespace gradus
