// 3. A first net, which learns the exclusive or of two bits.
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

int main() {
  manual_seed(0);
  const Tensor x = tensor({{0., 0.}, {0., 1.}, {1., 0.}, {1., 1.}});  // (4, 2)
  const Tensor y = tensor({0, 1, 1, 0});                              // (4), the classes

  // Two linear layers. Without the ReLU between them they would collapse into one linear layer, and no line separates
  // these classes.
  nn::Sequential net(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 2));
  std::cout << net << '\n';

  optim::Adam optimizer(net->parameters(), 0.05);
  for (int step = 0; step <= 200; ++step) {
    optimizer.zero_grad();                         // forgets the gradients of the previous step
    const Tensor loss = cross_entropy(net(x), y);  // compares logits (4, 2) with classes (4)
    loss.backward();                               // computes the gradients of all parameters
    optimizer.step();                              // changes the parameters
    if (step % 50 == 0) std::cout << "step " << step << "  loss " << loss.item<float>() << '\n';
  }

  const NoGradGuard no_grad;                                                   // records nothing from here on
  std::cout << "the larger logit of each row:\n" << net(x).argmax(1) << '\n';  // 0 1 1 0
}
