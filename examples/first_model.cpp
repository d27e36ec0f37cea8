// A first model: a net learns the exclusive or of two bits.
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

int main() {
  manual_seed(0);
  const Tensor x = tensor({{0., 0.}, {0., 1.}, {1., 0.}, {1., 1.}});  // (4, 2)
  const Tensor y = tensor({0, 1, 1, 0});                              // (4), classes

  nn::Sequential net(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 2));
  optim::Adam optimizer(net->parameters(), 0.05);
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    cross_entropy(net(x), y).backward();
    optimizer.step();
  }
  std::cout << net(x).argmax(1) << '\n';  // 0 1 1 0
}
