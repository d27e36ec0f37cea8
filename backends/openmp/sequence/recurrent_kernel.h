// The element-wise part of an LSTM's step, one row of the batch at a time: six transcendental functions on five rows,
// read and written once. Formulas: Backend::lstm_cell.
#pragma once

#include <gradus/backends/openmp/simd/map_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T>
inline Lanes<T> sigmoid(Lanes<T> x) {
  return scalar::Unary<UnaryOp::sigmoid>::apply(x, {});
}

template <class T>
void lstm_cell(const LstmArgs<T>& row) {
  for_lanes<T>(row.count, [&](int64_t j, auto lanes) {
    const auto put = [&](T* to, Lanes<T> x) { lanes.put(to, x.v); };
    const Lanes<T> i = sigmoid<T>(lanes.get(row.gates[0] + j)), f = sigmoid<T>(lanes.get(row.gates[1] + j));
    const Lanes<T> g = tanh<T>(lanes.get(row.gates[2] + j)), o = sigmoid<T>(lanes.get(row.gates[3] + j));
    const Lanes<T> c = f * lanes.get(row.c_before + j) + i * g;
    put(row.c + j, c);
    put(row.h + j, o * tanh(c));
    put(row.gates[0] + j, i), put(row.gates[1] + j, f);
    put(row.gates[2] + j, g), put(row.gates[3] + j, o);
  });
}

template <class T>
void lstm_cell_backward(const LstmBackwardArgs<T>& row) {
  for_lanes<T>(row.count, [&](int64_t j, auto lanes) {
    const auto put = [&](T* to, Lanes<T> x) { lanes.put(to, x.v); };
    const Lanes<T> one = 1;
    const Lanes<T> i = lanes.get(row.gates[0] + j), f = lanes.get(row.gates[1] + j);
    const Lanes<T> g = lanes.get(row.gates[2] + j), o = lanes.get(row.gates[3] + j);
    const Lanes<T> dh = lanes.get(row.dh + j), t = tanh<T>(lanes.get(row.c + j));
    const Lanes<T> dc = lanes.get(row.dc + j) + dh * o * (one - t * t);
    put(row.dgates[0] + j, dc * g * i * (one - i));
    put(row.dgates[1] + j, dc * lanes.get(row.c_before + j) * f * (one - f));
    put(row.dgates[2] + j, dc * i * (one - g * g));
    put(row.dgates[3] + j, dh * t * o * (one - o));
    put(row.dc + j, dc * f);
  });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
