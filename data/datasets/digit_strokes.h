// Handwriting in numbers: how the digits 0 to 9 are drawn, as strokes of a pen. Internal to data.
#pragma once

#include <span>

namespace gradus::data {

/// A point of a glyph, x to the right and y down, in the unit square.
struct Point {
  float x = 0, y = 0;
};

/// One movement of the pen: through the points along a smooth curve, or along straight lines.
struct Stroke {
  bool smooth = false;
  std::span<const Point> points;
};

/// One way of writing a digit.
using Glyph = std::span<const Stroke>;

/// The ways of writing `digit`, 0 to 9.
std::span<const Glyph> glyphs_of(int digit);

}  // namespace gradus::data
