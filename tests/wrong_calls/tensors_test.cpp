// Wrong calls: Tensors: making, filling, copying.
#include <cmath>

#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls tensors("tensors", {
    wrong<DTypeError>("logspace", {"bool"}, [] { logspace(0, 1, 3, 10, kBool); }),
    wrong<ValueError>("eye", {"-1"}, [] { eye(2, -1); }),
    wrong<ValueError>("eye", {"-1"}, [] { eye(-1); }),
    wrong<ValueError>("tril_indices", {"-1"}, [] { tril_indices(-1, 2); }),
    wrong<ShapeError>("copy_", {"(2, 3)", "(4,)"}, [] { f({2, 3}).copy_(f({4})); }),
    wrong<Error>("copy_", {"undefined"}, [] { f({2}).copy_(Tensor()); }),
    wrong<ShapeError>("item", {"(2, 3)"}, [] { f({2, 3}).item<float>(); }),
    wrong<Error>("item", {"undefined"}, [] { Tensor().item<float>(); }),
    wrong<ShapeError>("zeros", {"-1"}, [] { zeros({-1}); }),
    wrong<Error>("zeros", {"1099511627776"}, [] { zeros({int64_t{1} << 40, int64_t{1} << 40}); }),
    wrong<ShapeError>("", {"9", "8 dimensions"}, [] { zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}); }),
    wrong<ShapeError>("tensor", {"2", "1"}, [] { tensor({{1., 2.}, {3.}}); }).found_outside_of_operators(),
    wrong<DTypeError>("uniform_", {"int64"}, [] { i({2}).uniform_(); }),
    wrong<ValueError>("uniform_", {"2", "1"}, [] { f({3}).uniform_(2, 1); }),
    wrong<DTypeError>("rand", {"int64"}, [] { rand({2}, kLong); }),
    wrong<ValueError>("arange", {"0"}, [] { arange(0, 3, 0); }),
    wrong<ValueError>("arange", {"step must not be 0"}, [] { arange(2, 2, 0); }),
    wrong<ValueError>("arange", {"step must not be 0"}, [] { arange(0.5, 3.0, 0.0); }),
    wrong<ValueError>("arange", {"step must not be 0"}, [] { arange(0.5, 0.5, 0.0); }),
    wrong<ValueError>("arange", {"must be finite", "inf"}, [] { arange(0.0, INFINITY); }),
    wrong<ValueError>("arange", {"must be finite", "nan"}, [] { arange(0.0, 1.0, NAN); }),
    wrong<ValueError>("arange", {"step -0.5 does not lead from 0 to 1"}, [] { arange(0.0, 1.0, -0.5); }),
    wrong<ValueError>("arange", {"step 0.5 does not lead from 1 to 0"}, [] { arange(1.0, 0.0, 0.5); }),
    wrong<ValueError>("arange", {"1e+300", "too many elements"}, [] { arange(0.0, 1e300, 1.0); }),
    wrong<ValueError>("arange", {"0", "int64"}, [] { arange(0, 1e20, 1, kLong); }),
    wrong<ValueError>("arange", {"1e+300", "int64"}, [] { arange(1e300, 3e300, 1e300, kInt); }),
    wrong<ValueError>("arange", {"step must not be 0"}, [] { arange(0, 5, 0.5, kLong); }),
    wrong<ValueError>("arange", {"-9223372036854775808", "9223372036854775807"}, [] { arange(INT64_MIN, INT64_MAX); }),
    wrong<ValueError>("arange", {"9007199254740993", "step -1"}, [] { arange(0, (int64_t{1} << 53) + 1, -1); }),
    wrong<ValueError>("full", {"300", "uint8"}, [] { full({2}, 300, kByte); }),
    wrong<ValueError>("full", {"-256", "uint8"}, [] { full({0}, -256, kByte); }),
    wrong<ValueError>("full", {"nan", "int32"}, [] { full({2}, NAN, kInt); }),
    wrong<ValueError>("full", {"9.22337e+18", "int64"}, [] { full({2}, 0x1p63, kLong); }),
    wrong<ValueError>("full", {"70000", "float16"}, [] { full({2}, 70000, kHalf); }),
    wrong<ValueError>("full_like", {"1e+20", "int64"}, [] { full_like(i({2}), 1e20); }),
    wrong<ValueError>("new_full", {"300", "uint8"}, [] { f({2}).new_full({2}, 300, kByte); }),
    wrong<ValueError>("fill_", {"inf", "int64"}, [] { i({2}).fill_(INFINITY); }),
    wrong<ValueError>("fill_", {"-0.5", "uint8"}, [] { ones({2}, kByte).fill_(-0.5); }),
    wrong<ValueError>("fill_", {"2147483648", "int32"}, [] { ones({2}, kInt).fill_(int64_t{1} << 31); }),
    wrong<ValueError>("tensor", {"300", "uint8"}, [] { tensor({1, 300}, kByte); }).found_outside_of_operators(),
    wrong<ShapeError>("from_blob", {"bytes"}, [] { from_blob(nullptr, {int64_t{1} << 62}); }).found_outside_of_operators(),
    wrong<ShapeError>("from_blob", {"(1,)", "(2, 3)"}, [] { float x[6]; from_blob(x, {2, 3}, IntArrayRef{1}); }).found_outside_of_operators(),
    wrong<ValueError>("from_blob", {"negative", "(-1,)"}, [] { float x[6]; from_blob(x, {2}, IntArrayRef{-1}); }).found_outside_of_operators(),
    wrong<AutogradError>("resize_", {"require grad"}, [] { ones({2}, requires_grad()).resize_({3}); }),
    wrong<ShapeError>("resize_", {"-1"}, [] { f({2}).resize_({-1}); }),
    wrong<ValueError>("random_", {"low < high", "3"}, [] { f({2}).random_(3, 3); }),
    wrong<ValueError>("random_", {"uint8"}, [] { zeros({2}, kByte).random_(300); }),
    wrong<DTypeError>("", {"int64"}, [] { set_default_dtype(kLong); }),
    wrong<ShapeError>("tril_indices", {"9223372036854775807"}, [] { tril_indices(INT64_MAX, 1, 1); }),
    wrong<ValueError>("bernoulli", {"[0, 1]"}, [] { bernoulli(f({2}) * 2); }),
    wrong<ValueError>("bernoulli", {"[0, 1]"}, [] { bernoulli(f({2}) * NAN); }),
    wrong<ValueError>("", {"set_num_threads", "0"}, [] { set_num_threads(0); }),
    wrong<ValueError>("randint", {"3", "2"}, [] { randint(3, 2, {4}); }),
    wrong<ValueError>("randint", {"256", "uint8"}, [] { randint(0, 257, {4}, kByte); }),
    wrong<ValueError>("randint", {"-1", "uint8"}, [] { randint(-1, 2, {4}, kByte); }),
    wrong<ValueError>("randint", {"2", "bool"}, [] { randint(0, 3, {4}, kBool); }),
    wrong<ValueError>("randint", {"2147483648", "int32"}, [] { randint(0, (int64_t{1} << 31) + 1, {4}, kInt); }),
    wrong<ValueError>("randint", {"5", "5"}, [] { randint(5, 5, {2}); }),
    wrong<ValueError>("bernoulli_", {"2"}, [] { f({3}).bernoulli_(2); }),
    wrong<ValueError>("bernoulli_", {"-0.5"}, [] { f({3}).bernoulli_(-0.5); }),
    wrong<ValueError>("linspace", {"-1"}, [] { linspace(0, 1, -1); }),
    wrong<ValueError>("randperm", {"-1"}, [] { randperm(-1); }),
    wrong<ValueError>("normal_", {"-1"}, [] { f({3}).normal_(0, -1); }),
    wrong<Error>("zeros_like", {"undefined"}, [] { zeros_like(Tensor()); }),
    wrong<Error>("to", {"undefined"}, [] { Tensor().to(kDouble); }),
    wrong<Error>("clone", {"undefined"}, [] { Tensor().clone(); }),
});
// clang-format on

}  // namespace
