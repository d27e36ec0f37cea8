// Wrong calls: Pooling.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls pooling("pooling", {
    wrong<ShapeError>("max_pool2d", {"(1, 1, 3, 3)"}, [] { max_pool2d(f({1, 1, 3, 3}), 5); }),
    wrong<ShapeError>("max_pool2d", {"(3, 3)"}, [] { max_pool2d(f({3, 3}), 2); }),
    wrong<DTypeError>("max_pool2d", {"bool"}, [] { max_pool2d(f({1, 1, 2, 2}) > 0, 2); }),
    wrong<ValueError>("max_pool2d", {"kernel", "0"}, [] { max_pool2d(f({1, 1, 3, 3}), 0); }),
    wrong<ValueError>("max_pool2d", {"padding", "2"}, [] { max_pool2d(f({1, 1, 3, 3}), 2, 2, 2); }),
    wrong<ValueError>("max_pool2d", {"stride", "0"}, [] { max_pool2d(f({1, 1, 3, 3}), 2, 0); }),
    wrong<ValueError>("max_pool2d", {"dilation", "0"}, [] { max_pool2d(f({1, 1, 3, 3}), 2, 2, 0, 0); }),
    wrong<ValueError>("max_pool2d", {"9223372036854775807"}, [] { max_pool2d(f({1, 1, 3, 3}), INT64_MAX, 1, INT64_MAX / 2); }),
    wrong<ValueError>("max_pool2d", {"9223372036854775807"}, [] { max_pool2d(f({1, 1, 3, 3}), 1, INT64_MAX); }),
    wrong<Error>("max_pool2d", {"undefined"}, [] { max_pool2d(Tensor(), 2); }),
    wrong<ShapeError>("max_pool1d", {"(1, 1, 3, 3)"}, [] { max_pool1d(f({1, 1, 3, 3}), 2); }),
    wrong<ShapeError>("max_pool1d", {"4 columns", "has 3"}, [] { max_pool1d(f({1, 1, 3}), 4); }),
    wrong<ShapeError>("avg_pool2d", {"(3, 3)"}, [] { avg_pool2d(f({3, 3}), 2); }),
    wrong<ShapeError>("avg_pool2d", {"5", "(1, 1, 3, 3)"}, [] { avg_pool2d(f({1, 1, 3, 3}), 5); }),
    wrong<ValueError>("avg_pool2d", {"padding", "2"}, [] { avg_pool2d(f({1, 1, 3, 3}), 2, 2, 2); }),
    wrong<ValueError>("avg_pool2d", {"divisor_override", "0"}, [] { avg_pool2d(f({1, 1, 3, 3}), 2, 2, 0, false, true, 0); }),
    wrong<ShapeError>("avg_pool2d", {"(1, 1, 1, 3, 3)"}, [] { avg_pool2d(f({1, 1, 1, 3, 3}), 2); }),
    wrong<ShapeError>("avg_pool2d", {"7", "(1, 1, 9, 3)"}, [] { avg_pool2d(f({1, 1, 9, 3}), {2, 7}); }),
    wrong<DTypeError>("avg_pool2d", {"int64"}, [] { avg_pool2d(i({1, 1, 4, 4}), 2); }),
    wrong<ValueError>("avg_pool2d", {"kernel", "0"}, [] { avg_pool2d(f({1, 1, 4, 4}), 0); }),
    wrong<ValueError>("avg_pool2d", {"padding", "2"}, [] { avg_pool2d(f({1, 1, 4, 4}), 2, 2, 2); }),
    wrong<ValueError>("avg_pool2d", {"divisor"}, [] { avg_pool2d(f({1, 1, 4, 4}), 2, 2, 0, false, true, 0); }),
    wrong<ShapeError>("adaptive_avg_pool2d", {"(3, 3)"}, [] { adaptive_avg_pool2d(f({3, 3}), 1); }),
    wrong<ValueError>("adaptive_avg_pool2d", {"-1"}, [] { adaptive_avg_pool2d(f({1, 1, 3, 3}), -1); }),
    wrong<DTypeError>("adaptive_avg_pool2d", {"int64"}, [] { adaptive_avg_pool2d(i({1, 1, 3, 3}), 1); }),
    wrong<ShapeError>("adaptive_avg_pool2d", {"(1, 2, 0, 3)"}, [] { adaptive_avg_pool2d(f({1, 2, 0, 3}), 2); }),
    wrong<ShapeError>("adaptive_avg_pool2d", {"too long"}, [] { adaptive_avg_pool2d(f({1, 1, 2, 2}), int64_t{1} << 40); }),
    wrong<DTypeError>("adaptive_avg_pool2d", {"int64"}, [] { adaptive_avg_pool2d(i({1, 1, 4, 4}), 2); }),
    wrong<ValueError>("adaptive_avg_pool2d", {"-1"}, [] { adaptive_avg_pool2d(f({1, 1, 4, 4}), -1); }),
    wrong<ShapeError>("avg_pool1d", {"(1, 1, 3, 3)"}, [] { avg_pool1d(f({1, 1, 3, 3}), 2); }),
    wrong<ShapeError>("avg_pool2d", {"4611686018427387904"}, [] { avg_pool2d(f({0, 1, int64_t{1} << 62, 1}), 3, 1, 1); }),
    wrong<ShapeError>("max_pool2d", {"2147483647"}, [] { max_pool2d(f({1, 1, 3, 3}), INT32_MAX, 1, INT32_MAX / 2); }),
    wrong<ShapeError>("adaptive_max_pool2d", {"(4, 4)"}, [] { adaptive_max_pool2d(f({4, 4}), 2); }),
    wrong<ShapeError>("adaptive_avg_pool2d", {"too long"}, [] { adaptive_avg_pool2d(f({1, 1, 2, 2}), {int64_t{1} << 40, 1}); }),
    wrong<ShapeError>("adaptive_avg_pool2d", {"too long"}, [] { adaptive_avg_pool2d(f({1, 1, 2, 2}), {1, int64_t{1} << 40}); }),
    wrong<ValueError>("adaptive_max_pool2d", {"(-1, 2)"}, [] { adaptive_max_pool2d(f({1, 1, 4, 4}), {-1, 2}); }),
    wrong<ValueError>("adaptive_max_pool2d", {"(2, -1)"}, [] { adaptive_max_pool2d(f({1, 1, 4, 4}), {2, -1}); }),
    wrong<ShapeError>("adaptive_max_pool2d", {"no pixels", "(1, 2, 0, 3)"}, [] { adaptive_max_pool2d(f({1, 2, 0, 3}), 1); }),
    wrong<ShapeError>("adaptive_max_pool2d", {"no pixels", "(1, 2, 3, 0)"}, [] { adaptive_max_pool2d(f({1, 2, 3, 0}), 1); }),
    wrong<ShapeError>("adaptive_avg_pool2d", {"no pixels", "(1, 2, 3, 0)"}, [] { adaptive_avg_pool2d(f({1, 2, 3, 0}), {1, 2}); }),
    wrong<ShapeError>("adaptive_avg_pool2d", {"no pixels", "(1, 2, 3, 0)"}, [] { adaptive_avg_pool2d(f({1, 2, 3, 0}), {2, 1}); }),
    wrong<ShapeError>("adaptive_avg_pool1d", {"no pixels", "(1, 2, 0)"}, [] { adaptive_avg_pool1d(f({1, 2, 0}), 2); }),
    wrong<ShapeError>("adaptive_max_pool1d", {"no pixels", "(1, 2, 0)"}, [] { adaptive_max_pool1d(f({1, 2, 0}), 1); }),
    wrong<DTypeError>("adaptive_max_pool2d", {"int64"}, [] { adaptive_max_pool2d(i({1, 1, 4, 4}), 2); }),
    wrong<ShapeError>("adaptive_max_pool1d", {"(2, 2, 2, 2)"}, [] { adaptive_max_pool1d(f({2, 2, 2, 2}), 1); }),
});
// clang-format on

}  // namespace
