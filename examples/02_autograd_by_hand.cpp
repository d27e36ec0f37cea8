// 2. The same gradients computed in three ways: by hand, by autograd, and by finite differences.
//
// The function is a neuron with a squared error: loss = (tanh(w·x) - t)².
#include <gradus/autograd/diagnosis.h>
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

namespace {

Tensor loss_of(const Tensor& w, const Tensor& x, const Tensor& t) { return ((w * x).sum().tanh() - t).pow(2); }

}  // namespace

int main() {
  const Tensor x = tensor({1., -2., 0.5}, kDouble), t = tensor(1., kDouble);
  const Tensor w = tensor({0.1, -0.2, 0.3}, dtype(kDouble).requires_grad(true));

  // By hand. The forward pass keeps the values that the backward pass needs. The backward pass multiplies derivatives,
  // starting with the last operation.
  {
    const NoGradGuard nothing_is_recorded;
    const Tensor s = (w * x).sum(), y = s.tanh();  // forward
    const Tensor d_y = 2 * (y - t);                // derivative of (y - t)²
    const Tensor d_s = d_y * (1 - y * y);          // tanh' = 1 - tanh²
    const Tensor d_w = d_s * x;                    // derivative of w·x
    std::cout << "by hand:\n" << d_w << "\n\n";
  }

  // By autograd. Every operation on w records a node that can compute its derivative. backward() visits these nodes in
  // reverse order.
  const Tensor loss = loss_of(w, x, t);
  std::cout << "the loss " << loss.item<double>() << " was made by " << loss.grad_fn()->name() << '\n';
  loss.backward();
  std::cout << "by the engine:\n" << w.grad() << "\n\n";

  // By finite differences: (f(w + h) - f(w - h)) / 2h. This is slow and inexact, but it needs no derivative that could
  // be wrong.
  constexpr double kNudge = 1e-6;
  std::cout << "by nudging:\n";
  for (int64_t i = 0; i < w.numel(); ++i) {
    const NoGradGuard nothing_is_recorded;
    const Tensor step = zeros_like(w);
    step[i].fill_(kNudge);
    const Tensor slope = (loss_of(w + step, x, t) - loss_of(w - step, x, t)) / (2 * kNudge);
    std::cout << ' ' << slope.item<double>() << '\n';
  }

  // gradcheck compares autograd with finite differences for any function, and names the element where they differ.
  const auto f = [&](const TensorList& inputs) { return TensorList{loss_of(inputs[0], x, t)}; };
  std::cout << "\ngradcheck: " << (autograd::gradcheck(f, {w}) ? "they agree" : "they differ") << '\n';

  // backward() adds to the gradients that exist: after two calls, they are the sum of both. Training loops therefore
  // zero the gradients before each step.
  loss_of(w, x, t).backward();
  std::cout << "after a second backward, w.grad() holds twice the gradient:\n" << w.grad() << '\n';

  // A small step against the gradient makes the loss smaller. Training consists of such steps.
  {
    const NoGradGuard an_update_is_not_recorded;
    w.sub_(0.1 * w.grad());
  }
  std::cout << "\nthe loss after a step: " << loss_of(w, x, t).item<double>() << '\n';
}
