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
void lstm_cell(T* gates, const T* c_before, T* c, T* h, int64_t size) {
  T *i_gate = gates, *f_gate = gates + size, *g_gate = gates + 2 * size, *o_gate = gates + 3 * size;
  for_lanes<T>(size, [&](int64_t j, auto lanes) {
    const Lanes<T> i = sigmoid<T>(lanes.get(i_gate + j)), f = sigmoid<T>(lanes.get(f_gate + j));
    const Lanes<T> g = tanh<T>(lanes.get(g_gate + j)), o = sigmoid<T>(lanes.get(o_gate + j));
    const Lanes<T> cell = f * lanes.get(c_before + j) + i * g;
    lanes.put(c + j, cell.v), lanes.put(h + j, (o * tanh(cell)).v);
    lanes.put(i_gate + j, i.v), lanes.put(f_gate + j, f.v);
    lanes.put(g_gate + j, g.v), lanes.put(o_gate + j, o.v);
  });
}

template <class T>
void lstm_cell_backward(const T* dh, const T* gates, const T* c_before, const T* c, T* dc, T* dgates, int64_t size) {
  for_lanes<T>(size, [&](int64_t j, auto lanes) {
    const auto gate = [&](int k) { return Lanes<T>(lanes.get(gates + k * size + j)); };
    const auto put = [&](int k, Lanes<T> x) { lanes.put(dgates + k * size + j, x.v); };
    const Lanes<T> one = 1, i = gate(0), f = gate(1), g = gate(2), o = gate(3);
    const Lanes<T> dy = lanes.get(dh + j), t = tanh<T>(lanes.get(c + j));
    const Lanes<T> d = lanes.get(dc + j) + dy * o * (one - t * t);
    put(0, d * g * i * (one - i));
    put(1, d * lanes.get(c_before + j) * f * (one - f));
    put(2, d * i * (one - g * g));
    put(3, dy * t * o * (one - o));
    lanes.put(dc + j, (d * f).v);
  });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
