// Kernels of normalisation: affine maps and sums of contiguous elements, and of many lanes together (channels-last
// images). norm/norm.h describes how threads share the elements.
#pragma once

#include <gradus/backends/openmp/simd/map_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T>
void affine(const T* x, T shift, T scale, T offset, const T* w, const T* b, T* y, int64_t count) {
  const Vector<T> shift_v = broadcast(shift), scale_v = broadcast(scale), offset_v = broadcast(offset);
  for_lanes<T>(count, [&](int64_t i, auto lanes) {
    const Vector<T> h = multiply_add(lanes.get(x + i) - shift_v, scale_v, offset_v);
    lanes.put(y + i, w ? multiply_add(h, lanes.get(w + i), lanes.get(b + i)) : h);
  });
}

template <class T>
void combine(const T* g, const T* w, const T* x, T shift, T a, T b, T c, T* y, int64_t count) {
  const Vector<T> shift_v = broadcast(shift), a_v = broadcast(a), b_v = broadcast(b), c_v = broadcast(c);
  for_lanes<T>(count, [&](int64_t i, auto lanes) {
    const Vector<T> v = w ? lanes.get(g + i) * lanes.get(w + i) : lanes.get(g + i);
    lanes.put(y + i, multiply_add(v, a_v, multiply_add(lanes.get(x + i) - shift_v, b_v, c_v)));
  });
}

template <class T>
void lane_sums(const RowsOf<const T>& x, const T* shift, T* sum) {
  for_lanes<T>(x.lanes, [&](int64_t c, auto lanes) {
    const Vector<T> shift_v = lanes.get(shift + c);
    Vector<T> total{};
    for (int64_t r = 0; r < x.rows; ++r) total += lanes.get(x.data + r * x.stride + c) - shift_v;
    lanes.put(sum + c, total);
  });
}

template <class T>
void lane_squares(const RowsOf<const T>& x, const T* shift, T* sum) {
  for_lanes<T>(x.lanes, [&](int64_t c, auto lanes) {
    const Vector<T> shift_v = lanes.get(shift + c);
    Vector<T> total{};
    for (int64_t r = 0; r < x.rows; ++r) {
      const Vector<T> d = lanes.get(x.data + r * x.stride + c) - shift_v;
      total = multiply_add(d, d, total);
    }
    lanes.put(sum + c, total);
  });
}

template <class T>
void lane_products(const RowsOf<const T>& g, const RowsOf<const T>& x, const T* shift, T* plain, T* product) {
  for_lanes<T>(x.lanes, [&](int64_t c, auto lanes) {
    const Vector<T> shift_v = lanes.get(shift + c);
    Vector<T> sum{}, products{};
    for (int64_t r = 0; r < x.rows; ++r) {
      const Vector<T> v = lanes.get(g.data + r * g.stride + c);
      sum += v;
      products = multiply_add(v, lanes.get(x.data + r * x.stride + c) - shift_v, products);
    }
    lanes.put(plain + c, sum), lanes.put(product + c, products);
  });
}

template <class T>
void lane_affine(const RowsOf<const T>& x, const T* shift, const T* scale, const T* offset, const RowsOf<T>& y) {
  for (int64_t r = 0; r < x.rows; ++r)
    for_lanes<T>(x.lanes, [&](int64_t c, auto lanes) {
      const Vector<T> d = lanes.get(x.data + r * x.stride + c) - lanes.get(shift + c);
      lanes.put(y.data + r * y.stride + c, multiply_add(d, lanes.get(scale + c), lanes.get(offset + c)));
    });
}

template <class T>
void lane_combine(const RowsOf<const T>& g, const RowsOf<const T>& x, const T* shift, const T* a, const T* b,
                  const T* c, const RowsOf<T>& y) {
  for (int64_t r = 0; r < x.rows; ++r)
    for_lanes<T>(x.lanes, [&](int64_t i, auto lanes) {
      const Vector<T> d = lanes.get(x.data + r * x.stride + i) - lanes.get(shift + i);
      const Vector<T> rest = multiply_add(d, lanes.get(b + i), lanes.get(c + i));
      lanes.put(y.data + r * y.stride + i, multiply_add(lanes.get(g.data + r * g.stride + i), lanes.get(a + i), rest));
    });
}

/// Sums in several independent chains. add(totals, i, lanes) must add the contribution of the vector that starts at
/// element i to `totals`.
template <class T, int sums, class F>
inline void sum_in_chains(int64_t count, T (&out)[sums], F add) {
  constexpr int chains = 4;
  Vector<T> total[chains][sums] = {};
  int64_t i = 0;
  for (; i + chains * kLanes<T> <= count; i += chains * kLanes<T>)
#pragma GCC unroll 4
    for (int k = 0; k < chains; ++k) add(total[k], i + k * kLanes<T>, AllLanes<T>());
  for (; i + kLanes<T> <= count; i += kLanes<T>) add(total[0], i, AllLanes<T>());
  if (i < count) add(total[1], i, FirstLanes<T>{count - i});
  for (int k = 0; k < sums; ++k) out[k] = sum_of<T>((total[0][k] + total[1][k]) + (total[2][k] + total[3][k]));
}

template <class T>
T sum_about(const T* x, T shift, int64_t count) {
  const Vector<T> s = broadcast(shift);
  T sum[1];
  sum_in_chains(count, sum, [&](auto& total, int64_t i, auto lanes) { total[0] += lanes.keep(lanes.get(x + i) - s); });
  return sum[0];
}

template <class T>
T squares_about(const T* x, T shift, int64_t count) {
  const Vector<T> s = broadcast(shift);
  T sum[1];
  sum_in_chains(count, sum, [&](auto& total, int64_t i, auto lanes) {
    const Vector<T> d = lanes.keep(lanes.get(x + i) - s);
    total[0] = multiply_add(d, d, total[0]);
  });
  return sum[0];
}

template <class T>
void products_about(const T* g, const T* x, T shift, int64_t count, T (&out)[2]) {
  const Vector<T> s = broadcast(shift);
  sum_in_chains(count, out, [&](auto& total, int64_t i, auto lanes) {
    const Vector<T> v = lanes.get(g + i);
    total[0] += v;
    total[1] = multiply_add(v, lanes.keep(lanes.get(x + i) - s), total[1]);
  });
}

template <class T>
void gradient_sums(const GradientSumsArgs<T>& args, T (&out)[2]) {
  const Vector<T> shift = broadcast(args.shift), low = broadcast(args.low), scale = broadcast(args.scale);
  const T *g = args.g, *w = args.w, *x = args.x;
  T *dw = args.dw, *db = args.db;
  sum_in_chains(args.count, out, [&](auto& total, int64_t i, auto lanes) {
    const Vector<T> dy = lanes.get(g + i), d = lanes.keep(lanes.get(x + i) - shift), weighted = dy * lanes.get(w + i);
    total[0] += weighted;
    total[1] = multiply_add(weighted, d, total[1]);
    lanes.put(dw + i, multiply_add(dy, (d - low) * scale, lanes.get(dw + i)));
    lanes.put(db + i, lanes.get(db + i) + dy);
  });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
