// What normalisation needs: affine maps of contiguous elements, and the same and sums for many lanes at once, rows of which
// follow each other in memory (channels-last images).
#pragma once

#include <gradus/backends/openmp/map_kernel.h>

namespace gradus::openmp::GRADUS_ISA {

template <class T>
void affine(const T* x, T shift, T scale, T offset, const T* w, const T* b, T* y, int64_t count) {
  const Vector<T> shift_v = broadcast(shift), scale_v = broadcast(scale), offset_v = broadcast(offset);
  if (!w) return map(x, y, count, [&](Vector<T> v) { return multiply_add(v - shift_v, scale_v, offset_v); });
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vector<T> h = multiply_add(load(x + i) - shift_v, scale_v, offset_v);
    store(y + i, multiply_add(h, load(w + i), load(b + i)));
  }
  for (; i < count; ++i) y[i] = ((x[i] - shift) * scale + offset) * w[i] + b[i];
}

template <class T>
void combine(const T* g, const T* x, T shift, T a, T b, T c, T* y, int64_t count) {
  const Vector<T> shift_v = broadcast(shift), a_v = broadcast(a), b_v = broadcast(b), c_v = broadcast(c);
  map(g, x, y, count,
      [&](Vector<T> u, Vector<T> v) { return multiply_add(u, a_v, multiply_add(v - shift_v, b_v, c_v)); });
}

/// Calls f(first lane, get, put) for vectors of lanes; get and put move those of them that exist.
template <class T, class F>
inline void for_lanes(int64_t count, F f) {
  int64_t c = 0;
  for (; c + kLanes<T> <= count; c += kLanes<T>)
    f(
        c, [](const T* from) { return load(from); }, [](T* to, Vector<T> v) { store(to, v); });
  if (const int64_t left = count - c; left > 0)
    f(
        c, [=](const T* from) { return load_first(from, left); },
        [=](T* to, Vector<T> v) { store_first<T>(to, v, left); });
}

template <class T>
void lane_sums(const RowsOf<const T>& x, const T* shift, T* sum) {
  for_lanes<T>(x.lanes, [&](int64_t c, auto get, auto put) {
    const Vector<T> shift_v = get(shift + c);
    Vector<T> total{};
    for (int64_t r = 0; r < x.rows; ++r) total += get(x.data + r * x.stride + c) - shift_v;
    put(sum + c, total);
  });
}

template <class T>
void lane_squares(const RowsOf<const T>& x, const T* shift, T* sum) {
  for_lanes<T>(x.lanes, [&](int64_t c, auto get, auto put) {
    const Vector<T> shift_v = get(shift + c);
    Vector<T> total{};
    for (int64_t r = 0; r < x.rows; ++r) {
      const Vector<T> d = get(x.data + r * x.stride + c) - shift_v;
      total = multiply_add(d, d, total);
    }
    put(sum + c, total);
  });
}

template <class T>
void lane_products(const RowsOf<const T>& g, const RowsOf<const T>& x, const T* shift, T* plain, T* product) {
  for_lanes<T>(x.lanes, [&](int64_t c, auto get, auto put) {
    const Vector<T> shift_v = get(shift + c);
    Vector<T> sum{}, products{};
    for (int64_t r = 0; r < x.rows; ++r) {
      const Vector<T> v = get(g.data + r * g.stride + c);
      sum += v;
      products = multiply_add(v, get(x.data + r * x.stride + c) - shift_v, products);
    }
    put(plain + c, sum), put(product + c, products);
  });
}

template <class T>
void lane_affine(const RowsOf<const T>& x, const T* shift, const T* scale, const T* offset, const RowsOf<T>& y) {
  for (int64_t r = 0; r < x.rows; ++r)
    for_lanes<T>(x.lanes, [&](int64_t c, auto get, auto put) {
      const Vector<T> d = get(x.data + r * x.stride + c) - get(shift + c);
      put(y.data + r * y.stride + c, multiply_add(d, get(scale + c), get(offset + c)));
    });
}

template <class T>
void lane_combine(const RowsOf<const T>& g, const RowsOf<const T>& x, const T* shift, const T* a, const T* b,
                  const T* c, const RowsOf<T>& y) {
  for (int64_t r = 0; r < x.rows; ++r)
    for_lanes<T>(x.lanes, [&](int64_t i, auto get, auto put) {
      const Vector<T> d = get(x.data + r * x.stride + i) - get(shift + i);
      const Vector<T> rest = multiply_add(d, get(b + i), get(c + i));
      put(y.data + r * y.stride + i, multiply_add(get(g.data + r * g.stride + i), get(a + i), rest));
    });
}

/// dw[i] += g[i] ((x[i] - shift - low) scale) and db[i] += g[i]
template <class T>
void add_products(const T* g, const T* x, T shift, T low, T scale, T* dw, T* db, int64_t count) {
  const Vector<T> shift_v = broadcast(shift), low_v = broadcast(low), scale_v = broadcast(scale);
  for_lanes<T>(count, [&](int64_t i, auto get, auto put) {
    const Vector<T> v = get(g + i), h = ((get(x + i) - shift_v) - low_v) * scale_v;
    put(dw + i, multiply_add(v, h, get(dw + i)));
    put(db + i, get(db + i) + v);
  });
}

}  // namespace gradus::openmp::GRADUS_ISA
