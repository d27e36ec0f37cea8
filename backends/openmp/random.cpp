// Random numbers: the streams of core/random.h, elements shared out among threads. Element i is a function of i alone,
// so the result is that of every other backend.
#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/random.h>

namespace gradus {
namespace {

using namespace openmp;

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

// The same for `together` neighbours at a time, from multiples of it on: draw(i, count, out).
template <class T, int64_t together, class F>
void draw_blocks(Backend& backend, const MutableView& y, F&& draw) {
  static_assert(kGrain % together == 0);
  const bool in_place = is_contiguous(y);
  const Array row_major = in_place ? Array() : Array::empty(y.shape, y.dtype);
  T* out = in_place ? y.as<T>() : row_major.data<T>();
  parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += together)
      draw(static_cast<uint64_t>(i), std::min(together, end - i), out + i);
  });
  if (!in_place) backend.copy(row_major, y);
}

// Calls keep(i, kept) for i in [begin, end), begin a multiple of 4: four draws of the float stream from each philox
// block, compared as random_bernoulli does.
template <class F>
void bernoulli_range(uint64_t seed, uint64_t offset, double p, int64_t begin, int64_t end, F&& keep) {
  for (int64_t i = begin; i < end; i += 4) {
    const PhiloxWords words = philox(seed, offset, static_cast<uint64_t>(i) >> 2);
    for (int64_t j = 0; j < std::min<int64_t>(4, end - i); ++j)
      keep(i + j, static_cast<double>(words.word[j] >> 8) * 0x1p-24 < p);
  }
}

}  // namespace

void OpenmpBackend::uniform(const MutableView& y, const RandomState& state, double low, double high) {
  EventScope event("uniform", "openmp", "loops", {&y});
  visit_floating(y.dtype, [&]<class T> {
    const uint64_t offset = offset_of(state);
    // Neighbours come from one philox block: four floats, or two doubles.
    constexpr int64_t together = sizeof(T) == 8 ? 2 : 4;
    draw_blocks<T, together>(*this, y, [&](uint64_t i, int64_t count, T* out) {
      const PhiloxWords words = philox(state.seed, offset, i / together);
      for (int64_t k = 0; k < count; ++k) out[k] = random_uniform_of<T>(words, i + static_cast<uint64_t>(k), low, high);
    });
  });
}

void OpenmpBackend::normal(const MutableView& y, const RandomState& state, double mean, double deviation) {
  EventScope event("normal", "openmp", "loops", {&y});
  visit_floating(y.dtype, [&]<class T> {
    const uint64_t offset = offset_of(state);
    draw_blocks<T, 2>(*this, y, [&](uint64_t i, int64_t count, T* out) {
      const NormalPair pair = random_normal_pair(state.seed, offset, i / 2);
      const double values[2] = {pair.even, pair.odd};
      for (int64_t k = 0; k < count; ++k)
        out[k] = static_cast<T>(static_cast<compute_t<T>>(random_detail::fused(deviation, values[k], mean)));
    });
  });
}

void OpenmpBackend::bernoulli(const MutableView& y, const RandomState& state, double p) {
  EventScope event("bernoulli", "openmp", "loops", {&y});
  visit(y.dtype, [&]<class T> {
    draw_each<T>(*this, y, [&, offset = offset_of(state)](uint64_t i) {
      return scalar::convert<T>(random_bernoulli(state.seed, offset, i, p));
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
  const uint64_t offset = offset_of(state);
  visit_floating(x.dtype, [&]<class T> {
    using C = compute_t<T>;
    const C scale = static_cast<C>(Scalar(1 / (1 - p)).to<T>());
    const T* in = x.as<T>();
    T* out = y.as<T>();
    bool* kept = mask.as<bool>();
    parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      bernoulli_range(state.seed, offset, 1 - p, begin, end, [&](int64_t i, bool keep) {
        kept[i] = keep;
        out[i] = keep ? static_cast<T>(static_cast<C>(in[i]) * scale) : T(0);
      });
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
