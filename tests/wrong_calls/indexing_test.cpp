// Wrong calls: Indexing.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls indexing("indexing", {
    wrong<ShapeError>("index_put_", {"(3,)", "(2,)"}, [] { f({3, 2}).index_put_({0}, f({3})); }),
    wrong<IndexError>("select", {"3", "(3, 2)"}, [] { f({3, 2}).select(0, 3); }),
    wrong<IndexError>("select", {"-4"}, [] { f({3, 2}).select(0, -4); }),
    wrong<IndexError>("index", {"5"}, [] { f({3, 2}).index({5}); }),
    wrong<IndexError>("index", {"3", "(3, 2)"}, [] { f({3, 2}).index({0, 0, 0}); }),
    wrong<IndexError>("narrow", {"2", "4"}, [] { f({3, 4}).narrow(1, 2, 4); }),
    wrong<IndexError>("select", {"-2 to 1", "got 2"}, [] { f({3, 2}).select(2, 0); }),
    wrong<IndexError>("slice", {"-2 to 1", "got 2"}, [] { f({3, 2}).slice(2); }),
    wrong<IndexError>("narrow", {"-1"}, [] { f({3, 4}).narrow(1, 0, -1); }),
    wrong<IndexError>("index", {"llipsis"}, [] { f({3, 2}).index({Ellipsis, 0, Ellipsis}); }),
    wrong<ValueError>("slice", {"0"}, [] { f({3}).slice(0, 0, 3, 0); }),
    wrong<ValueError>("slice", {"-1"}, [] { f({3}).slice(0, 0, 3, -1); }),
    wrong<Error>("index", {"undefined"}, [] { Tensor().index({0}); }),
    wrong<ShapeError>("index_select", {"(2, 2)"}, [] { index_select(f({3, 2}), 0, i({2, 2})); }),
    wrong<IndexError>("index_select", {"7", "3"}, [] { index_select(f({3, 2}), 0, full({1}, 7)); }),
    wrong<DTypeError>("index_select", {"float32"}, [] { index_select(f({3, 2}), 0, f({1})); }),
    wrong<IndexError>("gather", {"5", "2"}, [] { gather(f({3, 2}), 1, full({3, 1}, 5)); }),
    wrong<ShapeError>("gather", {"(3, 2)", "(3,)"}, [] { gather(f({3, 2}), 1, i({3})); }),
    wrong<IndexError>("gather", {"-2 to 1", "got 2"}, [] { gather(f({3, 2}), 2, i({3, 1})); }),
    wrong<ShapeError>("scatter_add", {"(3, 2)", "(1, 2)"}, [] { scatter_add(f({3, 2}), 0, i({3, 2}), f({1, 2})); }),
    wrong<DTypeError>("masked_fill", {"float32"}, [] { masked_fill(f({3, 2}), f({3, 2}), 0); }),
    wrong<ShapeError>("masked_fill", {"(3, 2)", "(4,)"}, [] { masked_fill(f({3, 2}), f({4}) > 0, 0); }),
    wrong<DTypeError>("masked_select", {"int64"}, [] { masked_select(f({3, 2}), i({3, 2})); }),
    wrong<IndexError>("index", {"9", "3"}, [] { f({3, 2}).index({full({2}, 9)}); }),
    wrong<IndexError>("index", {"(4,)", "(3, 2)"}, [] { f({3, 2}).index({f({4}) > 0}); }),
    wrong<DTypeError>("one_hot", {"float32"}, [] { one_hot(f({3})); }),
    wrong<Error>("one_hot", {"7", "3"}, [] { one_hot(full({2}, 7), 3); }),
    wrong<ValueError>("meshgrid", {"ij", "xx"}, [] { meshgrid({f({2}), f({3})}, "xx"); }),
    wrong<IndexError>("embedding", {"7", "3"}, [] { embedding(f({3, 2}), full({2}, 7)); }),
    wrong<DTypeError>("embedding", {"float32"}, [] { embedding(f({3, 2}), f({2})); }),
});
// clang-format on

}  // namespace
