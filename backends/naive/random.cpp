// Random numbers: the formulas of core/runtime/random.h, applied to one element at a time in row-major order.
#include <algorithm>
#include <numeric>
#include <vector>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/runtime/random.h>

namespace gradus {

using namespace naive_detail;
namespace {

uint64_t offset_of(const RandomState& state) { return state.offset + (state.device_offset ? *state.device_offset : 0); }

// y[i] = draw(seed, offset, i), where i counts the elements in row-major order.
template <class T, class F>
void draw_each(const MutableView& y, const RandomState& state, F&& draw) {
  const uint64_t offset = offset_of(state);
  uint64_t i = 0;
  T* out = y.as<T>();
  for_each(y.shape, {&y.strides}, [&](const int64_t* at) { out[at[0]] = draw(state.seed, offset, i++); });
}

}  // namespace

void NaiveBackend::uniform(const MutableView& y, const RandomState& state, double low, double high) {
  NaiveEvent event("uniform", {&y});
  visit_floating(y.dtype, [&]<class T> {
    draw_each<T>(y, state, [&](auto... at) { return random_uniform<T>(at..., low, high); });
  });
}

void NaiveBackend::normal(const MutableView& y, const RandomState& state, double mean, double deviation) {
  NaiveEvent event("normal", {&y});
  visit_floating(y.dtype, [&]<class T> {
    draw_each<T>(y, state, [&](auto... at) { return random_normal<T>(at..., mean, deviation); });
  });
}

void NaiveBackend::bernoulli(const MutableView& y, const RandomState& state, double p) {
  NaiveEvent event("bernoulli", {&y});
  visit(y.dtype, [&]<class T> {
    draw_each<T>(y, state, [&](auto... at) { return scalar::convert<T>(random_bernoulli(at..., p)); });
  });
}

void NaiveBackend::randint(const MutableView& y, const RandomState& state, int64_t low, int64_t high) {
  NaiveEvent event("randint", {&y});
  visit(y.dtype, [&]<class T> {
    draw_each<T>(y, state, [&](auto... at) { return scalar::convert<T>(random_integer(at..., low, high)); });
  });
}

void NaiveBackend::randperm(const MutableView& y, const RandomState& state) {
  NaiveEvent event("randperm", {&y});
  const uint64_t offset = offset_of(state);
  const size_t count = static_cast<size_t>(y.shape[0]);
  std::vector<uint64_t> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = random_bits64(state.seed, offset, i);
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, {}, [&](int64_t i) { return keys[static_cast<size_t>(i)]; });
  loop(y.shape[0], [&](int64_t i) { y.as<int64_t>()[i * y.strides[0]] = order[static_cast<size_t>(i)]; });
}

}  // namespace gradus
