// Convolutions with few channels, vectors along the image row: a plane of sums over shifted planes, and its gradient
// with respect to the weights.
//   direct        out[i, j] = bias + sum over terms t, r of w[t, r] plane[t][i + r, j]
//   direct_sums  dw[t, r] += sum over i, j of g[i, j] plane[t][i + r, j]
// A tile is P neighbouring output rows of one vector: a row of the plane that is loaded once serves all of the tile's
// rows that it reaches, R of them for a term of R rows. With one channel a loaded vector would else serve one
// multiplication.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/simd.h>

namespace gradus::openmp::GRADUS_ISA {

constexpr int kDirectTileRows = 8;

/// sum[p] += sum over r < R of w[r] x[p + r]
template <class T, int P, int R>
inline __attribute__((always_inline)) void add_term(Vector<T> (&sum)[P], const T* x, int64_t pitch, const T* w) {
  Vector<T> weight[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) weight[r] = broadcast(w[r]);
#pragma GCC unroll 16
  for (int h = 0; h < P + R - 1; ++h, x += pitch) {
    const Vector<T> v = load(x);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p)
      if (h >= p && h - p < R) sum[p] = multiply_add(weight[h - p], v, sum[p]);
  }
}

template <class T, int P>
void direct_tile(const DirectArgs<T>& args, int64_t row, int64_t column) {
  const int64_t at = row * args.pitch + column, pitch = args.pitch, count = args.columns - column;
  const T *planes = args.planes + at, *w = args.weights;
  Vector<T> sum[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) sum[p] = broadcast(args.bias);
  for (const DirectTerm *term = args.terms, *end = term + args.term_count; term < end; w += term->rows, ++term) {
    const T* x = planes + term->offset;
    switch (term->rows) {
      case 1: add_term<T, P, 1>(sum, x, pitch, w); break;
      case 2: add_term<T, P, 2>(sum, x, pitch, w); break;
      case 3: add_term<T, P, 3>(sum, x, pitch, w); break;
      case 4: add_term<T, P, 4>(sum, x, pitch, w); break;
      case 5: add_term<T, P, 5>(sum, x, pitch, w); break;
      case 6: add_term<T, P, 6>(sum, x, pitch, w); break;
      default: add_term<T, P, 7>(sum, x, pitch, w);
    }
  }
  static_assert(kDirectReach == 7);
  const Vector<T> least = broadcast(args.relu ? T(0) : -T(__builtin_inf()));
  T* out = args.out + row * args.out_pitch + column;
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p, out += args.out_pitch) {
    const Vector<T> value = sum[p] < least ? least : sum[p];  // NaN stays
    count >= kLanes<T> ? store(out, value) : store_first<T>(out, value, count);
  }
}

template <class T, int P = kDirectTileRows>
inline auto direct_tile_of_height(int64_t rows) -> void (*)(const DirectArgs<T>&, int64_t, int64_t) {
  if constexpr (P == 1) return direct_tile<T, 1>;
  else return rows == P ? direct_tile<T, P> : direct_tile_of_height<T, P - 1>(rows);
}

template <class T>
void direct(const DirectArgs<T>& args) {
  const int64_t tiles = (args.rows + kDirectTileRows - 1) / kDirectTileRows;
  for (int64_t i = 0; i < tiles; ++i) {  // of nearly equal height
    const int64_t row = args.rows * i / tiles, end = args.rows * (i + 1) / tiles;
    const auto tile = direct_tile_of_height<T>(end - row);
    for (int64_t column = 0; column < args.columns; column += kLanes<T>) tile(args, row, column);
  }
}

/// P rows of g against `Terms` planes. Lanes where `valid` is 0 lie outside: what the planes hold there must not count,
/// not even an infinity times zero.
template <class T, int P, int R, int Terms>
inline __attribute__((always_inline)) void add_products(Vector<T> (&sum)[Terms][R], const T* g, int64_t g_pitch,
                                                        const T* const (&x)[Terms], int64_t at, int64_t pitch,
                                                        Mask<T> valid) {
  Vector<T> gradient[P];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) gradient[p] = load(g + p * g_pitch);
