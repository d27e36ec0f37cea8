// Wrong calls: Losses.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls losses("losses", {
    wrong<ShapeError>("cross_entropy", {"(4, 5)", "(3,)"}, [] { cross_entropy(f({4, 5}), i({3})); }),
    wrong<ShapeError>("nll_loss", {"(4, 5)", "(4, 1)"}, [] { nll_loss(f({4, 5}), i({4, 1})); }),
    wrong<ShapeError>("nll_loss", {"(3,)", "5"}, [] { nll_loss(f({2, 5}), i({2}), f({3})); }),
    wrong<ShapeError>("cross_entropy", {"(4,)", "5"}, [] { cross_entropy(f({2, 5}), i({2}), f({4})); }),
    wrong<DTypeError>("cross_entropy", {"float32"}, [] { cross_entropy(f({2, 2}), f({2})); }),
    wrong<IndexError>("cross_entropy", {"7", "5"}, [] { cross_entropy(f({2, 5}), full({2}, 7)); }),
    wrong<IndexError>("nll_loss", {"-1", "5"}, [] { nll_loss(f({2, 5}), full({2}, -1)); }),
    wrong<Error>("cross_entropy", {"undefined"}, [] { cross_entropy(f({2, 2}), Tensor()); }),
});
// clang-format on

}  // namespace
