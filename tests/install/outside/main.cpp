// Prints the version of the library, after one training step of a small layer with it.
#include <cstdio>

#include <gradus/gradus.h>

int main() {
  gradus::manual_seed(1);
  gradus::nn::Linear layer(4, 3);
  gradus::optim::SGD optimizer(layer->parameters(), gradus::optim::SGDOptions(0.1));
  const gradus::Tensor x = gradus::randn({8, 4});
  const gradus::Tensor before = layer(x).pow(2).mean();
  before.backward();
  optimizer.step();
  const gradus::Tensor after = layer(x).pow(2).mean();
  if (!(after.item<float>() < before.item<float>())) return 1;
  std::printf("gradus %s\n", gradus::version().c_str());
}