#pragma GCC unroll 4
  for (int t = 0; t < Terms; ++t) {
    const T* from = x[t] + at;
#pragma GCC unroll 16
    for (int h = 0; h < P + R - 1; ++h, from += pitch) {
      const Vector<T> v = reinterpret_cast<Vector<T>>(reinterpret_cast<Mask<T>>(load(from)) & valid);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
        if (h >= p && h - p < R) sum[t][h - p] = multiply_add(gradient[p], v, sum[t][h - p]);
    }
  }
}

/// All of g against the planes of `Terms` terms of R rows.
template <class T, int R, int Terms>
void sum_products(const DirectSumsArgs<T>& args, const DirectTerm* terms, T* sums) {
  const T* x[Terms];
  Vector<T> sum[Terms][R];
#pragma GCC unroll 4
  for (int t = 0; t < Terms; ++t) {
    x[t] = args.planes + terms[t].offset;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum[t][r] = load(sums + (t * R + r) * kLanes<T>);
  }
  Mask<T> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = i;
  for (int64_t column = 0; column < args.columns; column += kLanes<T>) {
    const int64_t left = args.columns - column < kLanes<T> ? args.columns - column : kLanes<T>;
    const Mask<T> valid = lane < Mask<T>{} + static_cast<IntegerOf<T>>(left);
    int64_t i = 0;
    for (; i + 4 <= args.rows; i += 4)
      add_products<T, 4, R, Terms>(sum, args.g + i * args.g_pitch + column, args.g_pitch, x, i * args.pitch + column,
                                   args.pitch, valid);
    for (; i < args.rows; ++i)
      add_products<T, 1, R, Terms>(sum, args.g + i * args.g_pitch + column, args.g_pitch, x, i * args.pitch + column,
                                   args.pitch, valid);
  }
#pragma GCC unroll 4
  for (int t = 0; t < Terms; ++t)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) store(sums + (t * R + r) * kLanes<T>, sum[t][r]);
}

/// As many of the `count` terms as have R rows, several at a time to keep the multipliers busy; returns their number.
template <class T, int R>
int64_t sum_terms_of_height(const DirectSumsArgs<T>& args, const DirectTerm* terms, int64_t count, T* sums) {
  constexpr int kTogether = R <= 2   ? 4
                            : R == 3 ? 3
                            : R <= 5 ? 2
                                     : 1;  // kTogether * R sums, 4 rows of g and a vector of x
  int64_t equal = 1;
  while (equal < count && terms[equal].rows == R) ++equal;
  int64_t t = 0;
  for (; t + kTogether <= equal; t += kTogether)
    sum_products<T, R, kTogether>(args, terms + t, sums + t * R * kLanes<T>);
  for (; t < equal; ++t) sum_products<T, R, 1>(args, terms + t, sums + t * R * kLanes<T>);
  return equal;
}

template <class T>
void direct_sums(const DirectSumsArgs<T>& args) {
  T* sums = args.sums;
  for (int64_t t = 0; t < args.term_count;) {
    const DirectTerm* terms = args.terms + t;
    const int64_t left = args.term_count - t;
    int64_t done = 0;
    switch (terms->rows) {
      case 1: done = sum_terms_of_height<T, 1>(args, terms, left, sums); break;
      case 2: done = sum_terms_of_height<T, 2>(args, terms, left, sums); break;
      case 3: done = sum_terms_of_height<T, 3>(args, terms, left, sums); break;
      case 4: done = sum_terms_of_height<T, 4>(args, terms, left, sums); break;
      case 5: done = sum_terms_of_height<T, 5>(args, terms, left, sums); break;
      case 6: done = sum_terms_of_height<T, 6>(args, terms, left, sums); break;
      default: done = sum_terms_of_height<T, 7>(args, terms, left, sums);
    }
    sums += done * terms->rows * kLanes<T>;
    t += done;
  }
}

template <class T>
void sum_lanes(const T* vectors, int64_t count, T* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = sum_of<T>(load(vectors + i * kLanes<T>));
}

}  // namespace gradus::openmp::GRADUS_ISA
