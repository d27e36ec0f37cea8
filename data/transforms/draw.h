// Numbers that transforms draw for the sample at hand, each from the next place of its generator. Internal to data.
#pragma once

#include <cstdint>

#include <gradus/data/sample.h>

namespace gradus::data::detail {

/// In [low, high); `low` where they are equal.
inline double draw_uniform(double low, double high) {
  const RandomState draw = sample_generator().next();
  return random_uniform<double>(draw.seed, draw.offset, 0, low, high);
}
/// In [low, high), low < high.
inline int64_t draw_integer(int64_t low, int64_t high) {
  const RandomState draw = sample_generator().next();
  return random_integer(draw.seed, draw.offset, 0, low, high);
}
/// True with probability p.
inline bool draw_chance(double p) { return draw_uniform(0, 1) < p; }
/// Standard normal.
inline double draw_normal() {
  const RandomState draw = sample_generator().next();
  return random_normal(draw.seed, draw.offset, 0);
}

}  // namespace gradus::data::detail
