#include <gradus/data/datasets/digit_strokes.h>

namespace gradus::data {
namespace {

// Closed curves repeat their first points, so that the curve is smooth where it closes.
constexpr Point kOval[] = {{.50f, .02f}, {.27f, .12f}, {.17f, .50f}, {.27f, .88f}, {.50f, .98f},
                           {.73f, .88f}, {.83f, .50f}, {.73f, .12f}, {.50f, .02f}, {.36f, .06f}};
constexpr Stroke kZeroStrokes[] = {{true, kOval}};

constexpr Point kBar[] = {{.50f, .02f}, {.50f, .98f}};
constexpr Point kFlaggedBar[] = {{.30f, .22f}, {.52f, .02f}, {.52f, .98f}};
constexpr Point kBase[] = {{.28f, .98f}, {.76f, .98f}};
constexpr Stroke kPlainOne[] = {{false, kBar}};
constexpr Stroke kFlaggedOne[] = {{false, kFlaggedBar}};
constexpr Stroke kStandingOne[] = {{false, kFlaggedBar}, {false, kBase}};

constexpr Point kSwan[] = {{.20f, .22f}, {.34f, .06f}, {.56f, .02f}, {.76f, .14f},
                           {.77f, .34f}, {.60f, .58f}, {.40f, .78f}, {.19f, .97f}};
constexpr Point kTwoFoot[] = {{.19f, .97f}, {.82f, .97f}};
constexpr Point kLoopedTwo[] = {{.20f, .20f}, {.38f, .03f}, {.64f, .06f}, {.74f, .26f}, {.62f, .54f}, {.42f, .82f},
                                {.24f, .95f}, {.15f, .86f}, {.26f, .77f}, {.46f, .87f}, {.66f, .96f}, {.86f, .90f}};
constexpr Stroke kFlatTwo[] = {{true, kSwan}, {false, kTwoFoot}};
constexpr Stroke kCurlyTwo[] = {{true, kLoopedTwo}};

constexpr Point kThreeTop[] = {{.22f, .12f}, {.42f, .02f}, {.66f, .07f}, {.74f, .24f}, {.62f, .41f}, {.42f, .47f}};
constexpr Point kThreeBottom[] = {{.42f, .47f}, {.68f, .53f}, {.80f, .72f}, {.70f, .91f}, {.44f, .98f}, {.18f, .88f}};
constexpr Point kFlatTop[] = {{.20f, .04f}, {.76f, .04f}, {.44f, .42f}};
constexpr Point kFlatBottom[] = {{.44f, .42f}, {.70f, .48f}, {.80f, .70f}, {.70f, .90f}, {.44f, .98f}, {.18f, .90f}};
constexpr Stroke kRoundThree[] = {{true, kThreeTop}, {true, kThreeBottom}};
constexpr Stroke kFlatThree[] = {{false, kFlatTop}, {true, kFlatBottom}};

constexpr Point kFourAngle[] = {{.32f, .04f}, {.18f, .58f}, {.84f, .58f}};
constexpr Point kFourStem[] = {{.68f, .06f}, {.64f, .98f}};
constexpr Point kClosedFour[] = {{.66f, .98f}, {.66f, .02f}, {.14f, .66f}, {.88f, .66f}};
constexpr Stroke kOpenFour[] = {{false, kFourAngle}, {false, kFourStem}};
constexpr Stroke kTriangleFour[] = {{false, kClosedFour}};

constexpr Point kFiveBack[] = {{.76f, .04f}, {.30f, .04f}, {.26f, .44f}};
constexpr Point kFiveBelly[] = {{.26f, .44f}, {.46f, .37f}, {.70f, .44f}, {.80f, .66f},
                                {.68f, .89f}, {.44f, .98f}, {.19f, .88f}};
constexpr Stroke kFiveStrokes[] = {{false, kFiveBack}, {true, kFiveBelly}};

constexpr Point kSixCurve[] = {{.68f, .03f}, {.46f, .16f}, {.28f, .44f}, {.21f, .72f}, {.32f, .93f}, {.54f, .98f},
                               {.74f, .88f}, {.77f, .69f}, {.62f, .54f}, {.42f, .57f}, {.25f, .72f}};
constexpr Stroke kSixStrokes[] = {{true, kSixCurve}};

constexpr Point kSevenAngle[] = {{.17f, .06f}, {.82f, .06f}, {.42f, .98f}};
constexpr Point kSevenBar[] = {{.34f, .50f}, {.78f, .50f}};
constexpr Point kHookedSeven[] = {{.17f, .20f}, {.19f, .06f}, {.80f, .06f}, {.50f, .52f}, {.40f, .98f}};
constexpr Stroke kPlainSeven[] = {{false, kSevenAngle}};
constexpr Stroke kBarredSeven[] = {{false, kSevenAngle}, {false, kSevenBar}};
constexpr Stroke kFlaggedSeven[] = {{false, kHookedSeven}};

constexpr Point kEightCurve[] = {{.72f, .13f}, {.50f, .02f}, {.28f, .12f}, {.28f, .32f}, {.50f, .48f},
                                 {.74f, .66f}, {.76f, .88f}, {.50f, .98f}, {.24f, .88f}, {.26f, .66f},
                                 {.50f, .48f}, {.71f, .33f}, {.73f, .14f}};
constexpr Stroke kEightStrokes[] = {{true, kEightCurve}};

constexpr Point kNineLoop[] = {{.75f, .17f}, {.54f, .03f}, {.30f, .12f}, {.23f, .32f},
                               {.36f, .49f}, {.58f, .46f}, {.74f, .27f}};
constexpr Point kNineStem[] = {{.76f, .10f}, {.74f, .50f}, {.66f, .98f}};
constexpr Point kNineTail[] = {{.76f, .12f}, {.76f, .50f}, {.70f, .82f}, {.50f, .97f}, {.27f, .88f}};
constexpr Stroke kStraightNine[] = {{true, kNineLoop}, {true, kNineStem}};
constexpr Stroke kCurvedNine[] = {{true, kNineLoop}, {true, kNineTail}};

constexpr Glyph kZero[] = {kZeroStrokes};
constexpr Glyph kOne[] = {kPlainOne, kPlainOne, kFlaggedOne, kStandingOne};
constexpr Glyph kTwo[] = {kFlatTwo, kCurlyTwo};
constexpr Glyph kThree[] = {kRoundThree, kRoundThree, kFlatThree};
constexpr Glyph kFour[] = {kOpenFour, kOpenFour, kTriangleFour};
constexpr Glyph kFive[] = {kFiveStrokes};
constexpr Glyph kSix[] = {kSixStrokes};
constexpr Glyph kSeven[] = {kPlainSeven, kPlainSeven, kBarredSeven, kFlaggedSeven};
constexpr Glyph kEight[] = {kEightStrokes};
constexpr Glyph kNine[] = {kStraightNine, kCurvedNine};

}  // namespace

std::span<const Glyph> glyphs_of(int digit) {
  static constexpr std::span<const Glyph> digits[10] = {kZero, kOne, kTwo,   kThree, kFour,
                                                        kFive, kSix, kSeven, kEight, kNine};
  return digits[digit];
}

}  // namespace gradus::data
