// What follows the matrix products in a step of an LSTM, and its gradient. Any strides.
//   c = f c_before + i g,  h = o tanh(c)  with i, f, o = sigmoid and g = tanh of their sums, which are adjacent
// Blocks of 256 threads; one for each cell.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

template <class C>
__device__ C sigmoid(C x) {
  return scalar::Unary<UnaryOp::sigmoid>::apply(x, {});
}

// Views: c, gates, c_before, h. `gate` is the step from one gate to the next.
template <class T>
struct Cell {
  int64_t gate;
  T* gates;
  const T* c_before;
  T *c, *h;
  __device__ void operator()(uint32_t, const int64_t (&at)[4]) const {
    using C = compute_t<T>;
    T* const sums = gates + at[1];
    const C i = sigmoid(static_cast<C>(sums[0])), f = sigmoid(static_cast<C>(sums[gate]));
    const C g = ::tanh(static_cast<C>(sums[2 * gate])), o = sigmoid(static_cast<C>(sums[3 * gate]));
    sums[0] = static_cast<T>(i), sums[gate] = static_cast<T>(f);
    sums[2 * gate] = static_cast<T>(g), sums[3 * gate] = static_cast<T>(o);
    const C next = f * static_cast<C>(c_before[at[2]]) + i * g;
    c[at[0]] = static_cast<T>(next);
    h[at[3]] = static_cast<T>(o * ::tanh(next));
  }
};

// Views: dc, dgates, dh, gates, c_before, c.
template <class T>
struct CellBackward {
  int64_t gate, dgate;
  const T *dh, *gates, *c_before, *c;
  T *dc, *dgates;
  __device__ void operator()(uint32_t, const int64_t (&at)[6]) const {
    using C = compute_t<T>;
    const T* const active = gates + at[3];
    const C i = static_cast<C>(active[0]), f = static_cast<C>(active[gate]);
    const C g = static_cast<C>(active[2 * gate]), o = static_cast<C>(active[3 * gate]);
    const C gradient = static_cast<C>(dh[at[2]]), t = ::tanh(static_cast<C>(c[at[5]]));
    const C dcell = static_cast<C>(dc[at[0]]) + gradient * o * (C(1) - t * t);
    T* const to = dgates + at[1];
    to[0] = static_cast<T>(dcell * g * (i * (C(1) - i)));
    to[dgate] = static_cast<T>(dcell * static_cast<C>(c_before[at[4]]) * (f * (C(1) - f)));
    to[2 * dgate] = static_cast<T>(dcell * i * (C(1) - g * g));
    to[3 * dgate] = static_cast<T>(gradient * t * (o * (C(1) - o)));
    dc[at[0]] = static_cast<T>(dcell * f);
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
