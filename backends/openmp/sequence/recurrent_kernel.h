// The element-wise part of an LSTM step, one batch row at a time. Since it is fused, each operand is read or written
// only once. Formulas: core/formulas/lstm_cell.h.
#pragma once

#include <gradus/backends/openmp/simd/map_kernel.h>
#include <gradus/core/formulas/lstm_cell.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T>
void lstm_cell(T* gates, const T* c_before, T* c, T* h, int64_t size) {
  for_lanes<T>(size, [&](int64_t j, auto lanes) {
    const auto gate = [&](int k) { return Lanes<T>(lanes.get(gates + k * size + j)); };
    const auto cell = scalar::lstm_cell(gate(0), gate(1), gate(2), gate(3), Lanes<T>(lanes.get(c_before + j)));
    lanes.put(c + j, cell.c.v), lanes.put(h + j, cell.h.v);
    for (int k = 0; k < 4; ++k) lanes.put(gates + k * size + j, cell.gates[k].v);
  });
}

template <class T>
void lstm_cell_backward(const T* dh, const T* gates, const T* c_before, const T* c, T* dc, T* dgates, int64_t size) {
  for_lanes<T>(size, [&](int64_t j, auto lanes) {
    const auto get = [&](const T* from) { return Lanes<T>(lanes.get(from + j)); };
    const auto gradient = scalar::lstm_cell_backward(get(gates), get(gates + size), get(gates + 2 * size),
                                                     get(gates + 3 * size), get(c_before), get(c), get(dh), get(dc));
    for (int k = 0; k < 4; ++k) lanes.put(dgates + k * size + j, gradient.sums[k].v);
    lanes.put(dc + j, gradient.dc_before.v);
  });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
