// A digit is drawn as pen strokes through given points in the unit square. The points are transformed by two maps:
//   bend      a random quadratic map, which keeps connected strokes connected, and a little random displacement
//   affine    p' = R(angle) [sx  slant; 0  sy] (p - 1/2) + centre, in pixels
// A smooth stroke is a Catmull-Rom spline through its points, drawn as short lines. A pixel at distance d from the
// nearest line has the value
//   ink * clamp(1/2 + (radius - d) / softness, 0, 1) + noise
#include <gradus/data/datasets/mnist.h>

#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/random.h>
#include <gradus/data/sample.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace gradus::data::datasets {
namespace {

constexpr int kSize = 28, kPixels = kSize * kSize;
constexpr int kLinesPerSpan = 5;

/// A point of a glyph in the unit square; x points to the right and y down.
struct Point {
  float x = 0, y = 0;
};

/// A line of the pen through the points: a smooth curve, or straight lines from point to point.
struct Stroke {
  bool smooth = false;
  std::span<const Point> points;
};

/// One way of writing a digit, as several strokes.
using Glyph = std::vector<Stroke>;

// A closed curve ends with its first points again, so that it is also smooth where it closes.
constexpr Point kOval[] = {{.50f, .02f}, {.27f, .12f}, {.17f, .50f}, {.27f, .88f}, {.50f, .98f},
                           {.73f, .88f}, {.83f, .50f}, {.73f, .12f}, {.50f, .02f}, {.36f, .06f}};
constexpr Point kBar[] = {{.50f, .02f}, {.50f, .98f}};
constexpr Point kFlaggedBar[] = {{.30f, .22f}, {.52f, .02f}, {.52f, .98f}};
constexpr Point kBase[] = {{.28f, .98f}, {.76f, .98f}};
constexpr Point kSwan[] = {{.20f, .22f}, {.34f, .06f}, {.56f, .02f}, {.76f, .14f},
                           {.77f, .34f}, {.60f, .58f}, {.40f, .78f}, {.19f, .97f}};
constexpr Point kTwoFoot[] = {{.19f, .97f}, {.82f, .97f}};
constexpr Point kLoopedTwo[] = {{.20f, .20f}, {.38f, .03f}, {.64f, .06f}, {.74f, .26f}, {.62f, .54f}, {.42f, .82f},
                                {.24f, .95f}, {.15f, .86f}, {.26f, .77f}, {.46f, .87f}, {.66f, .96f}, {.86f, .90f}};
constexpr Point kThreeTop[] = {{.22f, .12f}, {.42f, .02f}, {.66f, .07f}, {.74f, .24f}, {.62f, .41f}, {.42f, .47f}};
constexpr Point kThreeBottom[] = {{.42f, .47f}, {.68f, .53f}, {.80f, .72f}, {.70f, .91f}, {.44f, .98f}, {.18f, .88f}};
constexpr Point kFlatTop[] = {{.20f, .04f}, {.76f, .04f}, {.44f, .42f}};
constexpr Point kFlatBottom[] = {{.44f, .42f}, {.70f, .48f}, {.80f, .70f}, {.70f, .90f}, {.44f, .98f}, {.18f, .90f}};
constexpr Point kFourAngle[] = {{.32f, .04f}, {.18f, .58f}, {.84f, .58f}};
constexpr Point kFourStem[] = {{.68f, .06f}, {.64f, .98f}};
constexpr Point kClosedFour[] = {{.66f, .98f}, {.66f, .02f}, {.14f, .66f}, {.88f, .66f}};
constexpr Point kFiveBack[] = {{.76f, .04f}, {.30f, .04f}, {.26f, .44f}};
constexpr Point kFiveBelly[] = {{.26f, .44f}, {.46f, .37f}, {.70f, .44f}, {.80f, .66f},
                                {.68f, .89f}, {.44f, .98f}, {.19f, .88f}};
constexpr Point kSixCurve[] = {{.68f, .03f}, {.46f, .16f}, {.28f, .44f}, {.21f, .72f}, {.32f, .93f}, {.54f, .98f},
                               {.74f, .88f}, {.77f, .69f}, {.62f, .54f}, {.42f, .57f}, {.25f, .72f}};
constexpr Point kSevenAngle[] = {{.17f, .06f}, {.82f, .06f}, {.42f, .98f}};
constexpr Point kSevenBar[] = {{.34f, .50f}, {.78f, .50f}};
constexpr Point kHookedSeven[] = {{.17f, .20f}, {.19f, .06f}, {.80f, .06f}, {.50f, .52f}, {.40f, .98f}};
constexpr Point kEightCurve[] = {{.72f, .13f}, {.50f, .02f}, {.28f, .12f}, {.28f, .32f}, {.50f, .48f},
                                 {.74f, .66f}, {.76f, .88f}, {.50f, .98f}, {.24f, .88f}, {.26f, .66f},
                                 {.50f, .48f}, {.71f, .33f}, {.73f, .14f}};
constexpr Point kNineLoop[] = {{.75f, .17f}, {.54f, .03f}, {.30f, .12f}, {.23f, .32f},
                               {.36f, .49f}, {.58f, .46f}, {.74f, .27f}};
constexpr Point kNineStem[] = {{.76f, .10f}, {.74f, .50f}, {.66f, .98f}};
constexpr Point kNineTail[] = {{.76f, .12f}, {.76f, .50f}, {.70f, .82f}, {.50f, .97f}, {.27f, .88f}};

/// Returns the glyphs of a digit, one of which is chosen at random. A common glyph is listed twice, so that it is
/// chosen twice as often.
const std::vector<Glyph>& glyphs_of(int digit) {
  static const std::vector<Glyph> digits[10] = {
      {{{true, kOval}}},
      {{{false, kBar}}, {{false, kBar}}, {{false, kFlaggedBar}}, {{false, kFlaggedBar}, {false, kBase}}},
      {{{true, kSwan}, {false, kTwoFoot}}, {{true, kLoopedTwo}}},
      {{{true, kThreeTop}, {true, kThreeBottom}},
       {{true, kThreeTop}, {true, kThreeBottom}},
       {{false, kFlatTop}, {true, kFlatBottom}}},
      {{{false, kFourAngle}, {false, kFourStem}}, {{false, kFourAngle}, {false, kFourStem}}, {{false, kClosedFour}}},
      {{{false, kFiveBack}, {true, kFiveBelly}}},
      {{{true, kSixCurve}}},
      {{{false, kSevenAngle}},
       {{false, kSevenAngle}},
       {{false, kSevenAngle}, {false, kSevenBar}},
       {{false, kHookedSeven}}},
      {{{true, kEightCurve}}},
      {{{true, kNineLoop}, {true, kNineStem}}, {{true, kNineLoop}, {true, kNineTail}}},
  };
  return digits[digit];
}

// The random numbers of one digit. Each call returns the next number.
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

// The handwriting of one digit: a random map from the unit square to pixels.
struct Hand {
  float bend_x[3], bend_y[3], xx, xy, yx, yy, centre_x, centre_y;

