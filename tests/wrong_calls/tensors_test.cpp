// Wrong calls: Tensors: making, filling, arithmetic.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls tensors("tensors", {
    wrong<ShapeError>("add", {"(2, 3)", "(4,)"}, [] { f({2, 3}) + f({4}); }),
    wrong<ShapeError>("mul", {"(2, 3)", "(3, 2)"}, [] { mul(f({2, 3}), f({3, 2})); }),
    wrong<ShapeError>("lt", {"(2,)", "(3,)"}, [] { f({2}) < f({3}); }),
    wrong<ShapeError>("where", {"(2, 3)", "(4,)"}, [] { where(f({4}) > 0, f({2, 3}), 0.0); }),
    wrong<ShapeError>("add_", {"(2, 3)", "(2, 2, 3)"}, [] { f({2, 3}).add_(f({2, 2, 3})); }),
    wrong<ShapeError>("copy_", {"(2, 3)", "(4,)"}, [] { f({2, 3}).copy_(f({4})); }),
    wrong<ShapeError>("mul_", {"(2, 3)", "expand"}, [] { f({1, 3}).expand({2, 3}).mul_(2); }),
    wrong<ShapeError>("item", {"(2, 3)"}, [] { f({2, 3}).item<float>(); }),
    wrong<ShapeError>("zeros", {"-1"}, [] { zeros({-1}); }),
    wrong<ShapeError>("", {"9", "8 dimensions"}, [] { zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}); }).found_outside_of_operators(),
    wrong<ShapeError>("tensor", {"2", "1"}, [] { tensor({{1., 2.}, {3.}}); }).found_outside_of_operators(),
    wrong<DTypeError>("where", {"float32"}, [] { where(f({2}), f({2}), f({2})); }),
    wrong<DTypeError>("neg", {"bool"}, [] { neg(f({2}) > 0); }),
    wrong<DTypeError>("sub", {"bool"}, [] { (f({2}) > 0) - (f({2}) > 0); }),
    wrong<DTypeError>("add_", {"float32", "int64"}, [] { i({2}).add_(f({2})); }),
    wrong<DTypeError>("mul_", {"int64"}, [] { i({2}).mul_(0.5); }),
    wrong<DTypeError>("div_", {"int64"}, [] { i({2}).div_(i({2})); }),
    wrong<DTypeError>("dropout", {"int64"}, [] { dropout(i({3}), 0.5); }),
    wrong<DTypeError>("div_", {"int64"}, [] { i({2}).div_(2); }),
    wrong<DTypeError>("uniform_", {"int64"}, [] { i({2}).uniform_(); }),
    wrong<DTypeError>("rand", {"int64"}, [] { rand({2}, kLong); }),
    wrong<ValueError>("dropout", {"1.5"}, [] { dropout(f({3}), 1.5); }),
    wrong<ValueError>("dropout", {"-0.5"}, [] { dropout(f({3}), -0.5); }),
    wrong<ValueError>("arange", {"0"}, [] { arange(0, 3, 0); }),
    wrong<ValueError>("randint", {"3", "2"}, [] { randint(3, 2, {4}); }),
    wrong<ValueError>("clamp", {}, [] { clamp(f({3}), {}, {}); }),
    wrong<ValueError>("bernoulli_", {"2"}, [] { f({3}).bernoulli_(2); }),
    wrong<ValueError>("randint", {"5", "5"}, [] { randint(5, 5, {2}); }),
    wrong<ValueError>("linspace", {"-1"}, [] { linspace(0, 1, -1); }),
    wrong<ValueError>("randperm", {"-1"}, [] { randperm(-1); }),
    wrong<ValueError>("eye", {"-1"}, [] { eye(-1); }),
    wrong<ValueError>("bernoulli_", {"-0.5"}, [] { f({3}).bernoulli_(-0.5); }),
    wrong<ValueError>("normal_", {"-1"}, [] { f({3}).normal_(0, -1); }),
    wrong<ValueError>("uniform_", {"2", "1"}, [] { f({3}).uniform_(2, 1); }),
    wrong<Error>("zeros", {"1099511627776"}, [] { zeros({int64_t{1} << 40, int64_t{1} << 40}); }),
    wrong<Error>("relu", {"undefined"}, [] { relu(Tensor()); }),
    wrong<Error>("add", {"undefined"}, [] { Tensor() + f({2}); }),
    wrong<Error>("mul", {"undefined"}, [] { f({2}) * Tensor(); }),
    wrong<Error>("add_", {"undefined"}, [] { f({2}).add_(Tensor()); }),
    wrong<Error>("copy_", {"undefined"}, [] { f({2}).copy_(Tensor()); }),
    wrong<Error>("where", {"undefined"}, [] { where(Tensor(), f({2}), f({2})); }),
    wrong<Error>("where", {"undefined"}, [] { where(f({2}) > 0, Tensor(), f({2})); }),
    wrong<Error>("zeros_like", {"undefined"}, [] { zeros_like(Tensor()); }),
    wrong<Error>("item", {"undefined"}, [] { Tensor().item<float>(); }),
    wrong<Error>("to", {"undefined"}, [] { Tensor().to(kDouble); }),
    wrong<Error>("clone", {"undefined"}, [] { Tensor().clone(); }),
    wrong<ShapeError>("maximum", {"(2,)", "(3,)"}, [] { maximum(f({2}), f({3})); }),
    wrong<ShapeError>("fmod", {"(2, 3)", "(2,)"}, [] { fmod(f({2, 3}), f({2})); }),
    wrong<DTypeError>("sin_", {"int64"}, [] { i({2}).sin_(); }),
    wrong<DTypeError>("erf_", {"int64"}, [] { i({2}).erf_(); }),
    wrong<Error>("gelu", {"'tan'"}, [] { gelu(f({2}), "tan"); }),
    wrong<Error>("glu", {"3"}, [] { glu(f({2, 3})); }),
    wrong<Error>("prelu", {"(2, 3)", "(2,)"}, [] { prelu(f({2, 3}), f({2})); }),
});
// clang-format on

}  // namespace
