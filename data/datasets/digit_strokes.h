// The shapes of handwritten digits 0 to 9 as pen strokes. Not part of the public interface.
#pragma once

#include <span>

namespace gradus::data {

/// A point of a glyph in the unit square; x points to the right and y down.
struct Point {
  float x = 0, y = 0;
};

/// One movement of the pen through the points, along a smooth curve or straight lines.
struct Stroke {
  bool smooth = false;
  std::span<const Point> points;
};

/// One way of writing a digit.
using Glyph = std::span<const Stroke>;

/// The ways of writing `digit`, which is 0 to 9.
std::span<const Glyph> glyphs_of(int digit);

}  // namespace gradus::data
