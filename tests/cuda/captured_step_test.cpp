// Whole training steps, with schedules, clipping and mixed precision: captured and eager steps give the same bits. The
// error for what cannot be captured names the operator, and the process continues.
#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

#include <cmath>
#include <sstream>

using namespace gradus;
using namespace gradus::test;
using training::CapturedStep;
using training::CapturedStepOptions;

namespace {

struct Setup {
  std::optional<DType> half = std::nullopt;
  bool scaled = false, clipped = false, one_cycle = false;
  MemoryFormat format = MemoryFormat::contiguous;
};

struct Run {
  std::vector<float> losses;
  std::vector<Tensor> parameters, statistics;
  double scale = 0;
  bool captured = false;
};

nn::Sequential small_net() {
  return nn::Sequential(nn::ConvReLU2d(nn::Conv2dOptions(3, 6, 5).padding(2)), nn::MaxPool2d(2), nn::BatchNorm2d(6),
                        nn::Flatten(), nn::Linear(6 * 14 * 14, 32), nn::ReLU(), nn::Dropout(0.2), nn::Linear(32, 10));
}

// Trains for epochs of five batches, the last of which is smaller. If the loss is scaled, the gradients of one step
// overflow.
Run train(bool captured, const Setup& setup) {
  constexpr int kEpochs = 3, kBatches = 5;
  manual_seed(5);
  const Tensor images = randn({kBatches, 32, 1, 28, 28}), labels = randint(0, 10, {kBatches, 32});
  nn::Sequential net = small_net();
  const Device device = cuda_device();
  net->to(device);
  net->to(setup.format);
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.02).momentum(0.9));
  amp::GradScaler scaler(amp::GradScalerOptions().growth_interval(3).enabled(setup.scaled));
  std::unique_ptr<optim::LRScheduler> schedule;
  if (setup.one_cycle)
    schedule = std::make_unique<optim::OneCycleLR>(optimizer, optim::OneCycleLROptions(0.05, kEpochs * kBatches));
  else schedule = std::make_unique<optim::CosineAnnealingLR>(optimizer, kEpochs * kBatches);
  CapturedStep step(
      device, {&optimizer},
      [&](const TensorList& batch) -> TensorList {
        optimizer.zero_grad();
        Tensor loss;
        {
          const amp::Autocast autocast(kCUDA, setup.half, setup.half.has_value());
          loss = cross_entropy(net->forward(batch[0]), batch[1]);
        }
        scaler.scale(loss).backward();
        if (setup.clipped) {
          scaler.unscale_(optimizer);
          nn::utils::clip_grad_norm_on_device_(net->parameters(), 0.5);
        }
        scaler.step(optimizer);
        scaler.update();
        return {loss};
      },
      CapturedStepOptions().enabled(captured));
  Run run;
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (int b = 0; b < kBatches; ++b) {
      const int64_t count = b == kBatches - 1 ? 7 : 32;
      Tensor x = images.select(0, b).narrow(0, 0, count).expand({count, 3, 28, 28}).contiguous(setup.format);
      if (setup.scaled && epoch == 2 && b == 1) x = x * INFINITY;
      run.losses.push_back(step({x, labels.select(0, b).narrow(0, 0, count)})[0].item<float>());
      schedule->step();
    }
  run.captured = step.captured();
  run.scale = scaler.get_scale();
  for (const Tensor& parameter : net->parameters()) run.parameters.push_back(parameter.detach().cpu());
  for (const Tensor& buffer : net->buffers()) run.statistics.push_back(buffer.cpu());
  return run;
}

void check_same_bits(const Setup& setup) {
  const Run eager = train(false, setup), captured = train(true, setup);
  CHECK_FALSE(eager.captured);
  CHECK(captured.captured);
  REQUIRE(eager.losses.size() == captured.losses.size());
  for (size_t i = 0; i < eager.losses.size(); ++i) {
    INFO("step " << i);
    CHECK((eager.losses[i] == captured.losses[i] || (std::isnan(eager.losses[i]) && std::isnan(captured.losses[i]))));
  }
  for (size_t i = 0; i < eager.parameters.size(); ++i) {
    CHECK(eager.parameters[i].equal(captured.parameters[i]));
    CHECK(eager.parameters[i].isfinite().all().item<bool>());
  }
  REQUIRE(eager.statistics.size() == 3);
  for (int i = 0; i < 2; ++i)  // statistics of images with infinities are NaN
    CHECK((setup.scaled || eager.statistics[i].equal(captured.statistics[i])));
  for (const Run* run : {&eager, &captured}) CHECK(run->statistics[2].item<int64_t>() == 15);
  CHECK(eager.scale == captured.scale);
  CHECK(eager.losses[0] != eager.losses[5]);
}

}  // namespace

