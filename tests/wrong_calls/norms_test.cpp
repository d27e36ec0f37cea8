// Wrong calls: Normalisation.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// clang-format off
const WrongCalls norms("norms", {
    wrong<ShapeError>("batch_norm", {"(3,)", "(2, 4)"}, [] { batch_norm(f({2, 4}), f({3}), f({4})); }),
    wrong<ShapeError>("batch_norm", {"weight", "(3,)"}, [] { batch_norm(f({2, 4}), {}, {}, f({3}), {}, true); }),
    wrong<ShapeError>("batch_norm", {"more than 1", "(1, 4)"}, [] { batch_norm(f({1, 4}), {}, {}, {}, {}, true); }),
    wrong<ShapeError>("batch_norm", {"(4,)"}, [] { batch_norm(f({4}), {}, {}, {}, {}, true); }),
    wrong<DTypeError>("batch_norm", {"int64"}, [] { batch_norm(i({2, 4}), {}, {}, {}, {}, true); }),
    wrong<DTypeError>("batch_norm", {"float32", "float64"}, [] { batch_norm(f({2, 4}), {}, {}, ones({4}, kDouble), {}, true); }),
    wrong<ValueError>("batch_norm", {"running_mean"}, [] { batch_norm(f({2, 4}), {}, {}); }),
    wrong<ValueError>("batch_norm", {"eps", "-1"}, [] { batch_norm(f({2, 4}), {}, {}, {}, {}, true, 0.1, -1); }),
    wrong<ShapeError>("batch_norm", {"(5,)"}, [] { batch_norm(f({5}), {}, {}, {}, {}, true); }),
    wrong<ShapeError>("batch_norm", {"running_mean", "(2, 3, 4, 4)", "(4,)"}, [] { batch_norm(f({2, 3, 4, 4}), f({4}), f({3})); }),
    wrong<ShapeError>("batch_norm", {"weight", "(2, 3, 4, 4)", "(2,)"}, [] { batch_norm(f({2, 3, 4, 4}), f({3}), f({3}), f({2})); }),
    wrong<ShapeError>("batch_norm", {"bias", "(2, 3)", "(2,)"}, [] { batch_norm(f({2, 3}), f({3}), f({3}), f({3}), f({2})); }),
    wrong<ValueError>("batch_norm", {"running_mean"}, [] { batch_norm(f({2, 3}), {}, {}); }),
    wrong<ShapeError>("batch_norm", {"more than 1 value", "(1, 3)"}, [] { batch_norm(f({1, 3}), {}, {}, {}, {}, true); }),
    wrong<ValueError>("batch_norm", {"eps", "-1"}, [] { batch_norm(f({2, 3}), f({3}), f({3}), {}, {}, false, 0.1, -1); }),
    wrong<DTypeError>("batch_norm", {"int64"}, [] { batch_norm(i({2, 3}), f({3}), f({3})); }),
    wrong<Error>("batch_norm", {"undefined"}, [] { batch_norm(Tensor(), f({3}), f({3})); }),
    wrong<ValueError>("batch_norm", {"num_batches_tracked", "float32", "(2,)"}, [] { batch_norm(f({2, 3}), {}, {}, {}, {}, true, 0.1, 1e-5, f({2})); }),
    wrong<ShapeError>("batch_norm_relu", {"residual", "(2, 4)", "(2, 1)"}, [] { batch_norm_relu(f({2, 4}), {}, {}, {}, {}, true, 0.1, 1e-5, f({2, 1})); }),
    wrong<ShapeError>("batch_norm_relu", {"residual", "(0, 4)", "(2, 4)"}, [] { batch_norm_relu(f({0, 4}), {}, {}, {}, {}, true, 0.1, 1e-5, f({2, 4})); }),
    wrong<DTypeError>("batch_norm_relu", {"residual", "float32", "float64"}, [] { batch_norm_relu(f({2, 4}), {}, {}, {}, {}, true, 0.1, 1e-5, ones({2, 4}, kDouble)); }),
    wrong<ShapeError>("batch_norm_relu", {"weight", "(3,)"}, [] { batch_norm_relu(f({2, 4}), {}, {}, f({3}), {}, true); }),
    wrong<ShapeError>("batch_norm_relu", {"more than 1", "(1, 4)"}, [] { batch_norm_relu(f({1, 4}), {}, {}, {}, {}, true); }),
    wrong<ValueError>("batch_norm_relu", {"running_mean"}, [] { batch_norm_relu(f({2, 4}), {}, {}); }),
    wrong<ShapeError>("layer_norm", {"(3,)", "(2, 4)"}, [] { layer_norm(f({2, 4}), {3}); }),
    wrong<ShapeError>("layer_norm", {"weight", "(4,)", "(2, 4)"}, [] { layer_norm(f({2, 4}), {2, 4}, f({4})); }),
    wrong<DTypeError>("layer_norm", {"float64", "float32"}, [] { layer_norm(ones({2, 4}, kDouble), {4}, f({4})); }),
    wrong<ShapeError>("layer_norm", {"(4,)", "(2, 3)"}, [] { layer_norm(f({2, 3}), {4}); }),
    wrong<ShapeError>("layer_norm", {"(2, 2, 3)", "(2, 3)"}, [] { layer_norm(f({2, 3}), {2, 2, 3}); }),
    wrong<ShapeError>("layer_norm", {"weight", "(3,)", "(2,)"}, [] { layer_norm(f({2, 3}), {3}, f({2})); }),
    wrong<ShapeError>("layer_norm", {"at least one dimension"}, [] { layer_norm(f({2, 3}), {}); }),
    wrong<ShapeError>("group_norm", {"(2, 5, 3)", "2"}, [] { group_norm(f({2, 5, 3}), 2); }),
    wrong<ShapeError>("group_norm", {"bias", "(3,)"}, [] { group_norm(f({2, 4, 3}), 2, {}, f({3})); }),
    wrong<ValueError>("group_norm", {"0"}, [] { group_norm(f({2, 4}), 0); }),
    wrong<ShapeError>("group_norm", {"6 channels", "num_groups = 4"}, [] { group_norm(f({2, 6, 3}), 4); }),
    wrong<ValueError>("group_norm", {"num_groups", "0"}, [] { group_norm(f({2, 6, 3}), 0); }),
    wrong<ShapeError>("group_norm", {"weight", "(2, 6, 3)", "(3,)"}, [] { group_norm(f({2, 6, 3}), 2, f({3})); }),
    wrong<ShapeError>("instance_norm", {"(2, 3)"}, [] { instance_norm(f({2, 3})); }),
    wrong<ValueError>("instance_norm", {"use_input_stats"}, [] { instance_norm(f({2, 4, 3}), {}, {}, {}, {}, false); }),
    wrong<ShapeError>("instance_norm", {"3 dimensions", "(2, 6)"}, [] { instance_norm(f({2, 6})); }),
    wrong<ShapeError>("instance_norm", {"more than 1 value", "(2, 6, 1)"}, [] { instance_norm(f({2, 6, 1})); }),
    wrong<ShapeError>("local_response_norm", {"(2, 3)"}, [] { local_response_norm(f({2, 3}), 3); }),
    wrong<ValueError>("local_response_norm", {"size", "0"}, [] { local_response_norm(f({2, 6, 3}), 0); }),
    wrong<ShapeError>("local_response_norm", {"(2, 6)"}, [] { local_response_norm(f({2, 6}), 3); }),
    wrong<ValueError>("normalize", {"p", "0"}, [] { normalize(f({2, 6}), 0); }),
    wrong<IndexError>("normalize", {"-2 to 1", "got 2"}, [] { normalize(f({2, 6}), 2, 2); }),
    wrong<DTypeError>("batch_norm", {"running statistics", "int64"}, [] { batch_norm(f({2, 3}), i({3}), f({3})); }),
    wrong<DTypeError>("batch_norm", {"running statistics", "int64"}, [] { batch_norm(f({2, 3}), f({3}), i({3}), {}, {}, true); }),
    wrong<DTypeError>("instance_norm", {"running statistics", "int64"}, [] { instance_norm(f({2, 3, 4}), i({3}), i({3})); }),
    wrong<DTypeError>("normalize", {"int64"}, [] { normalize(i({2, 3})); }),
    wrong<DTypeError>("local_response_norm", {"int64"}, [] { local_response_norm(i({2, 3, 4}), 2); }),
});
// clang-format on

}  // namespace
