// Drawing of digits. The points of a glyph, in the unit square, are transformed by
//   bend      a random quadratic map, which keeps connected strokes connected, and a little random displacement
//   affine    p' = R(angle) [sx  slant; 0  sy] (p - 1/2) + centre, in pixels
// Smooth strokes are divided into short lines along a Catmull-Rom spline. A pixel at distance d from the nearest line
// has the value
//   ink * clamp(1/2 + (radius - d) / softness, 0, 1) + noise
#include <gradus/data/datasets/draw_digit.h>

#include <gradus/core/runtime/random.h>
#include <gradus/data/datasets/digit_strokes.h>
#include <gradus/data/random_streams.h>

#include <algorithm>
#include <cmath>

namespace gradus::data {
namespace {

constexpr int kSize = kDigitSize, kPixels = kSize * kSize;
constexpr int kLinesPerSpan = 5;

// The random numbers of one digit, in the order of their use.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t index) : seed_(seed), stream_(digit_stream(index)) {}
  float uniform(float low, float high) {
    if (count_ % 4 == 0) words_ = philox(seed_, stream_, count_ / 4);
    return low + (high - low) * (static_cast<float>(words_.word[count_++ % 4] >> 8) * 0x1p-24f);
  }
  int below(size_t count) { return static_cast<int>(uniform(0, static_cast<float>(count))); }

 private:
  uint64_t seed_, stream_, count_ = 0;
  PhiloxWords words_ = {};
};

// Maps the unit square to pixels.
struct Hand {
  float bend_x[3], bend_y[3], xx, xy, yx, yy, centre_x, centre_y;

  explicit Hand(Draws& draws) {
    for (float& weight : bend_x) weight = draws.uniform(-0.22f, 0.22f);
    for (float& weight : bend_y) weight = draws.uniform(-0.18f, 0.18f);
    const float width = draws.uniform(13.f, 21.f), height = draws.uniform(16.f, 20.5f);
    const float slant = draws.uniform(-7.f, 2.5f);  // most hands lean to the right
    double cosine, sine;
    random_detail::cos_sin_turn(draws.uniform(0.965f, 1.035f), &cosine,
                                &sine);  // a full turn, plus or minus 12 degrees
    const float c = static_cast<float>(cosine), s = static_cast<float>(sine);
    xx = c * width, xy = c * slant - s * height;
    yx = s * width, yy = s * slant + c * height;
    centre_x = draws.uniform(11.8f, 15.2f), centre_y = draws.uniform(11.8f, 15.2f);
  }

  Point operator()(Point p) const {
    const float x = p.x - 0.5f, y = p.y - 0.5f;
    const float bent_x = x + bend_x[0] * x * y + bend_x[1] * y * y + bend_x[2] * x * x;
    const float bent_y = y + bend_y[0] * x * y + bend_y[1] * y * y + bend_y[2] * x * x;
    return {xx * bent_x + xy * bent_y + centre_x, yx * bent_x + yy * bent_y + centre_y};
  }
};

// Squared distances of all pixels to the lines drawn so far, up to the radius of the pen.
class Paper {
 public:
  explicit Paper(float reach) : reach_(reach) { std::fill(squared_, squared_ + kPixels, reach * reach); }

  void line(Point a, Point b) {
    const float dx = b.x - a.x, dy = b.y - a.y, per_length2 = 1.f / std::max(dx * dx + dy * dy, 1e-12f);
    const int left = clip(std::min(a.x, b.x) - reach_), right = clip(std::max(a.x, b.x) + reach_ + 1);
    const int top = clip(std::min(a.y, b.y) - reach_), bottom = clip(std::max(a.y, b.y) + reach_ + 1);
    for (int y = top; y < bottom; ++y)
      for (int x = left; x < right; ++x) {
        const float px = static_cast<float>(x) - a.x, py = static_cast<float>(y) - a.y;
        const float along = std::clamp((px * dx + py * dy) * per_length2, 0.f, 1.f);
        const float ex = px - along * dx, ey = py - along * dy;
        float& nearest = squared_[y * kSize + x];
        nearest = std::min(nearest, ex * ex + ey * ey);
      }
  }
  float distance(int pixel) const { return std::sqrt(squared_[pixel]); }

 private:
  static int clip(float coordinate) { return static_cast<int>(std::clamp(coordinate, 0.f, static_cast<float>(kSize))); }
  float reach_, squared_[kPixels];
};

// A point between b and c, for t from 0 to 1; a and d are the points next to them.
Point catmull_rom(Point a, Point b, Point c, Point d, float t) {
  auto mix = [t](float a, float b, float c, float d) {
    return b + 0.5f * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
  };
  return {mix(a.x, b.x, c.x, d.x), mix(a.y, b.y, c.y, d.y)};
}

void draw_stroke(const Stroke& stroke, const Hand& hand, Draws& draws, Paper& paper) {
  constexpr size_t kMostPoints = 16;
  constexpr float kTremor = 0.012f;
  Point points[kMostPoints];
  const size_t count = stroke.points.size();
  for (size_t i = 0; i < count; ++i) {
    Point p = stroke.points[i];
    p.x += draws.uniform(-kTremor, kTremor), p.y += draws.uniform(-kTremor, kTremor);
    points[i] = hand(p);
  }
  for (size_t i = 0; i + 1 < count; ++i) {
    if (!stroke.smooth) {
      paper.line(points[i], points[i + 1]);
      continue;
    }
    const Point before = points[i > 0 ? i - 1 : 0], after = points[std::min(i + 2, count - 1)];
    Point from = points[i];
    for (int k = 1; k <= kLinesPerSpan; ++k) {
      const float t = static_cast<float>(k) / kLinesPerSpan;
      const Point to = catmull_rom(before, points[i], points[i + 1], after, t);
      paper.line(from, to);
      from = to;
    }
  }
}

}  // namespace

int draw_digit(uint64_t seed, uint64_t index, uint8_t* pixels) {
  Draws draws(seed, index);
  const int digit = draws.below(10);
  const auto glyphs = glyphs_of(digit);
  const Glyph glyph = glyphs[static_cast<size_t>(draws.below(glyphs.size()))];
  const Hand hand(draws);
  const float radius = draws.uniform(0.7f, 1.7f), softness = draws.uniform(0.9f, 1.6f);
  const float ink = draws.uniform(0.75f, 1.f), noise = draws.uniform(0.f, 0.08f);

  Paper paper(radius + softness);
  for (const Stroke& stroke : glyph) draw_stroke(stroke, hand, draws, paper);
  for (int i = 0; i < kPixels; ++i) {
    const float coverage = std::clamp(0.5f + (radius - paper.distance(i)) / softness, 0.f, 1.f);
    const float value = std::clamp(ink * coverage + draws.uniform(-noise, noise), 0.f, 1.f);
    pixels[i] = static_cast<uint8_t>(value * 255.f + 0.5f);
  }
  return digit;
}

}  // namespace gradus::data
