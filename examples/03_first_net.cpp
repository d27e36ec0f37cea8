// 3. A first net learns the exclusive or of two bits.
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

int main() {
  manual_seed(0);
  const Tensor x = tensor({{0., 0.}, {0., 1.}, {1., 0.}, {1., 1.}});  // (4, 2)
  const Tensor y = tensor({0, 1, 1, 0});                              // (4), classes

  // Two linear layers. Without the ReLU between them they were one, and no line parts these classes.
  nn::Sequential net(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 2));
  std::cout << net << '\n';

  optim::Adam optimizer(net->parameters(), 0.05);
  for (int step = 0; step <= 200; ++step) {
    optimizer.zero_grad();                         // gradients of the step before
    const Tensor loss = cross_entropy(net(x), y);  // logits (4, 2) against classes (4)
    loss.backward();                               // gradients of all parameters
    optimizer.step();                              // parameters move
    if (step % 50 == 0) std::cout << "step " << step << "  loss " << loss.item<float>() << '\n';
  }

  const NoGradGuard no_grad;                                                   // nothing is recorded from here on
  std::cout << "the larger logit of each row:\n" << net(x).argmax(1) << '\n';  // 0 1 1 0
}
