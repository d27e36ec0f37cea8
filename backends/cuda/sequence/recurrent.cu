// The element-wise part of a step of an LSTM, after the matrix products, and its gradient:
//   c = f c_before + i g,  h = o tanh(c);  i, f, o = sigmoid and g = tanh of the sums in `gates` (N, 4 H).
// Layout: any strides.  Grid: x = blocks of a grid-stride loop over cells (for_each).  Block: 256 threads; a thread
// computes one cell a step.  Deterministic: cells are independent of each other.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/lstm_cell.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// The offsets `at` are those of c, gates, c_before and h. `gate` is the stride from one gate to the next.
template <class T>
struct Cell {
  int64_t gate;
  T* gates;
  const T* c_before;
  T *c, *h;

  __device__ void operator()(uint32_t, const int64_t (&at)[4]) const {
    const auto number = [](T x) { return static_cast<compute_t<T>>(x); };
    T* const sums = gates + at[1];
    const auto cell = scalar::lstm_cell(number(sums[0]), number(sums[gate]), number(sums[2 * gate]),
                                        number(sums[3 * gate]), number(c_before[at[2]]));
    for (int k = 0; k < 4; ++k) sums[k * gate] = static_cast<T>(cell.gates[k]);
    c[at[0]] = static_cast<T>(cell.c), h[at[3]] = static_cast<T>(cell.h);
  }
};

// The offsets `at` are those of dc, dgates, dh, gates, c_before and c.
template <class T>
struct CellBackward {
  int64_t gate, dgate;
  const T *dh, *gates, *c_before, *c;
  T *dc, *dgates;

  __device__ void operator()(uint32_t, const int64_t (&at)[6]) const {
    const auto number = [](T x) { return static_cast<compute_t<T>>(x); };
    const T* const active = gates + at[3];
    const auto gradient = scalar::lstm_cell_backward(number(active[0]), number(active[gate]), number(active[2 * gate]),
                                                     number(active[3 * gate]), number(c_before[at[4]]),
                                                     number(c[at[5]]), number(dh[at[2]]), number(dc[at[0]]));
    for (int k = 0; k < 4; ++k) dgates[at[1] + k * dgate] = static_cast<T>(gradient.sums[k]);
    dc[at[0]] = static_cast<T>(gradient.dc_before);
  }
};

}  // namespace

void CudaBackend::lstm_cell(const MutableView& gates, const View& c_before, const MutableView& c,
                            const MutableView& h) {
  EventScope event("lstm_cell", "cuda", "cells", {&gates, &c_before}, 25 * c.numel());
  const Nest<4> nest(c.shape, {&c.strides, &gates.strides, &c_before.strides, &h.strides});
  visit_floating(c.dtype, [&]<class T>() {
    for_each(Launch(c.device), nest, [&](const int64_t* base) {
      return Cell<T>{c.shape[1] * gates.strides[1], gates.as<T>() + base[1], c_before.as<T>() + base[2],
                     c.as<T>() + base[0], h.as<T>() + base[3]};
    });
  });
}

void CudaBackend::lstm_cell_backward(const View& dh, const View& gates, const View& c_before, const View& c,
                                     const MutableView& dc, const MutableView& dgates) {
  EventScope event("lstm_cell_backward", "cuda", "cells", {&dh, &gates}, 35 * c.numel());
  const Nest<6> nest(c.shape,
                     {&dc.strides, &dgates.strides, &dh.strides, &gates.strides, &c_before.strides, &c.strides});
  visit_floating(c.dtype, [&]<class T>() {
    for_each(Launch(c.device), nest, [&](const int64_t* base) {
      return CellBackward<T>{c.shape[1] * gates.strides[1], c.shape[1] * dgates.strides[1], dh.as<T>() + base[2],
                             gates.as<T>() + base[3],       c_before.as<T>() + base[4],     c.as<T>() + base[5],
                             dc.as<T>() + base[0],          dgates.as<T>() + base[1]};
    });
  });
}

}  // namespace gradus
