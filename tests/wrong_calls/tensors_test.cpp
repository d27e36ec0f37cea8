// Wrong calls: Tensors: making, filling, copying.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls tensors("tensors", {
    wrong<DTypeError>("logspace", {"int64"}, [] { logspace(0, 1, 3, 10, kLong); }),
    wrong<ValueError>("eye", {"-1"}, [] { eye(2, -1); }),
    wrong<ValueError>("eye", {"-1"}, [] { eye(-1); }),
    wrong<ValueError>("tril_indices", {"-1"}, [] { tril_indices(-1, 2); }),
    wrong<ShapeError>("copy_", {"(2, 3)", "(4,)"}, [] { f({2, 3}).copy_(f({4})); }),
    wrong<Error>("copy_", {"undefined"}, [] { f({2}).copy_(Tensor()); }),
    wrong<ShapeError>("item", {"(2, 3)"}, [] { f({2, 3}).item<float>(); }),
    wrong<Error>("item", {"undefined"}, [] { Tensor().item<float>(); }),
    wrong<ShapeError>("zeros", {"-1"}, [] { zeros({-1}); }),
    wrong<Error>("zeros", {"1099511627776"}, [] { zeros({int64_t{1} << 40, int64_t{1} << 40}); }),
    wrong<ShapeError>("", {"9", "8 dimensions"}, [] { zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}); }).found_outside_of_operators(),
    wrong<ShapeError>("tensor", {"2", "1"}, [] { tensor({{1., 2.}, {3.}}); }).found_outside_of_operators(),
    wrong<DTypeError>("uniform_", {"int64"}, [] { i({2}).uniform_(); }),
    wrong<ValueError>("uniform_", {"2", "1"}, [] { f({3}).uniform_(2, 1); }),
    wrong<DTypeError>("rand", {"int64"}, [] { rand({2}, kLong); }),
    wrong<ValueError>("arange", {"0"}, [] { arange(0, 3, 0); }),
    wrong<ValueError>("randint", {"3", "2"}, [] { randint(3, 2, {4}); }),
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
