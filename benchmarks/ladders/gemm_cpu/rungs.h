// Six implementations of C = A B for square float matrices. Each rung adds one idea to the previous rung, so read from
// top to bottom; docs/cpu_kernels.md has the times. All matrices are n x n and row-major; n is a multiple of 64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gradus/benchmarks/ladders/cpu/vector.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::ladders {

// 1. Naive: computes each element of C as the product of a row and a column. Slow because each step waits for the sum
// of the previous step, and reads a new cache line of B's column, and often a new page.
inline void naive(int64_t n, const float* a, const float* b, float* c) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
}

// 2. Interchanged: makes the same products, but the inner loop runs along rows of B and C. Reads memory in order, no
// step waits for another step, and the compiler vectorises the loop.
inline void interchanged(int64_t n, const float* a, const float* b, float* c) {
  std::fill_n(c, n * n, 0.0f);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

// 3. Blocked: rung 2 reads all of B for each row of C, and loads and stores an element of C for each product. Rung 3
// uses a block of B that fits into the cache for all rows of A, and adds four products at a time to an element of C.
inline void blocked(int64_t n, const float* a, const float* b, float* c) {
  constexpr int64_t kBlock = 64;  // rows of B: 256 KiB for n = 1024, a part of the second-level cache
  std::fill_n(c, n * n, 0.0f);
  for (int64_t first = 0; first < n; first += kBlock)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = first; k < first + kBlock; k += 4) {
        const float *ak = a + i * n + k, *bk = b + k * n;
        for (int64_t j = 0; j < n; ++j)
          c[i * n + j] += ak[0] * bk[j] + ak[1] * bk[n + j] + ak[2] * bk[2 * n + j] + ak[3] * bk[3 * n + j];
      }
}

// The tile of C that the following rungs compute at a time. Its sums and the operands must fit into the registers. It
// needs enough sums that no multiply-add waits for another one: two multiply-adds can start in each cycle, and each
// takes four cycles.
constexpr int64_t kTileRows = kVectorRegisters == 32 ? 8 : 4, kTileColumns = 2 * kVectorFloats;
// The depth of a block: a strip of B, kDepth x kTileColumns, must fit into the first-level cache.
constexpr int64_t kDepth = 256;

// A matrix whose element (m, k) is data[m * row + k * step].
struct Rows {
  const float* data;
  int64_t row, step;
};

// Computes C += A B for one tile. Each step along the depth loads two vectors of B and kTileRows elements of A, and
// makes 2 kTileRows vector multiply-adds.
inline void register_tile(int64_t depth, Rows a, const float* b, int64_t b_step, float* c, int64_t stride) {
  FloatVector sums[kTileRows][2] = {};
  for (int64_t k = 0; k < depth; ++k, a.data += a.step, b += b_step) {
    const FloatVector b0 = load(b), b1 = load(b + kVectorFloats);
#pragma GCC unroll 8
    for (int64_t m = 0; m < kTileRows; ++m) {
      const float am = a.data[m * a.row];
      sums[m][0] += am * b0;
      sums[m][1] += am * b1;
    }
  }
#pragma GCC unroll 8
  for (int64_t m = 0; m < kTileRows; ++m)
#pragma GCC unroll 2
    for (int64_t v = 0; v < 2; ++v) {
      float* to = c + m * stride + v * kVectorFloats;
      store(to, load(to) + sums[m][v]);
    }
}

// 4. Vector: computes C in tiles whose sums stay in registers, and uses each loaded element for a whole row or column
// of the tile. This takes 16 times fewer loads per product than rung 3.
inline void vector(int64_t n, const float* a, const float* b, float* c) {
  std::fill_n(c, n * n, 0.0f);
  for (int64_t k = 0; k < n; k += kDepth)
    for (int64_t column = 0; column < n; column += kTileColumns)
      for (int64_t row = 0; row < n; row += kTileRows)
        register_tile(std::min(kDepth, n - k), {a + row * n + k, n, 1}, b + k * n + column, n, c + row * n + column, n);
}

// Copies a block of A to panels of kTileRows rows. Each panel is stored column by column, because the tile reads it in
// this order.
inline void pack_a(const float* a, int64_t stride, int64_t rows, int64_t depth, float* packed) {
  for (int64_t i = 0; i < rows; i += kTileRows)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t m = 0; m < kTileRows; ++m) *packed++ = a[(i + m) * stride + k];
}

// Copies a block of B to strips of kTileColumns columns, each stored row by row.
inline void pack_b(const float* b, int64_t stride, int64_t depth, int64_t columns, float* packed) {
  for (int64_t column = 0; column < columns; column += kTileColumns)
    for (int64_t k = 0; k < depth; ++k, packed += kTileColumns)
      std::memcpy(packed, b + k * stride + column, kTileColumns * sizeof(float));
}

// Adds the product of rows [first, last) of A and packed strips of B to the same rows of C. Packs a few rows of A at a
// time, so that they fit into the second-level cache.
inline void multiply_rows(int64_t n, int64_t first, int64_t last, int64_t depth, const float* a, const float* strips,
                          float* c) {
  constexpr int64_t kRows = 64;
  float panels[kRows * kDepth];
  for (int64_t begin = first; begin < last; begin += kRows) {
    const int64_t rows = std::min(kRows, last - begin);
    pack_a(a + begin * n, n, rows, depth, panels);
    for (int64_t column = 0; column < n; column += kTileColumns)
      for (int64_t row = 0; row < rows; row += kTileRows)
        register_tile(depth, {panels + row * depth, 1, kTileRows}, strips + column * depth, kTileColumns,
                      c + (begin + row) * n + column, n);
  }
}

// 5. Packed: the tiles of rung 4 read pieces of many cache lines and pages; if n is a power of two, all of them map to
// the same set of the cache. Rung 5 copies the operands to the order in which tiles read them. A copy takes n^2 steps,
// the product n^3.
inline void packed(int64_t n, const float* a, const float* b, float* c) {
  std::fill_n(c, n * n, 0.0f);
  std::vector<float> strips(static_cast<size_t>(kDepth * n));
  for (int64_t k = 0; k < n; k += kDepth) {
    const int64_t depth = std::min(kDepth, n - k);
    pack_b(b + k * n, n, depth, n, strips.data());
    multiply_rows(n, 0, n, depth, a + k, strips.data(), c);
  }
}

// 6. Parallel: distributes the packing of B, and then the rows of C, over threads. The chunks of rows do not depend on
// the number of threads, so the results do not either.
inline void parallel(int64_t n, const float* a, const float* b, float* c) {
  std::fill_n(c, n * n, 0.0f);
  std::vector<float> strips(static_cast<size_t>(kDepth * n));
  for (int64_t k = 0; k < n; k += kDepth) {
    const int64_t depth = std::min(kDepth, n - k);
    parallel_for(n, 4 * kTileColumns, [&](int64_t begin, int64_t end) {
      pack_b(b + k * n + begin, n, depth, end - begin, strips.data() + begin * depth);
    });
    parallel_for(n, 64,
                 [&](int64_t first, int64_t last) { multiply_rows(n, first, last, depth, a + k, strips.data(), c); });
  }
}

}  // namespace gradus::ladders
