// Training over ranks with GPUs makes the steps of one process, eagerly and captured.
#include <cmath>

#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed_gpu/support.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

Batch on_gpu(const Batch& batch) { return {batch.images.to(kCUDA), batch.labels.to(kCUDA)}; }

/// The parameters after `steps` steps of SGD over the ranks of `group`, captured or not.
std::vector<Tensor> train(ProcessGroup& group, DType dtype, const std::vector<Batch>& batches, bool captured) {
  const Net net = make_net(1 + static_cast<uint64_t>(group.rank()), dtype);
  net->to(kCUDA);
  DistributedDataParallel ddp(net, shared(group), small_buckets());
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  training::CapturedStep step(
      kCUDA, {&sgd},
      [&](const TensorList& batch) -> TensorList {
        sgd.zero_grad();
        const Tensor loss = loss_of(net, {batch[0], batch[1]});
        loss.backward();
        sgd.step();
        return {loss};
      },
      training::CapturedStepOptions().enabled(captured));
  for (const Batch& batch : batches) {
    const Batch own = share(batch, group.rank(), group.size());
    step({own.images, own.labels});
  }
  require(step.captured() == captured, "captured");
  return numbers_of(*net);
}

}  // namespace

TEST_CASE("ddp on GPUs: ranks with shares of a batch make the steps of one process", "[ddp]") {
  const std::string backend = GENERATE(as<std::string>(), "nccl", "tcp", "shm");
  const int ranks = GENERATE(1, 2);
  CAPTURE(backend, ranks);
  if (backend == "nccl" ? no_nccl_for(ranks) : fewer_gpus_than(1)) return;
  on_ranks(ranks, {.backend = backend, .timeout = kTimeout}, [&](ProcessGroup& group) {
    manual_seed(3);
    const auto batches = make_batches(3, 8, kDouble);
    const Net alone = make_net(1, kDouble);
    alone->to(kCUDA);
    optim::SGD sgd(alone->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    for (const Batch& batch : batches) {
      sgd.zero_grad();
      loss_of(alone, on_gpu(batch)).backward();
      sgd.step();
    }
    const double difference = difference_of(train(group, kDouble, batches, false), numbers_of(*alone));
    require(difference < 1e-12, "parameters differ by " + std::to_string(difference * 1e12) + "e-12");
  });
}

TEST_CASE("ddp on GPUs: captured steps have the bits of eager ones", "[ddp]") {
  if (no_nccl_for(2)) return;
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [](ProcessGroup& group) {
    manual_seed(3);
    const auto batches = make_batches(10, 8, kFloat);
    const auto eager = train(group, kFloat, batches, false), captured = train(group, kFloat, batches, true);
    for (size_t i = 0; i < eager.size(); ++i) require(captured[i].equal(eager[i]), "parameter " + std::to_string(i));
  });
}

TEST_CASE("ddp on GPUs: an inf on one rank makes all captured steps skip", "[ddp]") {
  if (no_nccl_for(2)) return;
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    net->to(kCUDA);
    DistributedDataParallel ddp(net, shared(group), small_buckets());
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
    amp::GradScaler scaler(amp::GradScalerOptions().init_scale(16));
    training::CapturedStep step(kCUDA, {&sgd}, [&](const TensorList& batch) -> TensorList {
      sgd.zero_grad();
      scaler.scale(cross_entropy(net(batch[0]), batch[1]) * batch[2]).backward();
      scaler.step(sgd);
      scaler.update();
      return {};
    });
    for (int i = 0; i < 8; ++i) {
      const std::vector<Tensor> before = numbers_of(*net);
      const bool overflows = (i == 1 && group.rank() == 1) || (i == 6 && group.rank() == 0);
      step({ones({2, 1, 4, 4}), zeros({2}, kLong), full({}, overflows ? INFINITY : 1.0)});
      const bool moved = difference_of(numbers_of(*net), before) > 0;
      require(moved == (i != 1 && i != 6), "step " + std::to_string(i));
    }
    require(step.captured() && scaler.get_scale() == 4, "two steps back");
  });
}

TEST_CASE("ddp on GPUs: collectives through the host cannot be captured, with an error that says so", "[ddp]") {
  if (fewer_gpus_than(1)) return;
  two_ranks({.backend = "shm", .timeout = kTimeout}, [](ProcessGroup& group) {
    std::string message;
    try {
      train(group, kFloat, make_batches(5, 4, kFloat), true);
    } catch (const DeviceError& error) { message = error.what(); }
    require(contains_text(message, "take a group of the backend 'nccl'"), message);
    require(group.status().ok(), "the group lives on: nothing has run");
  });
}
