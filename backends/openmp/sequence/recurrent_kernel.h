// The element-wise part of an LSTM's step, one row of the batch at a time: six transcendental functions on five rows,
// read and written once. Formulas: Backend::lstm_cell.
#pragma once

#include <gradus/backends/openmp/simd/map_kernel.h>

namespace gradus::openmp::GRADUS_ISA {

template <class T>
inline Lanes<T> sigmoid(Lanes<T> x) {
  return scalar::Unary<UnaryOp::sigmoid>::apply(x, {});
}

/// step(load, store, j) for each j at which a vector starts; load and store take an address and leave out what lies
/// behind `count`.
template <class T, class Step>
inline void for_vectors(int64_t count, const Step& step) {
  int64_t j = 0;
  for (; j + kLanes<T> <= count; j += kLanes<T>)
    step([](const T* from) { return Lanes<T>(load(from)); }, [](T* to, Lanes<T> x) { store(to, x.v); }, j);
  if (const int64_t left = count - j)
    step([left](const T* from) { return Lanes<T>(load_first(from, left)); },
         [left](T* to, Lanes<T> x) { store_first(to, x.v, left); }, j);
}

template <class T>
void lstm_cell(const LstmArgs<T>& row) {
  for_vectors<T>(row.count, [&](auto load_at, auto store_at, int64_t j) {
    const Lanes<T> i = sigmoid(load_at(row.gates[0] + j)), f = sigmoid(load_at(row.gates[1] + j));
    const Lanes<T> g = tanh(load_at(row.gates[2] + j)), o = sigmoid(load_at(row.gates[3] + j));
    const Lanes<T> c = f * load_at(row.c_before + j) + i * g;
    store_at(row.c + j, c);
    store_at(row.h + j, o * tanh(c));
    store_at(row.gates[0] + j, i), store_at(row.gates[1] + j, f);
    store_at(row.gates[2] + j, g), store_at(row.gates[3] + j, o);
  });
}

template <class T>
void lstm_cell_backward(const LstmBackwardArgs<T>& row) {
  for_vectors<T>(row.count, [&](auto load_at, auto store_at, int64_t j) {
    const Lanes<T> one = 1;
    const Lanes<T> i = load_at(row.gates[0] + j), f = load_at(row.gates[1] + j);
    const Lanes<T> g = load_at(row.gates[2] + j), o = load_at(row.gates[3] + j);
    const Lanes<T> dh = load_at(row.dh + j), t = tanh(load_at(row.c + j));
    const Lanes<T> dc = load_at(row.dc + j) + dh * o * (one - t * t);
    store_at(row.dgates[0] + j, dc * g * i * (one - i));
    store_at(row.dgates[1] + j, dc * load_at(row.c_before + j) * f * (one - f));
    store_at(row.dgates[2] + j, dc * i * (one - g * g));
    store_at(row.dgates[3] + j, dh * t * o * (one - o));
    store_at(row.dc + j, dc * f);
  });
}

}  // namespace gradus::openmp::GRADUS_ISA
