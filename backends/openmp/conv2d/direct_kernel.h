// Convolutions with few channels, vectorised along the image row: a plane that is a weighted sum of shifted planes, and
// the gradient with respect to the weights.
//   direct        out[i, j] = bias + sum over terms t, r of w[t, r] plane[t][i + r, j]
//   direct_sums   dw[t, r] += sum over i, j of g[i, j] plane[t][i + r, j]
// A tile is one vector of P neighbouring output rows. Each row of the plane is loaded once and used for all rows of the
// tile that it contributes to: R of them for a term of R rows. Otherwise, with one channel, each loaded vector would be
// used for only one multiplication.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/simd.h>

namespace gradus::openmp_detail::GRADUS_ISA {

constexpr int kDirectTileRows = 8;

/// Number of filters that share each load.
template <class T>
constexpr int kDirectFilters = kRegisters == 32 && sizeof(T) == 4 ? 2 : 1;

/// sum[f][p] += sum over r < R of w[f * w_step + r] x[p + r]. Rows of x outside [begin, end) are zeros.
template <class T, int F, int P, int R>
inline __attribute__((always_inline)) void add_term(Vector<T> (&sum)[F][P], const T* x, int64_t pitch, const T* w,
                                                    int64_t w_step, int64_t begin, int64_t end) {
  Vector<T> weight[F][R];
#pragma GCC unroll 2
  for (int f = 0; f < F; ++f)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) weight[f][r] = broadcast(w[f * w_step + r]);
#pragma GCC unroll 16
  for (int h = 0; h < P + R - 1; ++h, x += pitch) {
    if (F > 1 && (h < begin || h >= end)) continue;  // with one filter the test costs as much as the work
    const Vector<T> v = in_register<T>(load(x));
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
      for (int f = 0; f < F; ++f)
        if (h >= p && h - p < R) sum[f][p] = multiply_add(weight[f][h - p], v, sum[f][p]);
  }
}

template <class T, int F, int P>
void direct_tile(const DirectArgs<T>& args, int64_t filter, int64_t row, int64_t column) {
  const int64_t pitch = args.pitch;
  const SomeLanes<T> lanes{args.columns - column};
  const T *planes = args.planes + row * pitch + column, *w = args.weights + filter * args.weight_count;
  Vector<T> sum[F][P];
#pragma GCC unroll 2
  for (int f = 0; f < F; ++f)
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) sum[f][p] = broadcast(args.bias ? args.bias[filter + f] : T(0));
  for (const DirectTerm *term = args.terms, *end = term + args.term_count; term < end; w += term->rows, ++term)
    with_constant<kDirectReach>(term->rows, [&]<int R> {
      const int64_t first = row + term->row;
      add_term<T, F, P, R>(sum, planes + term->offset, pitch, w, args.weight_count, args.rows_begin - first,
                           args.rows_end - first);
    });
  const Vector<T> least = broadcast(args.relu ? T(0) : -T(__builtin_inf()));
#pragma GCC unroll 2
  for (int f = 0; f < F; ++f) {
    T* out = args.out + (filter + f) * args.out_step + row * args.out_pitch + column;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p, out += args.out_pitch) lanes.put(out, at_least(least, sum[f][p]));
  }
}

template <class T>
void direct(const DirectArgs<T>& args) {
  const int64_t tiles = (args.rows + kDirectTileRows - 1) / kDirectTileRows;
  for (int64_t i = 0; i < tiles; ++i) {  // tiles of nearly equal height
    const int64_t row = args.rows * i / tiles, end = args.rows * (i + 1) / tiles;
    with_constant<kDirectTileRows>(end - row, [&]<int P> {
      for (int64_t column = 0; column < args.columns; column += kLanes<T>) {
        int64_t k = 0;
        for (; k + kDirectFilters<T> <= args.filters; k += kDirectFilters<T>)
          direct_tile<T, kDirectFilters<T>, P>(args, k, row, column);
        for (; k < args.filters; ++k) direct_tile<T, 1, P>(args, k, row, column);
      }
    });
  }
}

