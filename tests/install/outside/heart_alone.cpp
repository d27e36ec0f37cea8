// Trains a layer with the heart of gradus alone and prints the backends that the program has.
#include <iostream>

#include <gradus/autograd/autograd.h>
#include <gradus/core/registry.h>
#include <gradus/layers/linear.h>
#include <gradus/optim/optimizers.h>

int main() {
  gradus::manual_seed(1);
  gradus::nn::Linear layer(3, 1);
  gradus::optim::SGD optimizer(layer->parameters(), 0.1);
  const gradus::Tensor x = gradus::randn({16, 3}), y = x.sum(1, true);
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    (layer(x) - y).square().mean().backward();
    optimizer.step();
  }
  const double loss = (layer(x) - y).square().mean().item<double>();
  for (const std::string& name : gradus::backend_names()) std::cout << name << "\n";
  return loss < 1e-2 ? 0 : 1;
}
