// Wrong calls: Reductions.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls reductions("reductions", {
    wrong<ShapeError>("max", {"(0, 3)"}, [] { f({0, 3}).max(); }),
    wrong<ShapeError>("argmax", {"(2, 0)"}, [] { f({2, 0}).argmax(1); }),
    wrong<ShapeError>("min", {"(2, 0)"}, [] { f({2, 0}).min(1); }),
    wrong<ShapeError>("argmin", {"(0,)"}, [] { f({0}).argmin(); }),
    wrong<DTypeError>("mean", {"int64"}, [] { i({2, 2}).mean(); }),
    wrong<DTypeError>("softmax", {"int64"}, [] { softmax(i({2, 2}), 1); }),
    wrong<DTypeError>("log_softmax", {"bool"}, [] { log_softmax(f({3, 2}) > 0, 1); }),
    wrong<IndexError>("sum", {"2"}, [] { f({3, 2}).sum(IntArrayRef{2}); }),
    wrong<IndexError>("softmax", {"-3"}, [] { softmax(f({3, 2}), -3); }),
    wrong<IndexError>("mean", {"-2 to 1", "got -3"}, [] { f({3, 2}).mean(IntArrayRef{-3}); }),
    wrong<IndexError>("argmin", {"-2 to 1", "got 2"}, [] { f({3, 2}).argmin(2); }),
    wrong<IndexError>("max", {"-3"}, [] { f({3, 2}).max(-3); }),
    wrong<IndexError>("log_softmax", {"2"}, [] { log_softmax(f({3, 2}), 2); }),
    wrong<ShapeError>("sum", {"dimension 0", "(0, 0)"}, [] { f({3, 2}).sum({0, 0}); }),
    wrong<Error>("sum", {"undefined"}, [] { Tensor().sum(); }),
    wrong<IndexError>("var", {"-2 to 1", "got 2"}, [] { f({3, 2}).var({2}); }),
    wrong<DTypeError>("std", {"int64"}, [] { i({3, 2}).std(); }),
    wrong<ShapeError>("amax", {"(0,)"}, [] { f({0}).amax(); }),
    wrong<IndexError>("cumsum", {"-2 to 1", "got 3"}, [] { f({3, 2}).cumsum(3); }),
    wrong<IndexError>("sort", {"-1 to 0", "got 1"}, [] { f({3}).sort(1); }),
    wrong<Error>("topk", {"4", "3"}, [] { f({3}).topk(4); }),
    wrong<Error>("topk", {"-1"}, [] { f({3}).topk(-1); }),
    wrong<Error>("median", {"(0,)"}, [] { f({0}).median(); }),
    wrong<IndexError>("logsumexp", {"-1 to 0", "got 1"}, [] { f({3}).logsumexp({1}); }),
    wrong<Error>("multinomial", {"(2, 2, 2)"}, [] { f({2, 2, 2}).multinomial(1); }),
    wrong<Error>("multinomial", {"5", "3"}, [] { f({3}).multinomial(5); }),
});
// clang-format on

}  // namespace
