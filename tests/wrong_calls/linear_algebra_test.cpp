// Wrong calls: Linear algebra.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls linear_algebra("linear_algebra", {
    wrong<ShapeError>("matmul", {"(2, 3)", "(4, 5)"}, [] { matmul(f({2, 3}), f({4, 5})); }),
    wrong<ShapeError>("matmul", {"()", "(3,)"}, [] { matmul(f({}), f({3})); }),
    wrong<ShapeError>("matmul", {"(2,)", "(5,)", "(2, 3, 4)", "(5, 4, 6)"}, [] { matmul(f({2, 3, 4}), f({5, 4, 6})); }),
    wrong<ShapeError>("mm", {"(2, 3, 4)"}, [] { mm(f({2, 3, 4}), f({4, 2})); }),
    wrong<ShapeError>("linear", {"3", "(2, 4)"}, [] { linear(f({2, 4}), f({5, 3})); }),
    wrong<ShapeError>("linear", {"(5, 4)", "(4,)"}, [] { linear(f({2, 4}), f({5, 4}), f({4})); }),
    wrong<ShapeError>("linear", {"(2, 3, 4)"}, [] { linear(f({2, 4}), f({2, 3, 4})); }),
    wrong<ShapeError>("matmul", {"(3,)", "(4,)"}, [] { f({3}).matmul(f({4})); }),
    wrong<DTypeError>("matmul", {"float32", "int64"}, [] { matmul(f({2, 2}), i({2, 2})); }),
    wrong<DTypeError>("linear", {"float32", "float64"}, [] { linear(f({2, 3}), ones({4, 3}, kDouble)); }),
    wrong<DTypeError>("matmul", {"float64", "float32"}, [] { ones({2, 2}, kDouble).matmul(f({2, 2})); }),
    wrong<Error>("matmul", {"undefined"}, [] { matmul(Tensor(), f({2, 2})); }),
    wrong<Error>("matmul", {"undefined"}, [] { matmul(f({2, 2}), Tensor()); }),
    wrong<Error>("linear", {"undefined"}, [] { linear(f({2, 2}), Tensor()); }),
    wrong<ShapeError>("bmm", {"(2, 3, 4)", "(3, 4, 5)"}, [] { bmm(f({2, 3, 4}), f({3, 4, 5})); }),
    wrong<ShapeError>("bmm", {"4", "5"}, [] { bmm(f({2, 3, 4}), f({2, 5, 6})); }),
    wrong<ShapeError>("mv", {"(2, 3)", "(2,)"}, [] { mv(f({2, 3}), f({2})); }),
    wrong<ShapeError>("dot", {"(2,)", "(3,)"}, [] { dot(f({2}), f({3})); }),
    wrong<ShapeError>("outer", {"(2, 2)", "(3,)"}, [] { outer(f({2, 2}), f({3})); }),
    wrong<ShapeError>("addmm", {"(5, 5)", "(2, 4)"}, [] { addmm(f({5, 5}), f({2, 3}), f({3, 4})); }),
    wrong<ValueError>("einsum", {"ij,jk->ik", "more operands than the 1 given"}, [] { einsum("ij,jk->ik", {f({2, 3})}); }),
    wrong<ShapeError>("einsum", {"j is 3", "4 in operand 1"}, [] { einsum("ij,jk->ik", {f({2, 3}), f({4, 5})}); }),
    wrong<ShapeError>("einsum", {"(2, 3)", "3 letters"}, [] { einsum("ijk->i", {f({2, 3})}); }),
    wrong<ValueError>("einsum", {"'1'"}, [] { einsum("i1->i", {f({2, 3})}); }),
    wrong<ShapeError>("cross", {"(2, 3)", "(2, 4)"}, [] { cross(f({2, 3}), f({2, 4})); }),
    wrong<ShapeError>("tensordot", {"(2, 3)", "(4, 5)"}, [] { tensordot(f({2, 3}), f({4, 5}), {1}, {0}); }),
});
// clang-format on

}  // namespace
