// Wrong calls: Losses.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls losses("losses", {
    wrong<ShapeError>("mse_loss", {"(2, 3)", "(4,)"}, [] { mse_loss(f({2, 3}), f({4})); }),
    wrong<ShapeError>("mse_loss", {"(4, 1)", "(4,)", "(4, 4)", "squeeze"}, [] { mse_loss(f({4, 1}), f({4})); }),
    wrong<ShapeError>("l1_loss", {"(4,)", "(4, 1)", "(4, 4)"}, [] { l1_loss(f({4}), f({4, 1})); }),
    wrong<ShapeError>("smooth_l1_loss", {"(4, 1)", "(4,)"}, [] { smooth_l1_loss(f({4, 1}), f({4})); }),
    wrong<ShapeError>("huber_loss", {"(4, 1)", "(1, 4)"}, [] { huber_loss(f({4, 1}), f({1, 4})); }),
    wrong<ShapeError>("poisson_nll_loss", {"(4, 1)", "(4,)"}, [] { poisson_nll_loss(f({4, 1}), f({4})); }),
    wrong<ShapeError>("gaussian_nll_loss", {"(4, 1)", "(4,)"}, [] { gaussian_nll_loss(f({4, 1}), f({4}), f({4})); }),
    wrong<ShapeError>("soft_margin_loss", {"(4, 1)", "(4,)"}, [] { soft_margin_loss(f({4, 1}), f({4})); }),
    wrong<ShapeError>("margin_ranking_loss", {"(4, 1)", "(4,)"}, [] { margin_ranking_loss(f({4, 1}), f({4}), f({4})); }),
    wrong<DTypeError>("mse_loss", {"int64"}, [] { mse_loss(i({2}), i({2})); }),
    wrong<ShapeError>("mse_loss", {"(2, 3)", "(3, 2)"}, [] { mse_loss(f({2, 3}), f({3, 2})); }),
    wrong<Error>("mse_loss", {"undefined"}, [] { mse_loss(f({2, 3}), Tensor()); }),
    wrong<ShapeError>("l1_loss", {"(2, 3)", "(3, 2)"}, [] { l1_loss(f({2, 3}), f({3, 2})); }),
    wrong<ShapeError>("l1_loss", {"(2, 3)", "(4,)"}, [] { l1_loss(f({2, 3}), f({4})); }),
    wrong<ShapeError>("smooth_l1_loss", {"(2,)", "(3,)"}, [] { smooth_l1_loss(f({2}), f({3})); }),
    wrong<ValueError>("smooth_l1_loss", {"-1"}, [] { smooth_l1_loss(f({2}), f({2}), Reduction::mean, -1); }),
    wrong<ValueError>("smooth_l1_loss", {"-2"}, [] { smooth_l1_loss(f({2}), f({2}), Reduction::none, -2); }),
    wrong<ShapeError>("huber_loss", {"(2,)", "(3,)"}, [] { huber_loss(f({2}), f({3})); }),
    wrong<ValueError>("huber_loss", {"0"}, [] { huber_loss(f({2}), f({2}), Reduction::mean, 0); }),
    wrong<ValueError>("huber_loss", {"-2"}, [] { huber_loss(f({2}), f({2}), Reduction::sum, -2); }),
    wrong<ShapeError>("binary_cross_entropy", {"(2, 3)", "(3,)"}, [] { binary_cross_entropy(f({2, 3}), f({3})); }),
    wrong<DTypeError>("binary_cross_entropy", {"int64"}, [] { binary_cross_entropy(i({2}), i({2})); }),
    wrong<ValueError>("binary_cross_entropy", {"2", "between 0 and 1"}, [] { binary_cross_entropy(f({2}) * 2, f({2})); }),
    wrong<ShapeError>("binary_cross_entropy", {"(2,)", "(2, 1)"}, [] { binary_cross_entropy(f({2}), f({2, 1})); }),
    wrong<ShapeError>("binary_cross_entropy_with_logits", {"(2, 3)", "(2, 1)"}, [] { binary_cross_entropy_with_logits(f({2, 3}), f({2, 1})); }),
    wrong<ShapeError>("binary_cross_entropy_with_logits", {"pos_weight", "(2,)"}, [] { binary_cross_entropy_with_logits(f({2, 3}), f({2, 3}), {}, f({2})); }),
    wrong<ShapeError>("binary_cross_entropy_with_logits", {"(2, 3)", "(3,)"}, [] { binary_cross_entropy_with_logits(f({2, 3}), f({3})); }),
    wrong<ShapeError>("kl_div", {"(2, 3)", "(4,)"}, [] { kl_div(f({2, 3}), f({4})); }),
    wrong<ShapeError>("kl_div", {"(2, 3)", "(3, 2)"}, [] { kl_div(f({2, 3}), f({3, 2})); }),
    wrong<ShapeError>("nll_loss", {"(2, 3, 4)", "(2, 3)"}, [] { nll_loss(f({2, 3, 4}), i({2, 3})); }),
    wrong<ShapeError>("nll_loss", {"(2, 3)", "(2,)"}, [] { nll_loss(f({2, 3}), i({2}), f({2})); }),
    wrong<ShapeError>("nll_loss", {"(4, 5)", "(4, 1)"}, [] { nll_loss(f({4, 5}), i({4, 1})); }),
    wrong<ShapeError>("nll_loss", {"(3,)", "5"}, [] { nll_loss(f({2, 5}), i({2}), f({3})); }),
    wrong<IndexError>("nll_loss", {"-1", "5"}, [] { nll_loss(f({2, 5}), full({2}, -1)); }),
    wrong<ShapeError>("cross_entropy", {"(2, 3, 4, 5)", "(2, 5, 4)"}, [] { cross_entropy(f({2, 3, 4, 5}), i({2, 5, 4})); }),
    wrong<ShapeError>("cross_entropy", {"(2, 3)", "(4,)"}, [] { cross_entropy(f({2, 3}), f({2, 3}), f({4})); }),
    wrong<DTypeError>("cross_entropy", {"int32"}, [] { cross_entropy(f({2, 3}), ones({2}, kInt)); }),
    wrong<ValueError>("cross_entropy", {"1.5"}, [] { cross_entropy(f({2, 3}), i({2}), {}, Reduction::mean, -100, 1.5); }),
    wrong<IndexError>("cross_entropy", {"7", "3"}, [] { cross_entropy(f({2, 3, 2}), full({2, 2}, 7)); }),
    wrong<IndexError>("cross_entropy", {"7", "3"}, [] { cross_entropy(f({2, 3}), full({2}, 7), {}, Reduction::mean, -100, 0.1); }),
    wrong<ShapeError>("cross_entropy", {"(4, 5)", "(3,)"}, [] { cross_entropy(f({4, 5}), i({3})); }),
    wrong<ShapeError>("cross_entropy", {"(4,)", "5"}, [] { cross_entropy(f({2, 5}), i({2}), f({4})); }),
    wrong<DTypeError>("cross_entropy", {"float32"}, [] { cross_entropy(f({2, 2}), f({2})); }),
    wrong<IndexError>("cross_entropy", {"7", "5"}, [] { cross_entropy(f({2, 5}), full({2}, 7)); }),
    wrong<Error>("cross_entropy", {"undefined"}, [] { cross_entropy(f({2, 2}), Tensor()); }),
    wrong<ValueError>("cross_entropy", {"label_smoothing", "2"}, [] { cross_entropy(f({2, 3}), i({2}), {}, Reduction::mean, -100, 2); }),
    wrong<ShapeError>("margin_ranking_loss", {"(2,)", "(3,)"}, [] { margin_ranking_loss(f({2}), f({3}), f({2})); }),
    wrong<ShapeError>("triplet_margin_loss", {"negative", "(2, 4)"}, [] { triplet_margin_loss(f({2, 3}), f({2, 3}), f({2, 4})); }),
    wrong<ShapeError>("cosine_embedding_loss", {"(2, 3)", "(3,)"}, [] { cosine_embedding_loss(f({2, 3}), f({2, 3}), f({3})); }),
    wrong<ShapeError>("multi_margin_loss", {"(2, 3)", "(3,)"}, [] { multi_margin_loss(f({2, 3}), i({3})); }),
    wrong<ValueError>("multi_margin_loss", {"3"}, [] { multi_margin_loss(f({2, 3}), i({2}), 3); }),
    wrong<IndexError>("multi_margin_loss", {"-1", "3"}, [] { multi_margin_loss(f({2, 3}), full({2}, -1)); }),
    wrong<ValueError>("gaussian_nll_loss", {"-1"}, [] { gaussian_nll_loss(f({2}), f({2}), -f({2})); }),
    wrong<DTypeError>("cross_entropy", {"int64 classes", "int32"}, [] { cross_entropy(f({4, 3}), ones({4}, kInt), f({3})); }),
    wrong<DTypeError>("cross_entropy", {"int64 classes", "float32"}, [] { cross_entropy(f({4, 3}), f({4}), {}, Reduction::mean, -100, 0.1); }),
    wrong<DTypeError>("nll_loss", {"int64 classes", "int32"}, [] { nll_loss(f({4, 3}), ones({4}, kInt)); }),
    wrong<DTypeError>("nll_loss", {"int64 classes", "uint8"}, [] { nll_loss(f({4, 3}), ones({4}, kByte), f({3})); }),
    wrong<DTypeError>("multi_margin_loss", {"int64"}, [] { multi_margin_loss(i({2, 3}), i({2})); }),
});
// clang-format on

}  // namespace
