// Copies matrices: transposed, or row by row with zero margins and an optional mask.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/strided_kernel.h>

namespace gradus::openmp_detail::GRADUS_ISA {

// Exchanges the off-diagonal blocks of size `distance` between two rows.
template <class T, int distance>
inline void exchange(Vector<T>& a, Vector<T>& b) {
  const Vector<T> low = shuffled<[](int i) { return i & distance ? kLanes<T> + i - distance : i; }>(a, b);
  b = shuffled<[](int i) { return i & distance ? kLanes<T> + i : i + distance; }>(a, b);
  a = low;
}

// Transposes a square block in registers: exchanges the off-diagonal blocks of half the size, then transposes all four.
template <class T, int distance = kLanes<T> / 2>
inline void transpose_block(Vector<T>* row) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T>; ++i)
    if ((i & distance) == 0) exchange<T, distance>(row[i], row[i + distance]);
  if constexpr (distance > 1) transpose_block<T, distance / 2>(row);
}

template <class T>
void transpose(const TransposeArgs<T>& args) {
  constexpr int64_t lanes = kLanes<T>;
  const int64_t rows = args.rows, columns = args.columns, out_stride = args.out_stride;
  for (int64_t r = 0; r < rows; r += lanes) {
    const int64_t height = rows - r < lanes ? rows - r : lanes;
    for (int64_t c = 0; c < columns; c += lanes) {
      const int64_t width = columns - c < lanes ? columns - c : lanes;
      T* to = args.out + c * out_stride + r;
      const auto read = [&](const T* matrix, int64_t i) {
        const T* from = matrix + (r + i) * args.in_stride + c;
        return width == lanes ? load(from) : load_first(from, width);
      };
      Vector<T> block[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) {
        block[i] = i < height ? read(args.in, i) : Vector<T>{};
        if (args.mask && i < height) block[i] = read(args.mask, i) > Vector<T>{} ? block[i] : Vector<T>{};
      }
      transpose_block<T>(block);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) {
        if (i >= width) break;
        if (height == lanes) store(to + i * out_stride, block[i]);
        else store_first(to + i * out_stride, block[i], height);
      }
    }
  }
}

/// Writes zeros to to[begin, end), 0 <= begin <= end <= total, in whole vectors that may also overwrite neighbours in
/// [0, total).
template <class T>
inline void clear_generously(T* to, int64_t begin, int64_t end, int64_t total) {
  constexpr int64_t lanes = kLanes<T>;
  if (total < lanes) {
    for (int64_t i = begin; i < end; ++i) to[i] = T(0);
    return;
  }
  for (int64_t i = begin; i < end; i += lanes) store(to + (i < total - lanes ? i : total - lanes), Vector<T>{});
}

template <class T>
void copy_rows(const RowsArgs<T>& args) {
  constexpr int64_t lanes = kLanes<T>;
  const T* from = args.from;
  const T* mask = args.mask;
  T* to = args.to;
  const int64_t count = args.count, step = args.step, total = args.left + count + args.right;
  // If there is room, the last vector is written whole, including the zeros after the data.
  const int64_t padded = (count + lanes - 1) / lanes * lanes;
  const bool room = padded <= count + args.right;
  for (int64_t r = 0; r < args.rows; ++r, from += args.from_stride, to += args.to_stride) {
    clear_generously(to, 0, args.left, total);
    clear_generously(to, args.left + (room ? padded : count), total, total);
    T* out = to + args.left;
    for (int64_t i = 0; i < count; i += lanes) {
      const Strip<T> strip{count - i < lanes ? count - i : lanes, step};
      Vector<T> v = strip.load_inputs(from + i * step);
      if (mask) v = strip.load_inputs(mask + i * step) > Vector<T>{} ? v : Vector<T>{};
      room || strip.count == lanes ? store(out + i, v) : store_first(out + i, v, strip.count);
    }
    if (mask) mask += args.from_stride;
  }
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