/// Adds the products of P rows of g, for F filters, and `Terms` planes. Only `lanes` are inside the image; the planes'
/// values in other lanes must not contribute, not even as infinity times zero.
template <class T, int P, int R, int Terms, int F, class Some>
inline __attribute__((always_inline)) void add_products(Vector<T> (&sum)[F][Terms][R], const T* g,
                                                        const DirectSumsArgs<T>& args, const T* const (&x)[Terms],
                                                        int64_t at, Some lanes) {
  Vector<T> gradient[F][P];
#pragma GCC unroll 2
  for (int f = 0; f < F; ++f)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) gradient[f][p] = load(g + f * args.g_step + p * args.g_pitch);
#pragma GCC unroll 4
  for (int t = 0; t < Terms; ++t) {
    const T* from = x[t] + at;
#pragma GCC unroll 16
    for (int h = 0; h < P + R - 1; ++h, from += args.pitch) {
      const Vector<T> v = in_register<T>(lanes.get(from));
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
        for (int f = 0; f < F; ++f)
          if (h >= p && h - p < R) sum[f][t][h - p] = multiply_add(gradient[f][p], v, sum[f][t][h - p]);
    }
  }
}

/// All rows of g, for F filters, times the planes of `Terms` terms of R rows each.
template <class T, int R, int Terms, int F>
void sum_products(const DirectSumsArgs<T>& args, const DirectTerm* terms, const T* g, T* sums) {
  const T* x[Terms];
  Vector<T> sum[F][Terms][R];
#pragma GCC unroll 4
  for (int t = 0; t < Terms; ++t) {
    x[t] = args.planes + terms[t].offset;
#pragma GCC unroll 2
    for (int f = 0; f < F; ++f)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[f][t][r] = load(sums + (f * args.sums_step + t * R + r) * kLanes<T>);
  }
  for_lanes<T>(args.columns, [&](int64_t column, auto lanes) {
    int64_t i = 0;
    for (; i + 4 <= args.rows; i += 4)
      add_products<T, 4, R, Terms, F>(sum, g + i * args.g_pitch + column, args, x, i * args.pitch + column, lanes);
    for (; i < args.rows; ++i)
      add_products<T, 1, R, Terms, F>(sum, g + i * args.g_pitch + column, args, x, i * args.pitch + column, lanes);
  });
#pragma GCC unroll 4
  for (int t = 0; t < Terms; ++t)
#pragma GCC unroll 2
    for (int f = 0; f < F; ++f)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) store(sums + (f * args.sums_step + t * R + r) * kLanes<T>, sum[f][t][r]);
}

/// Processes the leading terms that have R rows, several at a time to keep the multipliers busy, and returns their
/// number.
template <class T, int R, int F>
int64_t sum_terms_of_height(const DirectSumsArgs<T>& args, const DirectTerm* terms, const T* g, T* sums) {
  // Registers: F * kTogether * R sums, F * 4 rows of g and a vector of x.
  constexpr int kTogether = R <= 2 ? 4 : R == 3 ? 3 : 2;
  int64_t equal = 1;
  while (terms + equal < args.terms + args.term_count && terms[equal].rows == R) ++equal;
  int64_t t = 0;
  for (; t + kTogether <= equal; t += kTogether)
    sum_products<T, R, kTogether, F>(args, terms + t, g, sums + t * R * kLanes<T>);
  for (; t < equal; ++t) sum_products<T, R, 1, F>(args, terms + t, g, sums + t * R * kLanes<T>);
  return equal;
}

template <class T>
void direct_sums(const DirectSumsArgs<T>& args) {
  const auto sum_filters = [&]<int F>(int64_t k) {
    T* sums = args.sums + k * args.sums_step * kLanes<T>;
    for (const DirectTerm *term = args.terms, *end = term + args.term_count; term < end;) {
      int64_t done = 0;
      with_constant<kDirectReach>(
          term->rows, [&]<int R> { done = sum_terms_of_height<T, R, F>(args, term, args.g + k * args.g_step, sums); });
      sums += done * term->rows * kLanes<T>;
      term += done;
    }
  };
  int64_t k = 0;
  for (; k + kDirectFilters<T> <= args.filters; k += kDirectFilters<T>)
    sum_filters.template operator()<kDirectFilters<T>>(k);
  for (; k < args.filters; ++k) sum_filters.template operator()<1>(k);
}

template <class T>
void sum_lanes(const T* vectors, int64_t count, T* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = sum_of<T>(load(vectors + i * kLanes<T>));
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
