// Wrong calls: Convolution.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls convolution("convolution", {
    wrong<ShapeError>("conv1d", {"(4, 2)"}, [] { conv1d(f({2, 3, 5}), f({4, 2})); }),
    wrong<ShapeError>("conv1d", {"(4,)"}, [] { conv1d(f({2, 3, 5}), f({4})); }),
    wrong<Error>("conv1d", {"the tensor is undefined"}, [] { conv1d(f({2, 3, 5}), Tensor()); }),
    wrong<ShapeError>("conv1d", {"(5,)"}, [] { conv1d(f({5}), f({4, 3, 2})); }),
    wrong<ShapeError>("conv2d", {"3", "(8, 4, 32, 32)"}, [] { conv2d(f({8, 4, 32, 32}), f({5, 3, 3, 3})); }),
    wrong<ValueError>("", {"'valid'", "'same'", "'full'"}, [] { conv2d(f({1, 1, 5, 5}), f({1, 1, 3, 3}), {}, 1, "full"); }),
    wrong<ValueError>("", {"one or two numbers", "(1, 2, 3)"}, [] { conv2d(f({1, 1, 5, 5}), f({1, 1, 3, 3}), {}, Shape{1, 2, 3}); }),
    wrong<ShapeError>("conv2d", {"(32, 32)"}, [] { conv2d(f({32, 32}), f({5, 4, 3, 3})); }),
    wrong<ShapeError>("conv2d", {"5", "(1, 1, 3, 3)"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 5, 5})); }),
    wrong<ShapeError>("conv2d", {"(2,)", "(5, 3, 3, 3)"}, [] { conv2d(f({1, 3, 5, 5}), f({5, 3, 3, 3}), f({2})); }),
    wrong<ShapeError>("conv2d", {"groups", "2"}, [] { conv2d(f({1, 4, 5, 5}), f({5, 2, 3, 3}), {}, 1, 0, 1, 2); }),
    wrong<ShapeError>("conv2d", {"4", "3"}, [] { conv2d(f({1, 4, 5, 5}), f({6, 2, 3, 3}), {}, 1, 0, 1, 3); }),
    wrong<DTypeError>("conv2d", {"float32", "float64"}, [] { conv2d(f({1, 1, 3, 3}), ones({1, 1, 3, 3}, kDouble)); }),
    wrong<DTypeError>("conv2d", {"bias", "float32", "float64"}, [] { conv2d(f({1, 1, 3, 3}), f({2, 1, 3, 3}), ones({2}, kDouble)); }),
    wrong<DTypeError>("conv2d", {"bias", "int64"}, [] { conv2d(f({1, 1, 3, 3}), f({2, 1, 3, 3}), i({2})); }),
    wrong<DTypeError>("conv2d_relu", {"bias", "float16"}, [] { conv2d_relu(f({1, 1, 3, 3}), f({2, 1, 3, 3}), ones({2}, kHalf)); }),
    wrong<DTypeError>("conv1d", {"bias", "float64"}, [] { conv1d(f({1, 1, 3}), f({2, 1, 3}), ones({2}, kDouble)); }),
    wrong<DTypeError>("conv_transpose2d", {"bias", "float64"}, [] { conv_transpose2d(f({1, 1, 3, 3}), f({1, 2, 3, 3}), ones({2}, kDouble)); }),
    wrong<DTypeError>("conv_transpose2d", {"bias", "int64"}, [] { conv_transpose2d(f({1, 1, 3, 3}), f({1, 2, 3, 3}), i({2})); }),
    wrong<DTypeError>("conv_transpose1d", {"bias", "bfloat16"}, [] { conv_transpose1d(f({1, 1, 3}), f({1, 2, 3}), ones({2}, kBFloat16)); }),
    wrong<DTypeError>("conv2d", {"int64"}, [] { conv2d(i({1, 1, 3, 3}), i({1, 1, 3, 3})); }),
    wrong<ValueError>("conv2d", {"stride", "0"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 1, 1}), {}, 0); }),
    wrong<ValueError>("conv2d", {"padding", "-1"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 1, 1}), {}, 1, -1); }),
    wrong<ValueError>("conv2d", {"padding", "2199023255552"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 3, 3}), {}, 1, int64_t{1} << 41, int64_t{1} << 41); }),
    wrong<ShapeError>("conv2d", {"9223372036854775807"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 3, 3}), {}, 1, 0, INT64_MAX); }),
    wrong<ShapeError>("conv2d", {"9223372036854775807"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 3, 3}), {}, 1, kSame, INT64_MAX); }),
    wrong<ValueError>("conv2d", {"dilation", "0"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 1, 1}), {}, 1, 0, 0); }),
    wrong<ValueError>("conv2d", {"groups", "0"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 1, 1}), {}, 1, 0, 1, 0); }),
    wrong<Error>("conv2d", {"undefined"}, [] { conv2d(Tensor(), f({1, 1, 1, 1})); }),
    wrong<Error>("conv2d", {"undefined"}, [] { conv2d(f({1, 1, 1, 1}), Tensor()); }),
    wrong<ValueError>("conv2d", {"same", "2"}, [] { conv2d(f({1, 1, 4, 4}), f({1, 1, 3, 3}), {}, 2, kSame); }),
    wrong<ShapeError>("conv2d_relu", {"3", "(8, 4, 32, 32)"}, [] { conv2d_relu(f({8, 4, 32, 32}), f({5, 3, 3, 3})); }),
    wrong<DTypeError>("conv2d_relu", {"float64", "float32"}, [] { conv2d_relu(ones({1, 1, 3, 3}, kDouble), f({1, 1, 3, 3})); }),
    wrong<ShapeError>("conv1d", {"3", "(2, 4, 8)"}, [] { conv1d(f({2, 4, 8}), f({5, 3, 3})); }),
    wrong<ShapeError>("conv1d", {"(2, 4, 8, 8)"}, [] { conv1d(f({2, 4, 8, 8}), f({5, 4, 3})); }),
    wrong<ShapeError>("conv1d", {"(2, 3, 4, 5)"}, [] { conv1d(f({2, 3, 4, 5}), f({4, 3, 3})); }),
    wrong<ShapeError>("conv1d", {"(4, 3, 3, 3)"}, [] { conv1d(f({2, 3, 4}), f({4, 3, 3, 3})); }),
    wrong<ShapeError>("conv1d", {"5", "3"}, [] { conv1d(f({2, 3, 8}), f({4, 5, 3})); }),
    wrong<ShapeError>("conv_transpose2d", {"4", "(2, 3, 8, 8)"}, [] { conv_transpose2d(f({2, 3, 8, 8}), f({4, 5, 3, 3})); }),
    wrong<ValueError>("conv_transpose2d", {"stride", "0"}, [] { conv_transpose2d(f({2, 4, 8, 8}), f({4, 5, 3, 3}), {}, 0); }),
    wrong<ShapeError>("conv_transpose2d", {"4", "(2, 3, 5, 5)"}, [] { conv_transpose2d(f({2, 3, 5, 5}), f({4, 3, 3, 3})); }),
    wrong<ShapeError>("conv_transpose2d", {"(5,)", "(6,)"}, [] { conv_transpose2d(f({2, 3, 5, 5}), f({3, 6, 3, 3}), f({5})); }),
    wrong<ShapeError>("conv_transpose2d", {"padding", "4"}, [] { conv_transpose2d(f({1, 1, 2, 2}), f({1, 1, 3, 3}), {}, 1, 4); }),
    wrong<ShapeError>("conv_transpose2d", {"(3, 3)"}, [] { conv_transpose2d(f({3, 3}), f({1, 1, 3, 3})); }),
    wrong<DTypeError>("conv_transpose2d", {"float32", "float64"}, [] { conv_transpose2d(f({1, 1, 3, 3}), ones({1, 1, 3, 3}, kDouble)); }),
    wrong<ValueError>("conv_transpose2d", {"output_padding", "2"}, [] { conv_transpose2d(f({1, 1, 4, 4}), f({1, 1, 3, 3}), {}, 2, 0, 2); }),
    wrong<ValueError>("conv_transpose2d", {"stride", "0"}, [] { conv_transpose2d(f({1, 1, 4, 4}), f({1, 1, 3, 3}), {}, 0); }),
    wrong<ShapeError>("conv_transpose2d", {"stride 9223372036854775807"}, [] { conv_transpose2d(f({1, 1, 3, 3}), f({1, 1, 3, 3}), {}, INT64_MAX); }),
    wrong<ValueError>("conv_transpose2d", {"padding", "2199023255552"}, [] { conv_transpose2d(f({1, 1, 3, 3}), f({1, 1, 3, 3}), {}, 1, int64_t{1} << 41); }),
    wrong<ShapeError>("conv_transpose1d", {"(3,)"}, [] { conv_transpose1d(f({3}), f({1, 1, 3})); }),
    wrong<ShapeError>("conv_transpose2d", {"(3, 4, 3, 3)", "3", "groups = 2"}, [] { conv_transpose2d(f({1, 3, 5, 5}), f({3, 4, 3, 3}), {}, 1, 0, 0, 2); }),
    wrong<ShapeError>("conv_transpose2d", {"groups = 0"}, [] { conv_transpose2d(f({1, 3, 5, 5}), f({3, 4, 3, 3}), {}, 1, 0, 0, 0); }),
    wrong<ValueError>("conv_transpose2d", {"1", "0"}, [] { conv_transpose2d(f({1, 3, 5, 5}), f({3, 4, 3, 3}), {}, 1, 0, 0, 1, 0); }),
    wrong<ValueError>("conv_transpose2d", {"negative", "-1"}, [] { conv_transpose2d(f({1, 3, 5, 5}), f({3, 4, 3, 3}), {}, 1, -1); }),
    wrong<ValueError>("conv_transpose2d", {"output_padding", "-1"}, [] { conv_transpose2d(f({1, 3, 5, 5}), f({3, 4, 3, 3}), {}, 1, 0, -1); }),
    wrong<ValueError>("conv_transpose2d", {"output_padding", "3"}, [] { conv_transpose2d(f({1, 3, 5, 5}), f({3, 4, 3, 3}), {}, 2, 0, 3, 1, 3); }),
    wrong<ShapeError>("conv_transpose2d", {"empty", "2"}, [] { conv_transpose2d(f({1, 1, 4, 2}), f({1, 1, 3, 3}), {}, 1, 2); }),
    wrong<ShapeError>("conv_transpose1d", {"groups = 2"}, [] { conv_transpose1d(f({1, 3, 5}), f({3, 4, 3}), {}, 1, 0, 0, 2); }),
    wrong<ShapeError>("conv_transpose1d", {"too large"}, [] { conv_transpose1d(f({1, 1, 2}), f({1, 1, 1}), {}, (int64_t{1} << 40) - 1); }),
    wrong<ShapeError>("conv_transpose2d", {"weight", "(3, 3, 3)"}, [] { conv_transpose2d(f({1, 3, 5, 5}), f({3, 3, 3})); }),
});
// clang-format on

}  // namespace
