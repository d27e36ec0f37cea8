// Wrong calls: Layers, inside a model: the message names the layer's path instead of a line.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

struct NetImpl : nn::Module {
  nn::Sequential features = register_module(
      "features",
      nn::Sequential(nn::Conv2d(3, 6, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(6, 4, 3), nn::Flatten()));
  nn::Sequential head = register_module("head", nn::Sequential(nn::Linear(4, 8), nn::ReLU(), nn::Linear(7, 2)));
  nn::Linear alone = register_module("alone", nn::Linear(4, 4));
  Tensor forward(const Tensor& x) { return head(features(x)); }
};
GRADUS_MODULE(Net);

// clang-format off
const WrongCalls layers("layers", {
    wrong<ShapeError>("conv2d", {"3 input channels", "(2, 4, 8, 8)"}, [] { Net net; net(f({2, 4, 8, 8})); }).in("features.0"),
    wrong<ShapeError>("conv2d", {"(8, 8)"}, [] { Net net; net(f({8, 8})); }).in("features.0"),
    wrong<ShapeError>("conv2d", {"(2, 3, 2, 2)", "3"}, [] { Net net; net(f({2, 3, 2, 2})); }).in("features.0"),
    wrong<ShapeError>("conv2d", {"(2, 6, 1, 1)", "3"}, [] { Net net; net(f({2, 3, 4, 4})); }).in("features.3"),
    wrong<DTypeError>("conv2d", {"float64", "float32"}, [] { Net net; net(ones({2, 3, 8, 8}, kDouble)); }).in("features.0"),
    wrong<ShapeError>("linear", {"(1, 8)", "7"}, [] { Net net; net(f({1, 3, 8, 8})); }).in("head.2"),
    wrong<ShapeError>("linear", {"(1, 36)", "4"}, [] { Net net; net(f({1, 3, 12, 12})); }).in("head.0"),
    wrong<ShapeError>("linear", {"(3,)", "4"}, [] { Net net; net->alone(f({3})); }).in("alone"),
    wrong<DTypeError>("linear", {"int64", "floating"}, [] { Net net; net->alone(i({4})); }).in("alone"),
    wrong<Error>("linear", {"undefined"}, [] { Net net; net->alone(Tensor()); }).in("alone"),
    wrong<ShapeError>("max_pool2d", {"(1, 6, 1, 1)"}, [] { Net net; net(f({1, 3, 3, 3})); }).in("features.2"),
    wrong<ShapeError>("linear", {"(1, 5)", "4"}, [] { nn::Sequential net(nn::Linear(5, 5), nn::Sequential(nn::Identity(), nn::Linear(4, 1))); net(f({1, 5})); }).in("1.1"),
    wrong<ValueError>("", {"empty Sequential"}, [] { nn::Sequential net; net->forward(f({1})); }),
    wrong<IndexError>("", {"index 3", "Sequential of 2"}, [] { nn::Sequential net(nn::ReLU(), nn::Linear(1, 1)); net->ptr(3); }),
    wrong<ValueError>("", {"ReLU", "is a gradus::nn::ReLUImpl, not a gradus::nn::Linear"}, [] { nn::Sequential net(nn::ReLU(), nn::Linear(1, 1)); net->at<nn::Linear>(0); }),
    wrong<ValueError>("", {"Linear", "-1", "5"}, [] { nn::Linear(-1, 5); }),
    wrong<ValueError>("", {"convolution", "0", "5 channels"}, [] { nn::Conv2d(0, 5, 3); }),
    wrong<ValueError>("", {"3 input", "4 output", "groups = 2"}, [] { nn::Conv2d(nn::Conv2dOptions(3, 4, 3).groups(2)); }),
    wrong<ValueError>("", {"kernel_size", "0"}, [] { nn::Conv2d(3, 4, 0); }),
    wrong<ValueError>("", {"1.5"}, [] { nn::Dropout(1.5); }),
    wrong<Error>("", {"Parameter", "'w'", "already"}, [] { Net net; net->register_parameter("w", f({1})); net->register_parameter("w", f({1})); }),
    wrong<ValueError>("", {"'a.b'", "dot"}, [] { Net net; net->register_parameter("a.b", f({1})); }),
    wrong<ValueError>("", {"'head'", "module"}, [] { Net net; net->register_buffer("head", f({1})); }),
    wrong<ValueError>("", {"'self'", "contains it"}, [] { Net net; net->head->register_module("self", net.ptr()); }),
    wrong<ShapeError>("", {"NetImpl", "alone.weight", "(4, 4)", "(3, 4)"}, [] { Net net; auto state = net->state_dict(); state["alone.weight"] = f({3, 4}); net->load_state_dict(state); }),
    wrong<ValueError>("", {"LinearImpl", "head.0.weight"}, [] { nn::Linear one(1, 1); one->load_state_dict(Net()->state_dict()); }),
    wrong<ValueError>("", {"NetImpl", "Cloneable"}, [] { Net()->clone(); }),
    wrong<DTypeError>("", {"int64"}, [] { Net()->to(kLong); }),
    wrong<IndexError>("", {"NetImpl", "7"}, [] { Net()->remove_hook(7); }),
    wrong<Error>("", {"module holder is empty"}, [] { Net none(nullptr); none->forward(f({1})); }),
});
// clang-format on

}  // namespace