TEST_CASE("a captured step with schedule, dropout, batch norm and clipping gives the bits of an eager one") {
  if (no_cuda_device()) return;
  check_same_bits({});
  check_same_bits({.clipped = true});
}

TEST_CASE("a captured step in mixed precision gives the bits of an eager one") {
  if (no_cuda_device()) return;
  check_same_bits({.half = kBFloat16});
  check_same_bits({.half = kHalf, .scaled = true});
  check_same_bits({.half = kHalf, .scaled = true, .clipped = true});
}

TEST_CASE("a captured step keeps the order of its inputs in memory") {
  if (no_cuda_device()) return;
  check_same_bits({.format = MemoryFormat::channels_last});
}

TEST_CASE("a schedule that moves momenta captures its steps anew") {
  if (no_cuda_device()) return;
  check_same_bits({.one_cycle = true});
}

TEST_CASE("learning rates set in a group's options reach replays") {
  if (no_cuda_device()) return;
  const auto train_by_hand = [](bool captured) {
    const Tensor w = full({4}, 1.0, TensorOptions(kDouble).device(cuda_device())).requires_grad_();
    optim::SGD optimizer({w}, 0.1);
    CapturedStep step(
        kCUDA, {&optimizer},
        [&](const TensorList& batch) -> TensorList {
          optimizer.zero_grad();
          (w * batch[0]).sum().backward();
          optimizer.step();
          return {};
        },
        CapturedStepOptions().enabled(captured).warm_up(1));
    for (int i = 0; i < 6; ++i) {
      optimizer.param_groups()[0].options().set_lr(0.1 * (i + 1));
      step({full({4}, i + 1.0, kDouble)});
    }
    CHECK(step.captured() == captured);
    return w.detach().cpu();
  };
  CHECK(train_by_hand(false).equal(train_by_hand(true)));
}

TEST_CASE("what cannot be captured names the operator, and the thread goes on") {
  if (no_cuda_device()) return;
  const TensorOptions on_device = TensorOptions(kFloat).device(cuda_device());
  const Tensor x = rand({6}, on_device), mask = x > 0.5, w = rand({6}, on_device).requires_grad_();
  (w * x).sum().backward();
  const Tensor indices = tensor({0, 2}, kLong), numbers = ones({6});
  const std::pair<const char*, std::function<void()>> attempts[] = {
      {"[item]", [&] { x.sum().item<float>(); }},
      {"[print]", [&] { std::ostringstream() << x; }},
      {"[to]", [&] { x.cpu(); }},
      {"[to]", [&] { numbers.to(cuda_device()); }},
      {"[copy_]", [&] { x.copy_(numbers); }},
      {"[nonzero]", [&] { mask.nonzero(); }},
      {"[masked_select]", [&] { x.masked_select(mask); }},
      {"[unique]", [&] { _unique2(x); }},
      {"[index]", [&] { x.index({indices}); }},
      {"[clip_grad_norm_]", [&] { nn::utils::clip_grad_norm_({w}, 1.0); }},
      {"synchronize()", [&] { cuda::synchronize(); }},
  };
  for (const auto& [name, attempt] : attempts) {
    INFO(name);
    cuda::Graph graph;
    CHECK_THROWS_WITH(graph.capture(attempt), contains(name) && contains("captured graph"));
    CHECK_FALSE(cuda_runtime().capturing());
    CHECK((x + 1).sum().item<float>() > 6);  // eager work continues
    const Tensor y = zeros({6}, on_device);
    graph.capture([&] { y.add_(x); });  // the same graph can capture other work
    graph.replay();
    CHECK(y.equal(x));
  }
}

