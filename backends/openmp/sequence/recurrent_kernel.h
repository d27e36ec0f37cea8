// The element-wise part of a step of each recurrent cell, one batch row at a time. Since it is fused, each operand is
// read or written only once. Formulas: core/formulas/recurrent_cell.h.
#pragma once

#include <gradus/backends/openmp/simd/map_kernel.h>
#include <gradus/core/formulas/recurrent_cell.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T, RecurrentCell cell>
void recurrent_cell(T* gates, const T* c_before, T* c, T* h, int64_t size) {
  for_lanes<T>(size, [&](int64_t j, auto lanes) {
    Lanes<T> active[sums_of(cell)];
    for (int k = 0; k < sums_of(cell); ++k)
      active[k] = scalar::recurrent_gate<cell>(k, Lanes<T>(lanes.get(gates + k * size + j)));
    const auto step = scalar::recurrent_cell<cell>(active, Lanes<T>(lanes.get(c_before + j)));
    for (int k = 0; k < sums_of(cell); ++k) lanes.put(gates + k * size + j, step.gates[k].v);
    lanes.put(c + j, step.c.v), lanes.put(h + j, step.h.v);
  });
}

template <class T, RecurrentCell cell>
void recurrent_cell_backward(const T* dh, const T* gates, const T* c_before, const T* c, T* dc, T* dgates,
                             int64_t size) {
  for_lanes<T>(size, [&](int64_t j, auto lanes) {
    const auto get = [&](const T* from) { return Lanes<T>(lanes.get(from + j)); };
    Lanes<T> active[sums_of(cell)];
    for (int k = 0; k < sums_of(cell); ++k) active[k] = get(gates + k * size);
    const auto gradient = scalar::recurrent_cell_backward<cell>(active, get(c_before), get(c), get(dh), get(dc));
    for (int k = 0; k < sums_of(cell); ++k) lanes.put(dgates + k * size + j, gradient.sums[k].v);
    lanes.put(dc + j, gradient.dc_before.v);
  });
}

/// The kernels of the cells, in their order.
template <class T, RecurrentCell... cells>
constexpr RecurrentCellKernels<T> kCellTable[] = {{recurrent_cell<T, cells>, recurrent_cell_backward<T, cells>}...};

}  // namespace gradus::openmp_detail::GRADUS_ISA
