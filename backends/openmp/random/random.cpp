// Random numbers: the streams of core/random.h, elements shared out among threads. Element i is a function of i alone,
// so the result is that of every other backend.
#include <cmath>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/observer.h>
#include <gradus/core/random.h>

namespace gradus {
namespace {

using namespace openmp_detail;

uint64_t offset_of(const RandomState& state) { return state.offset + (state.device_offset ? *state.device_offset : 0); }

bool is_contiguous(const View& x) {
  int64_t expected = 1;
  for (int i = x.ndim() - 1; i >= 0; expected *= x.shape[i--])
    if (x.shape[i] != 1 && x.strides[i] != expected) return false;
  return true;
}

// y[i] = draw(i) for i in logical row-major order; by way of contiguous memory where y is not.
template <class T, class F>
void draw_each(Backend& backend, const MutableView& y, F&& draw) {
  const bool in_place = is_contiguous(y);
  const Array row_major = in_place ? Array() : Array::empty(y.shape, y.dtype);
  T* out = in_place ? y.as<T>() : row_major.data<T>();
  parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = draw(static_cast<uint64_t>(i));
  });
  if (!in_place) backend.copy(row_major, y);
}

// Calls draw(first element, count, their pairs of random words) for blocks of up to kBlock of `numel` elements, of
// which `per_block` come from one philox block.
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

// draw(first element, count, pairs, out) for such blocks of y; by way of contiguous memory where y is not.
template <class T, int64_t per_block, class F>
void draw_blocks(Backend& backend, const RandomState& state, const MutableView& y, F&& draw) {
  const bool in_place = is_contiguous(y);
  const Array row_major = in_place ? Array() : Array::empty(y.shape, y.dtype);
  T* out = in_place ? y.as<T>() : row_major.data<T>();
  each_block<per_block>(state, y.numel(), [&](int64_t first, int64_t count, const uint64_t* pairs) {
    draw(first, count, pairs, out + first);
  });
  if (!in_place) backend.copy(row_major, y);
}

// Words 2 i and 2 i + 1 are the halves of pair i.
uint32_t word_of(const uint64_t* pairs, int64_t i) { return static_cast<uint32_t>(pairs[i / 2] >> (i % 2 * 32)); }
PhiloxWords block_of(const uint64_t* pairs, int64_t block) {
  return {{word_of(pairs, 4 * block), word_of(pairs, 4 * block + 1), word_of(pairs, 4 * block + 2),
           word_of(pairs, 4 * block + 3)}};
}

// random_bernoulli of a word: with probability p. The upper 24 bits times 2^-24 are less than p if they are less than
// this.
struct Chance {
  explicit Chance(double p) : limit(p > 0 ? static_cast<uint32_t>(std::ceil(std::min(p, 1.0) * 0x1p24)) : 0) {}
  bool happens(uint32_t word) const { return word >> 8 < limit; }
  uint32_t limit;
};

}  // namespace

void OpenmpBackend::uniform(const MutableView& y, const RandomState& state, double low, double high) {
  const bool vectors = kernel_table().f32.uniform && size_of(y.dtype) > 2;
  EventScope event("uniform", "openmp", vectors ? kernel_table().vectors : "loops", {&y});
  visit_floating(y.dtype, [&]<class T> {
    constexpr int64_t per_block = sizeof(T) == 8 ? 2 : 4;
    draw_blocks<T, per_block>(*this, state, y, [&](int64_t, int64_t count, const uint64_t* pairs, T* out) {
      if constexpr (std::is_floating_point_v<T>)
        if (vectors) return kernels_of<T>(kernel_table()).uniform(pairs, count, low, high, out);
      for (int64_t i = 0; i < count; ++i)
        out[i] = random_uniform_of<T>(block_of(pairs, i / per_block), static_cast<uint64_t>(i), low, high);
    });
  });
}

void OpenmpBackend::normal(const MutableView& y, const RandomState& state, double mean, double deviation) {
  const bool vectors = kernel_table().f32.normal != nullptr;
  EventScope event("normal", "openmp", vectors ? kernel_table().vectors : "loops", {&y});
  visit_floating(y.dtype, [&]<class T> {
    using C = compute_t<T>;
    const uint64_t offset = offset_of(state);
    draw_blocks<T, 2>(*this, state, y, [&](int64_t first, int64_t count, const uint64_t* pairs, T* out) {
      C buffer[kBlock];
      if (vectors) {
        kernels_of<C>(kernel_table()).normal(pairs, count, mean, deviation, buffer);
      } else {
        for (int64_t i = 0; i < count; i += 2) {
          const NormalPair pair = random_normal_pair(state.seed, offset, static_cast<uint64_t>(first + i) / 2);
          buffer[i] = static_cast<C>(random_detail::fused(deviation, pair.even, mean));
          if (i + 1 < count) buffer[i + 1] = static_cast<C>(random_detail::fused(deviation, pair.odd, mean));
        }
      }
      convert_block(buffer, out, count);
    });
  });
}

void OpenmpBackend::bernoulli(const MutableView& y, const RandomState& state, double p) {
  EventScope event("bernoulli", "openmp", "loops", {&y});
  visit(y.dtype, [&]<class T> {
    draw_blocks<T, 4>(*this, state, y, [&, chance = Chance(p)](int64_t, int64_t count, const uint64_t* pairs, T* out) {
      for (int64_t i = 0; i < count; ++i) out[i] = scalar::convert<T>(chance.happens(word_of(pairs, i)));
    });
  });
}

void OpenmpBackend::randint(const MutableView& y, const RandomState& state, int64_t low, int64_t high) {
  EventScope event("randint", "openmp", "loops", {&y});
  visit(y.dtype, [&]<class T> {
    draw_each<T>(*this, y, [&, offset = offset_of(state)](uint64_t i) {
      return scalar::convert<T>(random_integer(state.seed, offset, i, low, high));
    });
  });
}

void OpenmpBackend::dropout(const View& x, double p, const RandomState& state, const MutableView& mask,
                            const MutableView& y) {
  if (!is_contiguous(x) || !is_contiguous(mask) || !is_contiguous(y)) return Backend::dropout(x, p, state, mask, y);
  EventScope event("dropout", "openmp", "loops", {&x, &mask, &y}, x.numel());
  visit_floating(x.dtype, [&]<class T> {
    using C = compute_t<T>;
    const C scale = static_cast<C>(Scalar(1 / (1 - p)).to<T>());
    const Chance chance(1 - p);
    each_block<4>(state, x.numel(), [&](int64_t first, int64_t count, const uint64_t* pairs) {
      const T* in = x.as<T>() + first;
      T* out = y.as<T>() + first;
      bool* kept = mask.as<bool>() + first;
      for (int64_t i = 0; i < count; ++i) kept[i] = chance.happens(word_of(pairs, i));
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
    const C scale = static_cast<C>(Scalar(1 / (1 - p)).to<T>());
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
