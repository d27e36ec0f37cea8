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
    wrong<ShapeError>("mse_loss", {"(2, 3)", "(4,)"}, [] { mse_loss(f({2, 3}), f({4})); }),
    wrong<ShapeError>("l1_loss", {"(2, 3)", "(4,)"}, [] { l1_loss(f({2, 3}), f({4})); }),
    wrong<ValueError>("smooth_l1_loss", {"-1"}, [] { smooth_l1_loss(f({2}), f({2}), Reduction::mean, -1); }),
    wrong<ValueError>("huber_loss", {"0"}, [] { huber_loss(f({2}), f({2}), Reduction::mean, 0); }),
    wrong<ShapeError>("binary_cross_entropy", {"(2, 3)", "(3,)"}, [] { binary_cross_entropy(f({2, 3}), f({3})); }),
    wrong<ShapeError>("binary_cross_entropy_with_logits", {"(2, 3)", "(3,)"}, [] { binary_cross_entropy_with_logits(f({2, 3}), f({3})); }),
    wrong<ShapeError>("kl_div", {"(2, 3)", "(4,)"}, [] { kl_div(f({2, 3}), f({4})); }),
    wrong<ValueError>("cross_entropy", {"label_smoothing", "2"}, [] { cross_entropy(f({2, 3}), i({2}), {}, Reduction::mean, -100, 2); }),
    wrong<Error>("mse_loss", {"undefined"}, [] { mse_loss(f({2, 3}), Tensor()); }),
});
// clang-format on

}  // namespace
