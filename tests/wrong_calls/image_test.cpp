// Wrong calls: Images: resizing, padding, windows, colours.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls images("images", {
    wrong<ShapeError>("rgb_to_grayscale", {"(2, 4, 5, 5)"}, [] { rgb_to_grayscale(f({2, 4, 5, 5})); }),
    wrong<DTypeError>("rgb_to_grayscale", {"uint8"}, [] { rgb_to_grayscale(ones({3, 2, 2}, kByte)); }),
    wrong<ShapeError>("interpolate", {"3 numbers", "(1, 1, 3, 3)"}, [] { interpolate(f({1, 1, 3, 3}), IntArrayRef{1, 2, 3}); }),
    wrong<ShapeError>("interpolate", {"(1, 1, 3, 3)", "0"}, [] { interpolate(f({1, 1, 3, 3}), IntArrayRef{0, 2}); }),
    wrong<ShapeError>("interpolate", {"bilinear", "(2, 3, 4)"}, [] { interpolate(f({2, 3, 4}), IntArrayRef{2}, {}, kBilinear); }),
    wrong<ShapeError>("interpolate", {"linear", "(1, 2, 3, 4)"}, [] { interpolate(f({1, 2, 3, 4}), IntArrayRef{2}, {}, InterpolateMode::linear); }),
    wrong<ShapeError>("interpolate", {"3", "(1, 2, 3, 4)"}, [] { interpolate(f({1, 2, 3, 4}), IntArrayRef{2, 2, 2}); }),
    wrong<ShapeError>("interpolate", {"0", "(1, 2, 3, 4)"}, [] { interpolate(f({1, 2, 3, 4}), IntArrayRef{0, 2}); }),
    wrong<ShapeError>("interpolate", {"too long"}, [] { interpolate(f({1, 1, 2, 2}), {}, std::vector<double>{1e9}); }),
    wrong<DTypeError>("interpolate", {"uint8"}, [] { interpolate(ones({1, 1, 4, 4}, kByte), IntArrayRef{2}); }),
    wrong<ValueError>("interpolate", {"either"}, [] { interpolate(f({1, 1, 4, 4}), {}); }),
    wrong<ValueError>("interpolate", {"both"}, [] { interpolate(f({1, 1, 4, 4}), IntArrayRef{2}, std::vector<double>{2}); }),
    wrong<ValueError>("interpolate", {"align_corners", "nearest"}, [] { interpolate(f({1, 1, 4, 4}), IntArrayRef{2}, {}, kNearest, true); }),
    wrong<ValueError>("interpolate", {"scale_factor", "-1"}, [] { interpolate(f({1, 1, 4, 4}), {}, std::vector<double>{-1}); }),
    wrong<ShapeError>("pad", {"(-2, -2)", "(3,)"}, [] { pad(f({3}), {-2, -2}); }),
    wrong<ShapeError>("pad", {"(3, 0)", "(1, 3)"}, [] { pad(f({1, 3}), {3, 0}, PadMode::reflect); }),
    wrong<Error>("pad", {"(1, 1, 1)"}, [] { pad(f({1, 3}), {1, 1, 1}); }),
    wrong<ShapeError>("pad", {"(1, 2, 3)", "(2, 3)"}, [] { pad(f({2, 3}), {1, 2, 3}); }),
    wrong<ShapeError>("pad", {"(1, 1, 1, 1)", "(3,)"}, [] { pad(f({3}), {1, 1, 1, 1}); }),
    wrong<ShapeError>("pad", {"-4", "(2, 3)"}, [] { pad(f({2, 3}), {-4, 2}); }),
    wrong<ShapeError>("pad", {"3", "(1, 2, 3)"}, [] { pad(f({1, 2, 3}), {3, 0}, kReflect); }),
    wrong<ShapeError>("pad", {"4", "(1, 2, 3)"}, [] { pad(f({1, 2, 3}), {4, 0}, kCircular); }),
    wrong<ShapeError>("pad", {"(4, -2)", "at most 3", "(1, 1, 5)"}, [] { pad(f({1, 1, 5}), {4, -2}, kCircular); }),
    wrong<ShapeError>("pad", {"9223372036854775807"}, [] { pad(f({INT64_MAX, 0}), {0, 0, 1, 1}); }),
    wrong<ShapeError>("pad", {"(1, 1)", "(3,)"}, [] { pad(f({3}), {1, 1}, kReflect); }),
    wrong<ShapeError>("pad", {"1099511627776"}, [] { pad(f({1, 1, 3}), {int64_t{1} << 40, 0}, kReplicate); }),
    wrong<ShapeError>("pad", {"(-1099511627776, 0) is too large"}, [] { pad(f({1, 1, 3}), {-(int64_t{1} << 40), 0}); }),
    wrong<ShapeError>("pad", {"(0, 1099511627776) is too large"}, [] { pad(f({1, 1, 3}), {0, int64_t{1} << 40}); }),
    wrong<DTypeError>("pad", {"int64"}, [] { pad(i({1, 1, 4}), {1, 1}, kReflect); }),
    wrong<Error>("pixel_shuffle", {"(1, 3, 2, 2)", "2"}, [] { pixel_shuffle(f({1, 3, 2, 2}), 2); }),
    wrong<ShapeError>("pixel_shuffle", {"(1, 3, 2, 2)", "4"}, [] { pixel_shuffle(f({1, 3, 2, 2}), 2); }),
    wrong<ValueError>("pixel_shuffle", {"0"}, [] { pixel_shuffle(f({1, 4, 2, 2}), 0); }),
    wrong<ShapeError>("pixel_shuffle", {"4294967296"}, [] { pixel_shuffle(f({1, 4, 2, 2}), int64_t{1} << 32); }),
    wrong<ShapeError>("pixel_shuffle", {"3037000500"}, [] { pixel_shuffle(f({1, 4, 2, 2}), 3037000500); }),
    wrong<ShapeError>("pixel_unshuffle", {"4294967296"}, [] { pixel_unshuffle(f({1, 4, 0, 0}), int64_t{1} << 32); }),
    wrong<ShapeError>("fold", {"4294967296 * 4294967296"}, [] { fold(f({1, 4, 1}), {int64_t{1} << 40, int64_t{1} << 40}, {int64_t{1} << 32, int64_t{1} << 32}); }),
    wrong<ValueError>("unfold", {"padding", "4611686018427387904"}, [] { unfold(f({1, 1, 3, 3}), 1, 1, int64_t{1} << 62); }),
    wrong<ShapeError>("unfold", {"(2, 3)"}, [] { unfold(f({2, 3}), 2); }),
    wrong<ShapeError>("unfold", {"(5, 5)", "3 x 3"}, [] { unfold(f({1, 1, 3, 3}), 5); }),
    wrong<ValueError>("unfold", {"stride", "0"}, [] { unfold(f({1, 1, 4, 4}), 2, 1, 0, 0); }),
    wrong<ShapeError>("fold", {"(1, 5, 4)", "4"}, [] { fold(f({1, 5, 4}), 3, 2); }),
    wrong<ShapeError>("fold", {"(1, 4, 5)", "2 x 2"}, [] { fold(f({1, 4, 5}), 3, 2); }),
    wrong<ShapeError>("pixel_unshuffle", {"(1, 3, 3, 2)", "2"}, [] { pixel_unshuffle(f({1, 3, 3, 2}), 2); }),
    wrong<ShapeError>("channel_shuffle", {"(1, 3, 2, 2)", "2"}, [] { channel_shuffle(f({1, 3, 2, 2}), 2); }),
    wrong<ShapeError>("pixel_shuffle", {"(4, 4)"}, [] { pixel_shuffle(f({4, 4}), 2); }),
    wrong<ShapeError>("pixel_unshuffle", {"(4,)"}, [] { pixel_unshuffle(f({4}), 2); }),
    wrong<ValueError>("pixel_unshuffle", {"downscale_factor", "0"}, [] { pixel_unshuffle(f({1, 3, 4, 4}), 0); }),
    wrong<ShapeError>("pixel_unshuffle", {"2 x 3"}, [] { pixel_unshuffle(f({1, 3, 2, 3}), 2); }),
    wrong<ShapeError>("channel_shuffle", {"(4, 4)"}, [] { channel_shuffle(f({4, 4}), 2); }),
    wrong<ValueError>("channel_shuffle", {"groups", "0"}, [] { channel_shuffle(f({1, 4, 2}), 0); }),
    wrong<ShapeError>("fold", {"(4,)"}, [] { fold(f({4}), 3, 2); }),
    wrong<ShapeError>("fold", {"(1, 1, 4, 4)"}, [] { fold(f({1, 1, 4, 4}), 3, 2); }),
    wrong<ShapeError>("interpolate", {"scale_factor 1e+13", "too large"}, [] { interpolate(f({1, 1, 2, 2}), {}, std::vector<double>{1e13}); }),
    wrong<ValueError>("interpolate", {"scale_factor", "inf"}, [] { interpolate(f({1, 1, 2, 2}), {}, std::vector<double>{1, INFINITY}); }),
});
// clang-format on

}  // namespace
