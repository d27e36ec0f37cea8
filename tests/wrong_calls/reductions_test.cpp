// Wrong calls: Reductions, scans, sorts and sampling.
#include <cmath>
#include <limits>

#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const Tensor none;

// clang-format off
const WrongCalls reductions("reductions", {
    wrong<ShapeError>("max", {"(0, 3)"}, [] { f({0, 3}).max(); }),
    wrong<IndexError>("max", {"-3"}, [] { f({3, 2}).max(-3); }),
    wrong<ShapeError>("argmax", {"(2, 0)"}, [] { f({2, 0}).argmax(1); }),
    wrong<ShapeError>("min", {"(2, 0)"}, [] { f({2, 0}).min(1); }),
    wrong<ShapeError>("argmin", {"(0,)"}, [] { f({0}).argmin(); }),
    wrong<IndexError>("argmin", {"-2 to 1", "got 2"}, [] { f({3, 2}).argmin(2); }),
    wrong<IndexError>("argmin", {"2"}, [] { argmin(f({3, 2}), 2); }),
    wrong<DTypeError>("mean", {"int64"}, [] { i({2, 2}).mean(); }),
    wrong<IndexError>("mean", {"-2 to 1", "got -3"}, [] { f({3, 2}).mean(IntArrayRef{-3}); }),
    wrong<DTypeError>("softmax", {"int64"}, [] { softmax(i({2, 2}), 1); }),
    wrong<IndexError>("softmax", {"-3"}, [] { softmax(f({3, 2}), -3); }),
    wrong<DTypeError>("log_softmax", {"bool"}, [] { log_softmax(f({3, 2}) > 0, 1); }),
    wrong<IndexError>("log_softmax", {"2"}, [] { log_softmax(f({3, 2}), 2); }),
    wrong<IndexError>("sum", {"2"}, [] { f({3, 2}).sum(IntArrayRef{2}); }),
    wrong<ShapeError>("sum", {"dimension 0", "(0, 0)"}, [] { f({3, 2}).sum({0, 0}); }),
    wrong<Error>("sum", {"undefined"}, [] { Tensor().sum(); }),
    wrong<IndexError>("var", {"-2 to 1", "got 2"}, [] { f({3, 2}).var({2}); }),
    wrong<DTypeError>("var", {"int64"}, [] { i({2}).var(); }),
    wrong<IndexError>("var", {"-3"}, [] { f({3, 2}).var({-3}); }),
    wrong<Error>("var", {"undefined"}, [] { none.var(); }),
    wrong<DTypeError>("std", {"int64"}, [] { i({3, 2}).std(); }),
    wrong<DTypeError>("std", {"int64"}, [] { i({2}).std({0}); }),
    wrong<IndexError>("std", {"4"}, [] { f({3, 2}).std({0, 4}); }),
    wrong<ShapeError>("amax", {"(0,)"}, [] { f({0}).amax(); }),
    wrong<ShapeError>("amax", {"(0, 3)"}, [] { amax(f({0, 3}), {0}); }),
    wrong<IndexError>("amax", {"2"}, [] { amax(f({3, 2}), {2}); }),
    wrong<IndexError>("cumsum", {"-2 to 1", "got 3"}, [] { f({3, 2}).cumsum(3); }),
    wrong<IndexError>("cumsum", {"2"}, [] { cumsum(f({3, 2}), 2); }),
    wrong<Error>("cumsum", {"undefined"}, [] { none.cumsum(0); }),
    wrong<IndexError>("sort", {"-1 to 0", "got 1"}, [] { f({3}).sort(1); }),
    wrong<IndexError>("sort", {"2"}, [] { sort(f({3, 2}), 2); }),
    wrong<Error>("sort", {"undefined"}, [] { none.sort(); }),
    wrong<Error>("topk", {"4", "3"}, [] { f({3}).topk(4); }),
    wrong<Error>("topk", {"-1"}, [] { f({3}).topk(-1); }),
    wrong<IndexError>("topk", {"4", "(2, 3)", "3"}, [] { topk(f({2, 3}), 4); }),
    wrong<IndexError>("topk", {"-1"}, [] { topk(f({2, 3}), -1); }),
    wrong<Error>("topk", {"undefined"}, [] { none.topk(1); }),
    wrong<Error>("median", {"(0,)"}, [] { f({0}).median(); }),
    wrong<ShapeError>("median", {"(0,)"}, [] { median(f({0})); }),
    wrong<ShapeError>("median", {"(3, 0)", "1"}, [] { median(f({3, 0}), 1); }),
    wrong<IndexError>("median", {"2"}, [] { median(f({3, 2}), 2); }),
    wrong<Error>("median", {"undefined"}, [] { none.median(); }),
    wrong<IndexError>("logsumexp", {"-1 to 0", "got 1"}, [] { f({3}).logsumexp({1}); }),
    wrong<IndexError>("logsumexp", {"5"}, [] { logsumexp(f({3, 2}), {5}); }),
    wrong<Error>("multinomial", {"(2, 2, 2)"}, [] { f({2, 2, 2}).multinomial(1); }),
    wrong<Error>("multinomial", {"5", "3"}, [] { f({3}).multinomial(5); }),
    wrong<ShapeError>("multinomial", {"(2, 3, 4)"}, [] { multinomial(f({2, 3, 4}), 1); }),
    wrong<ShapeError>("multinomial", {"(2, 0)"}, [] { multinomial(f({2, 0}), 1, true); }),
    wrong<DTypeError>("multinomial", {"int64"}, [] { multinomial(i({2}), 1); }),
    wrong<ValueError>("multinomial", {"0"}, [] { multinomial(f({3}), 0); }),
    wrong<ValueError>("multinomial", {"4", "3"}, [] { multinomial(f({3}), 4); }),
    wrong<ValueError>("multinomial", {"negative"}, [] { multinomial(-f({3}), 1); }),
    wrong<ValueError>("multinomial", {"finite"}, [] { multinomial(f({3}) / 0, 1); }),
    wrong<ValueError>("multinomial", {"above 0"}, [] { multinomial(f({3}) * 0, 1, true); }),
    wrong<ValueError>("multinomial", {"2", "above 0"}, [] { multinomial(tensor({1., 0., 0.}), 2); }),
    wrong<Error>("multinomial", {"undefined"}, [] { multinomial(none, 1); }),
    wrong<ShapeError>("amin", {"(2, 0)"}, [] { f({2, 0}).amin(); }),
    wrong<ShapeError>("norm", {"(0, 3)"}, [] { norm(f({0, 3}), INFINITY, {0}); }),
    wrong<DTypeError>("norm", {"int64"}, [] { norm(i({2})); }),
    wrong<IndexError>("norm", {"2"}, [] { norm(f({3, 2}), 2, {2}); }),
    wrong<ValueError>("norm", {"NaN"}, [] { norm(f({2}), kNaN); }),
    wrong<Error>("norm", {"undefined"}, [] { none.norm(); }),
    wrong<DTypeError>("var_mean", {"int64"}, [] { var_mean(i({2})); }),
    wrong<IndexError>("prod", {"2"}, [] { prod(f({3, 2}), 2); }),
    wrong<Error>("prod", {"undefined"}, [] { none.prod(); }),
    wrong<IndexError>("cumprod", {"-3"}, [] { cumprod(f({3, 2}), -3); }),
    wrong<IndexError>("all", {"2"}, [] { all(f({3, 2}), 2); }),
    wrong<IndexError>("any", {"7"}, [] { f({3, 2}).any(7); }),
    wrong<IndexError>("count_nonzero", {"2"}, [] { count_nonzero(f({3, 2}), 2); }),
    wrong<IndexError>("argsort", {"-3"}, [] { argsort(f({3, 2}), -3); }),
    wrong<IndexError>("kthvalue", {"0"}, [] { kthvalue(f({2, 3}), 0); }),
    wrong<IndexError>("kthvalue", {"4", "(2, 3)"}, [] { kthvalue(f({2, 3}), 4); }),
    wrong<IndexError>("softmin", {"2"}, [] { softmin(f({2, 2}), 2); }),
    wrong<Error>("unique", {"undefined"}, [] { _unique2(none); }),
    wrong<ShapeError>("unique_dim", {"dimension 0", "(3, 0)"}, [] { unique_dim(f({3, 0}), 0); }),
    wrong<IndexError>("unique_dim", {"2"}, [] { unique_dim(f({3, 2}), 2); }),
    wrong<ShapeError>("unique_dim", {"a scalar"}, [] { unique_dim(f({}), 0); }),
    wrong<DTypeError>("norm", {"int64"}, [] { norm(i({2})); }),
    wrong<DTypeError>("norm", {"int64"}, [] { norm(i({2}), 1); }),
    wrong<DTypeError>("norm", {"int64"}, [] { norm(i({2}), INFINITY); }),
});
// clang-format on

}  // namespace
