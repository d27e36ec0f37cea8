#include "../common/exercise.h"

/// Computes C = A B. All matrices are n × n, float32, and stored row by row. C may contain any values before.
inline void product(int64_t n, const float* A, const float* B, float* C) {
  // [hole] product: begin with three loops
  constexpr int64_t kRows = 4, kColumns = 16;  // a tile of results in registers
  for (int64_t i = 0; i < n; i += kRows)
    for (int64_t j = 0; j < n; j += kColumns) {
      const int64_t rows = std::min(kRows, n - i), columns = std::min(kColumns, n - j);
      if (rows < kRows || columns < kColumns) {  // a smaller tile at the border
        for (int64_t r = i; r < i + rows; ++r)
          for (int64_t c = j; c < j + columns; ++c) {
            float sum = 0;
            for (int64_t k = 0; k < n; ++k) sum += A[r * n + k] * B[k * n + c];
            C[r * n + c] = sum;
          }
        continue;
      }
      float sum[kRows][kColumns] = {};
      for (int64_t k = 0; k < n; ++k)
        for (int64_t r = 0; r < kRows; ++r)
          for (int64_t c = 0; c < kColumns; ++c) sum[r][c] += A[(i + r) * n + k] * B[k * n + j + c];
      for (int64_t r = 0; r < kRows; ++r) std::copy_n(sum[r], kColumns, C + (i + r) * n + j);
    }
  // [end]
}
