// Wrong calls: Shapes: views and joining.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls shapes("shapes", {
    wrong<ShapeError>("view", {"(5,)", "(2, 3)"}, [] { f({2, 3}).view({5}); }),
    wrong<ShapeError>("view", {"(3, 2)"}, [] { f({2, 3}).t().view({6}); }),
    wrong<ShapeError>("view", {"-2"}, [] { f({2, 3}).view({-2, 3}); }),
    wrong<ShapeError>("reshape", {"(4, -1)", "(2, 3)"}, [] { f({2, 3}).reshape({4, -1}); }),
    wrong<ShapeError>("reshape", {"-1"}, [] { f({2, 3}).reshape({-1, -1}); }),
    wrong<ShapeError>("expand", {"(2, 3)", "(2, 4)"}, [] { f({2, 3}).expand({2, 4}); }),
    wrong<ShapeError>("expand", {"(2, 3)", "(3,)"}, [] { f({2, 3}).expand({3}); }),
    wrong<ShapeError>("permute", {"(2, 3)"}, [] { f({2, 3}).permute({0}); }),
    wrong<ShapeError>("cat", {"(2, 3)", "(2, 4)"}, [] { cat({f({2, 3}), f({2, 4})}); }),
    wrong<ShapeError>("stack", {"(2, 3)", "(3, 2)"}, [] { stack({f({2, 3}), f({3, 2})}); }),
    wrong<ShapeError>("as_strided", {"(9,)"}, [] { f({2, 3}).as_strided({9}, {1}); }),
    wrong<ShapeError>("as_strided", {"(2,)"}, [] { f({2, 3}).as_strided({2}, {-1}, 3); }),
    wrong<ShapeError>("", {"9", "8 dimensions"}, [] { f({2}).reshape({1, 1, 1, 1, 1, 1, 1, 1, 2}); }).found_outside_of_operators(),
    wrong<ShapeError>("unsqueeze", {"8"}, [] { f({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0); }),
    wrong<ShapeError>("t", {"(2, 3, 4)"}, [] { f({2, 3, 4}).t(); }),
    wrong<ShapeError>("cat", {"(2, 3)", "(2,)"}, [] { cat({f({2, 3}), f({2})}, 1); }),
    wrong<IndexError>("transpose", {"2"}, [] { f({3, 2}).transpose(0, 2); }),
    wrong<IndexError>("cat", {"2"}, [] { cat({f({3, 2}), f({3, 2})}, 2); }),
    wrong<IndexError>("unsqueeze", {"3"}, [] { f({3, 2}).unsqueeze(3); }),
    wrong<IndexError>("flatten", {"4"}, [] { f({3, 2}).flatten(0, 4); }),
    wrong<IndexError>("permute", {"-2 to 1", "got 2"}, [] { f({2, 3}).permute({0, 2}); }),
    wrong<IndexError>("squeeze", {"2"}, [] { f({2, 1}).squeeze(2); }),
    wrong<ValueError>("cat", {}, [] { cat({}); }),
    wrong<ValueError>("stack", {}, [] { stack({}); }),
    wrong<ShapeError>("permute", {"dimension 0", "(0, 0)"}, [] { f({2, 3}).permute({0, 0}); }),
    wrong<ShapeError>("flatten", {"1", "0", "(3, 2)"}, [] { f({3, 2}).flatten(1, 0); }),
    wrong<Error>("view", {"undefined"}, [] { Tensor().view({1}); }),
    wrong<Error>("cat", {"undefined"}, [] { cat({f({2}), Tensor()}); }),
    wrong<Error>("stack", {"undefined"}, [] { stack({f({2}), Tensor()}); }),
    wrong<ShapeError>("repeat", {"(2,)", "(2, 3)"}, [] { f({2, 3}).repeat({2}); }),
    wrong<ValueError>("repeat", {"(-1, 2)"}, [] { f({2, 3}).repeat({-1, 2}); }),
    wrong<Error>("split", {"0"}, [] { split(f({4}), 0); }),
    wrong<Error>("split", {"(1, 2)", "(4,)"}, [] { split(f({4}), IntArrayRef{1, 2}); }),
    wrong<Error>("chunk", {"0"}, [] { chunk(f({4}), 0); }),
    wrong<ValueError>("roll", {"(1, 2)", "(0,)"}, [] { roll(f({2, 3}), {1, 2}, {0}); }),
    wrong<ShapeError>("diag", {"(2, 3, 4)"}, [] { diag(f({2, 3, 4})); }),
    wrong<ShapeError>("tril", {"(3,)"}, [] { tril(f({3})); }),
    wrong<ShapeError>("unflatten", {"(6,)", "(4, 2)"}, [] { unflatten(f({6}), 0, {4, 2}); }),
});
// clang-format on

}  // namespace