TEST_CASE("memory for a stream outside of the capture is refused; one that joins it may work") {
  if (no_cuda_device()) return;
  const TensorOptions on_device = TensorOptions(kFloat).device(cuda_device());
  const Tensor x = rand({6}, on_device);
  const Stream side = cuda::new_stream();
  cuda::Graph graph;
  const auto work_aside = [&] {
    const cuda::StreamGuard guard(side);
    return x + 1;
  };
  CHECK_THROWS_WITH(graph.capture(work_aside), contains("[add]") && contains("not part of the graph"));
  Tensor y;
  graph.capture([&] {
    cuda::Event forked, joined;
    forked.record();
    {
      const cuda::StreamGuard guard(side);
      forked.wait();
      y = x + 1;
      joined.record();
    }
    joined.wait();
  });
  graph.replay();
  CHECK(y.equal(x + 1));
}

TEST_CASE("a captured step that fails drops its gradients, and goes on eagerly after give_up") {
  if (no_cuda_device()) return;
  const Tensor w = ones({3}, TensorOptions(kFloat).device(cuda_device())).requires_grad_();
  optim::SGD optimizer({w}, 0.25);
  amp::GradScaler scaler;
  double last_loss = 0;
  CapturedStep step(
      kCUDA, {&optimizer},
      [&](const TensorList& batch) -> TensorList {
        optimizer.zero_grad();
        const Tensor loss = (w * batch[0]).sum();
        scaler.scale(loss).backward();
        scaler.step(optimizer);
        last_loss = loss.item<double>();  // waits for the device, so the step cannot be captured
        scaler.update();
        return {};
      },
      CapturedStepOptions().warm_up(1));
  step({ones({3})});
  CHECK(last_loss == 3);
  CHECK_THROWS_WITH(step({ones({3})}), contains("[item]"));
  CHECK_FALSE(w.grad().defined());
  CHECK(w.detach().cpu().equal(full({3}, 0.75)));
  step.give_up();
  for (int i = 0; i < 2; ++i) step({ones({3})});
  CHECK(last_loss == 1.5);
  CHECK(w.detach().cpu().equal(full({3}, 0.25)));
  CHECK(scaler.get_scale() == 65536);
}

TEST_CASE("weights that autocast has cast are cast anew in a capture") {
  if (no_cuda_device()) return;
  const TensorOptions on_device = TensorOptions(kFloat).device(cuda_device());
  const Tensor w = rand({4, 4}, on_device).requires_grad_(), x = rand({4, 4}, on_device);
  const amp::Autocast autocast(kCUDA);
  const NoGradGuard no_grad;
  matmul(x, w);  // autocast keeps the cast weight
  Tensor y;
  cuda::Graph graph;
  graph.capture([&] { y = matmul(x, w); });
  CHECK(matmul(x, w).isfinite().all().item<bool>());  // an eager product does not use the cast that was only recorded
  w.mul_(2);
  graph.replay();
  CHECK(y.equal(matmul(x, w)));
}

TEST_CASE("binary_cross_entropy under autocast on cuda names what to call instead") {
  if (no_cuda_device()) return;
  for (DType dtype : {kFloat, kHalf}) {
    const Tensor p = full({3}, 0.5, TensorOptions(dtype).device(cuda_device()));
    const amp::Autocast autocast(kCUDA);
    CHECK_THROWS_WITH(binary_cross_entropy(p, p),
                      contains("[binary_cross_entropy]") && contains("binary_cross_entropy_with_logits"));
    const amp::Autocast off(kCUDA, {}, false);
    CHECK_NOTHROW(binary_cross_entropy(p, p));
  }
}

TEST_CASE("an Autocast guard learns from a float16 net on the device") {
  if (no_cuda_device()) return;
  manual_seed(2);
  const Device device = cuda_device();
  nn::Sequential net(nn::Linear(8, 64), nn::ReLU(), nn::Linear(64, 4));
  net->to(device);
  optim::Adam optimizer(net->parameters(), optim::AdamOptions(5e-3));
  amp::GradScaler scaler(amp::GradScalerOptions().init_scale(0x1p40));  // far too large: the first steps are skipped
  const Tensor x = randn({64, 8}).to(device), labels = randint(0, 4, {64}).to(device);
  Tensor loss;
  for (int i = 0; i < 150; ++i) {
    optimizer.zero_grad();
    {
      const amp::Autocast autocast(kCUDA);
      loss = cross_entropy(net->forward(x), labels);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  CHECK(loss.item<double>() < 0.1);
  CHECK(scaler.get_scale() < 0x1p40);
  CHECK(scaler.get_scale() >= 0x1p10);
}
