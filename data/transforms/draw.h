// Random numbers of transforms. Each call draws the next number of the current sample's generator. Not part of the
// public interface.
#pragma once

#include <cstdint>

#include <gradus/data/sample.h>

namespace gradus::data::detail {

/// A number in [low, high), or `low` if the bounds are equal.
inline double draw_uniform(double low, double high) {
  const RandomState draw = sample_generator().next();
  return random_uniform<double>(draw.seed, draw.offset, 0, low, high);
}
/// An integer in [low, high); low < high.
inline int64_t draw_integer(int64_t low, int64_t high) {
  const RandomState draw = sample_generator().next();
  return random_integer(draw.seed, draw.offset, 0, low, high);
}
/// True with probability p.
inline bool draw_chance(double p) { return draw_uniform(0, 1) < p; }
/// A standard normal number.
inline double draw_normal() {
  const RandomState draw = sample_generator().next();
  return random_normal(draw.seed, draw.offset, 0);
}

}  // namespace gradus::data::detail
