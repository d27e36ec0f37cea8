// Initial values of sharded weights. Every rank draws its part of what one process would draw for the whole weight, so
// that training begins with the same numbers on any number of ranks, and no rank holds more than its part. Internal to
// distributed/sharding.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/random.h>

namespace gradus::dist {

/// Fills `part` (rows, columns), float32 on the CPU, with its elements of one draw of the default generator for a whole
/// matrix with `whole_columns`: row i of the part is row row_of(i) of the whole, from `first_column` on. element(state,
/// n) is element n of the draw. The generator advances as it does for the whole matrix.
template <class RowOf, class Element>
void draw_part(const Tensor& part, int64_t whole_columns, int64_t first_column, const RowOf& row_of,
               const Element& element) {
  const RandomState state = default_generator().next();
  const int64_t columns = part.size(1);
  float* numbers = part.data_ptr<float>();
  parallel_for(part.size(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < columns; ++j)
        numbers[i * columns + j] = element(state, static_cast<uint64_t>(row_of(i) * whole_columns + first_column + j));
  });
}

template <class RowOf>
void draw_uniform_part(const Tensor& part, int64_t whole_columns, int64_t first_column, const RowOf& row_of,
                       double bound) {
  draw_part(part, whole_columns, first_column, row_of, [&](const RandomState& state, uint64_t n) {
    return random_uniform<float>(state.seed, state.offset, n, -bound, bound);
  });
}

/// Draws from N(0, 1), as nn::Embedding does.
template <class RowOf>
void draw_normal_part(const Tensor& part, const RowOf& row_of) {
  draw_part(part, part.size(1), 0, row_of, [&](const RandomState& state, uint64_t n) {
    return random_normal<float>(state.seed, state.offset, n, 0, 1);
  });
}

}  // namespace gradus::dist
