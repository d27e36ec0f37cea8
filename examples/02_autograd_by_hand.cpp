// 2. Gradients three times: by hand, by the engine, and by nudging the inputs.
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

  // By hand. Forward keeps what backward will need; backward multiplies derivatives, the last operation first.
  {
    const NoGradGuard nothing_is_recorded;
    const Tensor s = (w * x).sum(), y = s.tanh();  // forward
    const Tensor d_y = 2 * (y - t);                // of (y - t)²
    const Tensor d_s = d_y * (1 - y * y);          // tanh' = 1 - tanh²
    const Tensor d_w = d_s * x;                    // of w·x
    std::cout << "by hand:\n" << d_w << "\n\n";
  }

  // By the engine. Every operation on w leaves a node that knows its own derivative; backward() visits them in reverse.
  const Tensor loss = loss_of(w, x, t);
  std::cout << "the loss " << loss.item<double>() << " was made by " << loss.grad_fn()->name() << '\n';
  loss.backward();
  std::cout << "by the engine:\n" << w.grad() << "\n\n";

  // By nudging: (f(w + h) - f(w - h)) / 2h. Slow and inexact, but it knows no calculus that could be wrong.
  constexpr double kNudge = 1e-6;
  std::cout << "by nudging:\n";
  for (int64_t i = 0; i < w.numel(); ++i) {
    const NoGradGuard nothing_is_recorded;
    const Tensor step = zeros_like(w);
    step[i].fill_(kNudge);
    const Tensor slope = (loss_of(w + step, x, t) - loss_of(w - step, x, t)) / (2 * kNudge);
    std::cout << ' ' << slope.item<double>() << '\n';
  }

  // gradcheck compares the last two for any function, and names the element where they differ.
  const auto f = [&](const TensorList& inputs) { return TensorList{loss_of(inputs[0], x, t)}; };
  std::cout << "\ngradcheck: " << (autograd::gradcheck(f, {w}) ? "they agree" : "they differ") << '\n';

  // Gradients add up until they are zeroed: two losses, one backward each, give their sum. Training loops zero them.
  loss_of(w, x, t).backward();
  std::cout << "after a second backward, w.grad() holds twice the gradient:\n" << w.grad() << '\n';

  // A step against the gradient makes the loss smaller: this is all that training does.
  {
    const NoGradGuard an_update_is_not_recorded;
    w.sub_(0.1 * w.grad());
  }
  std::cout << "\nthe loss after a step: " << loss_of(w, x, t).item<double>() << '\n';
}
