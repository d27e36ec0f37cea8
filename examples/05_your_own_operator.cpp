// 5. Your own operator: its forward and backward pass, and a test that the backward pass is the derivative of the
// forward pass.
//
// The operator is squareplus, y = (x + sqrt(x² + 4)) / 2 (Barron 2021), a smooth ReLU. Composed of existing operators,
// it would have a gradient, too, but would keep the results of four operators for the backward pass. This operator
// keeps only its input.
#include <gradus/autograd/diagnosis.h>
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

namespace {

struct Squareplus : autograd::Function<Squareplus> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});  // if x is changed in place before backward, backward throws an error
    return (x + (x.pow(2) + 4).sqrt()) / 2;
  }

  // dx = dy (1 + x / sqrt(x² + 4)) / 2. These operators are differentiable, so second derivatives work, too.
  static TensorList backward(AutogradContext* context, const TensorList& dy) {
    const Tensor x = context->get_saved_variables()[0];
    return {dy[0] * (1 + x / (x.pow(2) + 4).sqrt()) / 2};
  }
};

Tensor squareplus(const Tensor& x) { return Squareplus::apply(x); }

/// The operator as a layer, for a Sequential. A layer with parameters would register them here.
struct SquareplusLayerImpl : nn::Module {
  Tensor forward(const Tensor& x) { return squareplus(x); }
};
GRADUS_MODULE(SquareplusLayer);

}  // namespace

int main() {
  // The test compares derivatives with finite differences in double precision. Both functions throw an error if they
  // differ.
  manual_seed(0);
  const Tensor x = randn({4, 3}, kDouble).requires_grad_();
  const auto f = [](const TensorList& inputs) { return TensorList{squareplus(inputs[0])}; };
  autograd::gradcheck(f, {x});
  autograd::gradgradcheck(f, {x});
  std::cout << "first and second derivatives agree with differences\n";

  // This is the error for a wrong backward pass.
  struct Wrong : autograd::Function<Wrong> {
    static Tensor forward(AutogradContext* context, const Tensor& x) { return Squareplus::forward(context, x); }
    static TensorList backward(AutogradContext*, const TensorList& dy) { return {dy[0]}; }
  };
  try {
    autograd::gradcheck([](const TensorList& inputs) { return TensorList{Wrong::apply(inputs[0])}; }, {x});
  } catch (const AutogradError& error) { std::cout << "a wrong one: " << error.what() << '\n'; }

  // The layer works in a net like any other layer. This net learns y = x² from noisy points.
  nn::Sequential net(nn::Linear(1, 32), SquareplusLayer(), nn::Linear(32, 1));
  optim::Adam adam(net->parameters(), 0.01);
  double loss_value = 0;
  for (int step = 0; step < 500; ++step) {
    const Tensor inputs = rand({64, 1}) * 2 - 1;
    const Tensor loss = (net(inputs) - inputs.pow(2) - 0.01 * randn({64, 1})).pow(2).mean();
    adam.zero_grad();
    loss.backward();
    adam.step();
    loss_value = loss.item<double>();
  }
  std::cout << "mean squared error after 500 steps: " << loss_value << '\n';
}
