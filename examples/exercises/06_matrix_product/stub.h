#include "../common/exercise.h"

/// C = A B, all n × n, row by row, in float32. C holds anything before.
inline void product(int64_t n, const float* A, const float* B, float* C) { todo("product: begin with three loops"); }