  explicit Hand(Draws& draws) {
    for (float& weight : bend_x) weight = draws.uniform(-0.22f, 0.22f);
    for (float& weight : bend_y) weight = draws.uniform(-0.18f, 0.18f);
    const float width = draws.uniform(13.f, 21.f), height = draws.uniform(16.f, 20.5f);
    // Mostly negative, because most people write digits that lean to the right.
    const float slant = draws.uniform(-7.f, 2.5f);
    double cosine, sine;
    // A rotation by up to 12 degrees: one full turn, plus or minus 0.035 turns.
    random_detail::cos_sin_turn(draws.uniform(0.965f, 1.035f), &cosine, &sine);
    const float c = static_cast<float>(cosine), s = static_cast<float>(sine);
    xx = c * width;
    xy = c * slant - s * height;
    yx = s * width;
    yy = s * slant + c * height;
    centre_x = draws.uniform(11.8f, 15.2f);
    centre_y = draws.uniform(11.8f, 15.2f);
  }

  Point operator()(Point p) const {
    const float x = p.x - 0.5f, y = p.y - 0.5f;
    const float bent_x = x + bend_x[0] * x * y + bend_x[1] * y * y + bend_x[2] * x * x;
    const float bent_y = y + bend_y[0] * x * y + bend_y[1] * y * y + bend_y[2] * x * x;
    return {xx * bent_x + xy * bent_y + centre_x, yx * bent_x + yy * bent_y + centre_y};
  }
};

// Holds for each pixel the squared distance to the nearest line drawn so far, or reach² if no line is nearer than
// `reach`. A line therefore changes only pixels within `reach` of it.
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

// Returns a point of the curve between b (t = 0) and c (t = 1). a is the point before b, and d the point after c.
Point catmull_rom(Point a, Point b, Point c, Point d, float t) {
  auto mix = [t](float a, float b, float c, float d) {
    return b + 0.5f * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
  };
  return {mix(a.x, b.x, c.x, d.x), mix(a.y, b.y, c.y, d.y)};
}

void draw_stroke(const Stroke& stroke, const Hand& hand, Draws& draws, Paper& paper) {
  constexpr float kTremor = 0.012f;
  std::vector<Point> points;
  for (Point p : stroke.points) {
    p.x += draws.uniform(-kTremor, kTremor);
    p.y += draws.uniform(-kTremor, kTremor);
    points.push_back(hand(p));
  }
  const size_t count = points.size();
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

/// Draws digit number `index` of `seed` into 28x28 bytes in row-major order. Returns the digit, which is its class.
int draw_digit(uint64_t seed, uint64_t index, uint8_t* pixels) {
  Draws draws(seed, index);
  const int digit = draws.below(10);
  const std::vector<Glyph>& glyphs = glyphs_of(digit);
  const Glyph& glyph = glyphs[static_cast<size_t>(draws.below(glyphs.size()))];
  const Hand hand(draws);
  const float radius = draws.uniform(0.7f, 1.7f), softness = draws.uniform(0.9f, 1.6f);
  const float ink = draws.uniform(0.75f, 1.f), noise = draws.uniform(0.f, 0.08f);

  Paper paper(radius + softness);
  for (const Stroke& stroke : glyph) draw_stroke(stroke, hand, draws, paper);
  for (int i = 0; i < kPixels; ++i) {
    const float coverage = std::clamp(0.5f + (radius - paper.distance(i)) / softness, 0.f, 1.f);
    const float value = std::clamp(ink * coverage + draws.uniform(-noise, noise), 0.f, 1.f);
    pixels[i] = static_cast<uint8_t>(value * 255.f + 0.5f);  // NOLINT(bugprone-incorrect-roundings): not negative
  }
  return digit;
}

ImageDataset make(size_t count, uint64_t seed, ImageDataset::Mode mode) {
  constexpr uint64_t kFirstTestIndex = uint64_t{1} << 32;
  GRADUS_CHECK(count < kFirstTestIndex, ValueError, "at most 2^32 - 1 digits, got ", count);
  const uint64_t first = mode == ImageDataset::kTrain ? 0 : kFirstTestIndex;
  const int64_t n = static_cast<int64_t>(count);
  const Array images = Array::empty({n, 1, kSize, kSize}, DType::u8), labels = Array::empty({n}, DType::u8);
  parallel_for(n, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint8_t* const pixels = images.data<uint8_t>() + i * kPixels;
      labels.data<uint8_t>()[i] = static_cast<uint8_t>(draw_digit(seed, first + static_cast<uint64_t>(i), pixels));
    }
  });
  return ImageDataset(images, labels, 10, mode, "synthetic digits");
}

}  // namespace

SyntheticDigits::SyntheticDigits(size_t count, uint64_t seed, Mode mode) : ImageDataset(make(count, seed, mode)) {}

}  // namespace gradus::data::datasets
