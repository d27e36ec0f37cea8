// The translation unit whose compile time is measured: the umbrella header and a small net with its training step.
#include <gradus/gradus.h>

using namespace gradus;

struct NetImpl : nn::Module {
  NetImpl() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(1, 8, 5)));
    linear = register_module("linear", nn::Linear(8 * 12 * 12, 10));
  }
  Tensor forward(const Tensor& x) {
    const Tensor h = max_pool2d(relu(conv(x)), 2);  // (N, 8, 12, 12)
    return log_softmax(linear(h.flatten(1)), 1);    // (N, 10)
  }
  nn::Conv2d conv{nullptr};
  nn::Linear linear{nullptr};
};
GRADUS_MODULE(Net);

int main() {
  Net net;
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  const Tensor x = randn({64, 1, 28, 28}), labels = randint(10, {64}, DType::i64);
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    nll_loss(net->forward(x), labels).backward();
    optimizer.step();
  }
}
