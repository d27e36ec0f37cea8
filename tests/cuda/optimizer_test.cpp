// Optimizer steps in captured graphs: replays use the current learning rate, and steps that cannot be captured throw.
#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

Tensor parameter_on(Device device) { return full({4}, 1.0, TensorOptions(kDouble).device(device)).requires_grad_(); }

}  // namespace

TEST_CASE("a schedule reaches the replays of a captured step") {
  if (no_cuda_device()) return;
  auto train = [](bool captured) {
    const Tensor w = parameter_on(cuda_device());
    optim::SGD optimizer({w}, optim::SGDOptions(0.1).momentum(0.9));
    optim::CosineAnnealingLR schedule(optimizer, 8);
    auto step = [&] {
      optimizer.zero_grad();
      (w * w).sum().backward();
      optimizer.step();
    };
    cuda::Graph graph;
    for (int i = 0; i < 8; ++i) {
      if (captured && i == 2) graph.capture(step);
      if (captured && i >= 2) graph.replay();
      else step();
      schedule.step();
    }
    return w.detach().cpu();
  };
  const Tensor eager = train(false), replayed = train(true);
  CHECK(eager.equal(replayed));
  CHECK_FALSE(eager.equal(ones({4}, kDouble)));
}

TEST_CASE("a step that would allocate or upload in a capture is refused") {
  if (no_cuda_device()) return;
  const Tensor w = parameter_on(cuda_device());
  optim::SGD optimizer({w}, 0.1);
  w.mutable_grad() = ones({4}, TensorOptions(kDouble).device(cuda_device()));
  cuda::Graph graph;
  CHECK_THROWS_WITH(graph.capture([&] { optimizer.step(); }), contains("eager step"));
  optimizer.step();
  optimizer.param_groups()[0].options().set_lr(0.2);
  CHECK_THROWS_WITH(graph.capture([&] { optimizer.step(); }), contains("set_lr"));
  optimizer.set_lr(0.2);
  CHECK_NOTHROW(graph.capture([&] { optimizer.step(); }));
  graph.replay();
  CHECK(w.detach().cpu()[0].item<double>() == Approx(1 - 0.1 - 0.2));
}
