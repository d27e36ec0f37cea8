// Wrong calls: Autograd.
#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

Tensor leaf(IntArrayRef size) { return ones(size, requires_grad()); }

struct TwoGradients : autograd::Function<TwoGradients> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x * 2; }
  static TensorList backward(AutogradContext*, const TensorList& dy) { return {dy[0], dy[0]}; }
};

// clang-format off
const WrongCalls autograd_calls("autograd", {
    wrong<ValueError>("grad", {"grad requires non-empty inputs"}, [] { autograd::grad({leaf({2}).sum()}, {}); }),
    wrong<ValueError>("", {"'inputs' argument to backward cannot be empty"}, [] { leaf({2}).sum().backward({}, {}, false, TensorList()); }),
    wrong<AutogradError>("", {"bind_grad needs a leaf tensor"}, [] { leaf({2}).mul(2).bind_grad(f({2}).array()); }),
    wrong<ShapeError>("", {"the storage for the gradient has shape (3,), float32 on cpu but the tensor has (2,), float32"}, [] { leaf({2}).bind_grad(f({3}).array()); }),
    wrong<ShapeError>("", {"has shape (2,), int64 on cpu but the tensor has (2,), float32"}, [] { leaf({2}).bind_grad(i({2}).array()); }),
    wrong<AutogradError>("", {"a post-accumulate hook needs a leaf"}, [] { leaf({2}).mul(2).register_post_accumulate_grad_hook([](const Tensor&) {}); }),
    wrong<AutogradError>("", {"a post-accumulate hook needs a leaf"}, [] { f({2}).register_post_accumulate_grad_hook([](const Tensor&) {}); }),
    wrong<IndexError>("", {"this tensor has no hook with id 7"}, [] { leaf({2}).remove_hook(7); }),
    wrong<AutogradError>("", {"a view cannot be detached in place"}, [] { f({2, 2}).select(0, 0).detach_(); }),
    wrong<DTypeError>("", {"a tensor that requires gradients cannot hold int64"}, [] { leaf({2}).set_data(i({2})); }),
    wrong<AutogradError>("", {"queue_callback needs a backward pass in progress"}, [] { autograd::queue_callback([] {}); }),
    wrong<DTypeError>("", {"autocast needs float16 or bfloat16, got float32"}, [] { amp::Autocast(kCPU, kFloat); }),
    wrong<AutogradError>("backward", {"scalars", "(2, 3)"}, [] { leaf({2, 3}).mul(2).backward(); }),
    wrong<AutogradError>("backward", {"does not require gradients", "()"}, [] { f({2}).sum().backward(); }),
    wrong<ShapeError>("backward", {"(3,)", "(2,)"}, [] { leaf({2}).mul(2).backward(f({3})); }),
    wrong<AutogradError>("backward", {"already used", "Mul"}, [] { Tensor x = leaf({2}), y = (x * x).sum(); y.backward(); y.backward(); }),
    wrong<AutogradError>("backward", {"changed in place", "version 1, expected 0"}, [] { Tensor x = leaf({2}), y = x.exp(), z = (y * y).sum(); y.mul_(2); z.backward(); }),
    wrong<AutogradError>("backward", {"2 gradients", "1 arguments"}, [] { TwoGradients::apply(leaf({2})).sum().backward(); }),
    wrong<AutogradError>("backward", {"(3,)", "(2,)"}, [] { Tensor x = leaf({2}); x.register_hook([](const Tensor&) { return f({3}); }); x.sum().backward(); }),
    wrong<AutogradError>("add_", {"leaf"}, [] { leaf({2}).add_(1); }),
    wrong<AutogradError>("fill_", {"leaf"}, [] { leaf({2}).fill_(1); }),
    wrong<ShapeError>("fill_", {"one element", "(2,)"}, [] { f({2}).fill_(f({2})); }),
    wrong<AutogradError>("mul_", {"view of a leaf"}, [] { leaf({2, 2}).select(0, 1).mul_(2); }),
    wrong<AutogradError>("requires_grad_", {"leaves"}, [] { leaf({2}).mul(2).requires_grad_(false); }),
    wrong<DTypeError>("requires_grad_", {"int64"}, [] { i({2}).requires_grad_(); }),
    wrong<AutogradError>("grad", {"(3,)", "not used"}, [] { Tensor x = leaf({2}), y = leaf({3}); autograd::grad({x.sum()}, {y}); }),
    wrong<AutogradError>("grad", {"(3,)", "does not require"}, [] { Tensor x = leaf({2}); autograd::grad({x.sum()}, {f({3})}); }),
    wrong<ValueError>("grad", {"1 tensors", "2 gradients"}, [] { Tensor x = leaf({2}); autograd::grad({x.sum()}, {x}, {f({}), f({})}); }),
    wrong<AutogradError>("", {"gradcheck", "input 0", "(2,)", "analytic gradient 4"}, [] { autograd::gradcheck([](const TensorList& x) { return TensorList{x[0].mul(2) + x[0].detach() * 0 + (x[0] * 2 - x[0].detach() * 2)}; }, {ones({2}, dtype(kDouble).requires_grad(true))}); }),
    wrong<DTypeError>("", {"gradcheck", "float64", "float32"}, [] { autograd::gradcheck([](const TensorList& x) { return x; }, {leaf({2})}); }),
    wrong<ValueError>("", {"gradcheck", "requires gradients"}, [] { autograd::gradcheck([](const TensorList& x) { return x; }, {ones({2}, kDouble)}); }),
    wrong<AutogradError>("", {"hook", "requires gradients"}, [] { f({2}).register_hook([](const Tensor& g) { return g; }); }),
    wrong<AutogradError>("", {"retain_grad"}, [] { f({2}).retain_grad(); }),
    wrong<Error>("backward", {"undefined"}, [] { Tensor().backward(); }),
    wrong<Error>("requires_grad_", {"undefined"}, [] { Tensor().set_requires_grad(false); }),
    wrong<Error>("", {"undefined"}, [] { Tensor().bind_grad(f({2}).array()); }),
});
// clang-format on

}  // namespace
