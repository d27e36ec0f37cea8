// 9. An LSTM classifies sequences: each is a sine, a square wave, a sawtooth or noise, with a random phase and pitch.
#include <gradus/gradus.h>
#include <gradus/training/metrics.h>

#include <iostream>

using namespace gradus;

namespace {

constexpr int64_t kLength = 48, kKinds = 4;

/// Returns `count` noisy waves (count, kLength, 1) and their classes (count).
data::Example<> waves(int64_t count) {
  const Tensor kind = randint(kKinds, {count}, kLong);
  const Tensor pitch = 1.5 + 3 * rand({count, 1}), phase = rand({count, 1});
  const Tensor turns = phase + pitch * linspace(0, 1, kLength);  // (count, kLength)
  const Tensor turn = turns - turns.floor();                     // from 0 to 1
  const TensorList shapes = {(6.2831853 * turn).sin(), (turn < 0.5).to(kFloat) * 2 - 1, 2 * turn - 1,
                             randn({count, kLength})};
  Tensor wave = 0.3 * randn({count, kLength});
  for (int64_t k = 0; k < kKinds; ++k) wave += shapes[static_cast<size_t>(k)] * (kind == k).unsqueeze(1);
  return {wave.unsqueeze(2), kind};
}

struct Reader : nn::Module {
  nn::LSTM lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(1, 32).batch_first(true)));
  nn::Linear head = register_module("head", nn::Linear(32, kKinds));

  Tensor forward(const Tensor& x) {                // (N, L, 1)
    const Tensor states = std::get<0>(lstm(x));    // (N, L, 32): the state after each step
    return head(states.select(1, x.size(1) - 1));  // the state after the last step
  }
};

}  // namespace

int main() {
  manual_seed(0);
  const auto net = std::make_shared<Reader>();
  optim::Adam adam(net->parameters(), 5e-3);
  for (int64_t step = 1; step <= 400; ++step) {
    const auto batch = waves(64);
    adam.zero_grad();
    const Tensor loss = cross_entropy(net->forward(batch.data), batch.target);
    loss.backward();
    nn::utils::clip_grad_norm_(net->parameters(), 1.0);  // gradients through many steps can become very large
    adam.step();
    if (step % 100 == 0) std::cout << "step " << step << "  loss " << loss.item<double>() << "\n";
  }
  const NoGradGuard no_grad;
  const auto test = waves(1000);
  training::ConfusionMatrix confusion(kKinds);
  confusion.update(net->forward(test.data), test.target);
  std::cout << "rows: sine, square, sawtooth, noise; columns: what the net says\n"
            << confusion.matrix() << "\n"
            << "right: " << 100 * confusion.accuracy() << " %\n";
}
