// Random numbers: the streams of core/runtime/random.h, divided among threads. Element i depends only on i and the
// random state, so all backends give the same numbers.
#include <algorithm>
#include <cmath>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/operand.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/random.h>

namespace gradus {
namespace {

using namespace openmp_detail;

uint64_t offset_of(const RandomState& state) { return state.offset + (state.device_offset ? *state.device_offset : 0); }

// Divides `numel` elements into blocks of up to kBlock, and calls draw(first element, count, pairs of random words) for
// each block. One philox block yields `per_block` elements.
template <int64_t per_block, class F>
void each_block(const RandomState& state, int64_t numel, F&& draw) {
  static_assert(kBlock % per_block == 0 && kGrain % kBlock == 0);
  parallel_for(numel, kGrain, [&, offset = offset_of(state)](int64_t begin, int64_t end) {
    uint64_t pairs[2 * kBlock / per_block];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i), first = i / per_block;
      kernel_table().philox(state.seed, offset, static_cast<uint64_t>(first), ceil_div(count, per_block), pairs);
      draw(i, count, pairs);
    }
  });
}

// Calls draw(count, pairs, out) for the blocks of y that each_block() makes. draw() must store the block's elements at
// `out`, which points into y or, if y is not contiguous, into a contiguous buffer that is copied to y at the end.
template <class T, int64_t per_block, class F>
void draw_blocks(Backend& backend, const RandomState& state, const MutableView& y, F&& draw) {
  const Output row_major(backend, y, !is_row_major(y), y.dtype, MemoryFormat::contiguous);
  T* out = row_major.view().template as<T>();
  each_block<per_block>(state, y.numel(),
                        [&](int64_t first, int64_t count, const uint64_t* pairs) { draw(count, pairs, out + first); });
  row_major.finish();
}

// Word i of the stream: words 2 i and 2 i + 1 are the halves of pair i.
uint32_t word_of(const uint64_t* pairs, int64_t i) { return static_cast<uint32_t>(pairs[i / 2] >> (i % 2 * 32)); }

}  // namespace

void OpenmpBackend::uniform(const MutableView& y, const RandomState& state, double low, double high) {
  if (size_of(y.dtype) == 2) return NaiveBackend::uniform(y, state, low, high);
  EventScope event("uniform", "openmp", kernel_table().vectors, {&y});
  visit_wide(y.dtype, [&]<class T> {
    draw_blocks<T, sizeof(T) == 8 ? 2 : 4>(*this, state, y, [&](int64_t count, const uint64_t* pairs, T* out) {
      kernels_of<T>(kernel_table()).uniform(pairs, count, low, high, out);
    });
  });
}

void OpenmpBackend::normal(const MutableView& y, const RandomState& state, double mean, double deviation) {
  EventScope event("normal", "openmp", kernel_table().vectors, {&y});
  visit_floating(y.dtype, [&]<class T> {
    using C = compute_t<T>;
    draw_blocks<T, 2>(*this, state, y, [&](int64_t count, const uint64_t* pairs, T* out) {
      C buffer[kBlock];
      kernels_of<C>(kernel_table()).normal(pairs, count, mean, deviation, buffer);
      convert_block(buffer, out, count);
    });
  });
}

void OpenmpBackend::dropout(const View& x, double p, const RandomState& state, const MutableView& mask,
                            const MutableView& y) {
  if (!is_row_major(x) || !is_row_major(mask) || !is_row_major(y)) return Backend::dropout(x, p, state, mask, y);
  EventScope event("dropout", "openmp", "loops", {&x, &mask, &y}, x.numel());
  visit_floating(x.dtype, [&]<class T> {
    using C = compute_t<T>;
    const C scale = Scalar(1 / (1 - p)).cast<C>();
    // A word's upper 24 bits times 2^-24 are less than 1 - p exactly if these bits are less than `limit` (see
    // random_bernoulli).
    const auto limit = static_cast<uint32_t>(std::ceil(std::clamp(1 - p, 0.0, 1.0) * 0x1p24));
    each_block<4>(state, x.numel(), [&](int64_t first, int64_t count, const uint64_t* pairs) {
      const T* in = x.as<T>() + first;
      T* out = y.as<T>() + first;
      bool* kept = mask.as<bool>() + first;
      for (int64_t i = 0; i < count; ++i) kept[i] = word_of(pairs, i) >> 8 < limit;
      for (int64_t i = 0; i < count; ++i) out[i] = kept[i] ? static_cast<T>(static_cast<C>(in[i]) * scale) : T(0);
    });
  });
}

void OpenmpBackend::dropout_backward(const View& dy, const View& mask, double p, const MutableView& dx) {
  EventScope event("dropout_backward", "openmp", "loops", {&dy, &mask, &dx}, dx.numel());
  const StridedLoop<3> nest(dx.shape, {&dx.strides, &dy.strides, &mask.strides});
  const int64_t dx_step = step_of(nest, 0), dy_step = step_of(nest, 1), mask_step = step_of(nest, 2);
  visit_floating(dx.dtype, [&]<class T> {
    using C = compute_t<T>;
    const C scale = Scalar(1 / (1 - p)).cast<C>();
    parallel_runs(nest, [&](const int64_t* at, int64_t count) {
      T* out = dx.as<T>() + at[0];
      const T* in = dy.as<T>() + at[1];
      const bool* kept = mask.as<bool>() + at[2];
      for (int64_t i = 0; i < count; ++i)
        out[i * dx_step] = kept[i * mask_step] ? static_cast<T>(static_cast<C>(in[i * dy_step]) * scale) : T(0);
    });
  });
}

}  // namespace gradus
