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
});
// clang-format on

}  // namespace
