// 8. A generative adversarial net (Goodfellow et al. 2014). The generator makes points; the critic learns to
// distinguish them from real points, and the generator learns to deceive the critic. Real points are near a circle.
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

namespace {

constexpr int64_t kBatch = 256;

/// Real points (kBatch, 2), near the circle of radius 1.
Tensor real_points() {
  const Tensor angle = rand({kBatch}) * 6.2831853;
  const Tensor radius = 1 + 0.05 * randn({kBatch});
  return stack({radius * angle.cos(), radius * angle.sin()}, 1);
}

nn::Sequential make_net(int64_t in, int64_t out) {
  return nn::Sequential(nn::Linear(in, 64), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Linear(64, 64), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Linear(64, out));
}

void describe(const char* what, const Tensor& points) {
  const Tensor radius = points.square().sum({1}).sqrt();
  // Counts in how many of twelve sectors of the circle there are generated points. There are few if the generator
  // always makes similar points.
  const Tensor sector = ((atan2(points.select(1, 1), points.select(1, 0)) / 6.2831853 + 0.5) * 12).floor().clamp(0, 11);
  std::cout << what << ": radius " << radius.mean().item<double>() << " +- " << radius.std().item<double>() << ", "
            << std::get<0>(_unique(sector)).numel() << " of 12 sectors\n";
}

}  // namespace

int main() {
  manual_seed(0);
  nn::Sequential generator = make_net(8, 2), critic = make_net(2, 1);
  const auto options = optim::AdamOptions(1e-3).betas({0.5, 0.99});
  optim::Adam generator_adam(generator->parameters(), options), critic_adam(critic->parameters(), options);
  const Tensor real_label = ones({kBatch, 1}), invented_label = zeros({kBatch, 1});

  describe("before", generator(randn({kBatch, 8})));
  for (int64_t step = 1; step <= 3000; ++step) {
    // Trains the critic to return 1 for real points and 0 for generated points. detach() keeps this step from computing
    // gradients of the generator.
    const Tensor invented = generator(randn({kBatch, 8}));  // (256, 2)
    critic_adam.zero_grad();
    (binary_cross_entropy_with_logits(critic(real_points()), real_label) +
     binary_cross_entropy_with_logits(critic(invented.detach()), invented_label))
        .backward();
    critic_adam.step();

    // Trains the generator to make points for which the critic returns 1.
    generator_adam.zero_grad();
    binary_cross_entropy_with_logits(critic(invented), real_label).backward();
    generator_adam.step();
  }
  const NoGradGuard no_grad;
  describe("real", real_points());
  describe("invented", generator(randn({kBatch, 8})));
}
