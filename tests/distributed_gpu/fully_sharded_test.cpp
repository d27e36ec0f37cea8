// Parameters, gradients and optimizer state that are divided among GPUs: the results of one process, and nets that are
// too large for one GPU.
#include <cmath>

#include <gradus/distributed/sharding/fully_sharded.h>
#include <gradus/distributed/sharding/tensor_parallel.h>
#include <gradus/distributed/sharding/zero_optimizer.h>
#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed_gpu/support.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

using Options = FullyShardedDataParallelOptions;

std::unique_ptr<optim::Optimizer> adam(const std::vector<Tensor>& parameters) {
  return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01));
}

/// The parameters after steps of Adam with the whole batches on one GPU.
std::vector<Tensor> train_alone(const std::vector<Batch>& batches) {
  const Net net = make_net(1, kDouble);
  net->to(kCUDA);
  const auto optimizer = adam(net->parameters());
  for (const Batch& batch : batches) {
    optimizer->zero_grad();
    loss_of(net, {batch.images.to(kCUDA), batch.labels.to(kCUDA)}).backward();
    optimizer->step();
  }
  net->to(kCPU);
  return numbers_of(*net);
}

Batch own_share(const Batch& batch, const ProcessGroup& group) {
  const Batch own = share(batch, group.rank(), group.size());
  return {own.images.to(kCUDA), own.labels.to(kCUDA)};
}

/// A net of layers with 4 MiB each.
nn::Sequential deep() {
  nn::Sequential net;
  for (int i = 0; i < 16; ++i) net->push_back(nn::Linear(nn::LinearOptions(1024, 1024).bias(false)));
  return net;
}

}  // namespace

TEST_CASE("sharded training on GPUs has the parameters of one process", "[sharding]") {
  const std::string backend = GENERATE(as<std::string>(), "nccl", "tcp", "shm");
  const int ranks = GENERATE(1, 2);
  const bool offload = GENERATE(false, true);
  CAPTURE(backend, ranks, offload);
  if (backend == "nccl" ? no_nccl_for(ranks) : fewer_gpus_than(1)) return;
  on_ranks(ranks, {.backend = backend, .timeout = kTimeout}, [&](ProcessGroup& group) {
    manual_seed(3);
    const auto batches = make_batches(4, 8, kDouble);
    const std::vector<Tensor> expected = train_alone(batches);
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op}) {
      const Net net = make_net(1 + static_cast<uint64_t>(group.rank()), kDouble);
      net->to(kCUDA);
      FullyShardedDataParallel fsdp(net, shared(group), Options().sharding_strategy(strategy).cpu_offload(offload));
      const auto optimizer = adam(fsdp.parameters());
      for (const Batch& batch : batches) {
        optimizer->zero_grad();
        loss_of(net, own_share(batch, group)).backward();
        optimizer->step();
      }
      const Net whole = make_net(9, kDouble);
      whole->load_state_dict(fsdp.full_state_dict());
      const double difference = difference_of(numbers_of(*whole), expected);
      require(difference < 1e-12, "parameters differ by " + std::to_string(difference * 1e12) + "e-12");
    }
    const Net net = make_net(1, kDouble);
    net->to(kCUDA);
    ZeroRedundancyOptimizer zero(net, shared(group), adam);
    DistributedDataParallel ddp(net, shared(group), small_buckets());
    for (const Batch& batch : batches) {
      zero.zero_grad();
      loss_of(net, own_share(batch, group)).backward();
      zero.step();
    }
    net->to(kCPU);
    require(difference_of(numbers_of(*net), expected) < 1e-12, "ZeroRedundancyOptimizer");
  });
}

TEST_CASE("a net beyond the memory limit of one GPU trains on two", "[sharding]") {
  if (no_nccl_for(2)) return;
  const auto losses = [](ProcessGroup& group, int64_t limit, DType dtype) {
    manual_seed(1);
    nn::Sequential net = deep();
    net->to(kCUDA);
    const Tensor x = randn({8, 1024}).to(kCUDA);
    Options options;
    if (dtype != kFloat) options.param_dtype(dtype);
    FullyShardedDataParallel fsdp(net, shared(group), options);
    const auto optimizer = adam(fsdp.parameters());
    set_memory_limit(kCUDA, limit);
    std::vector<double> values;
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      const Tensor loss = net(x).to(kFloat).square().mean();
      loss.backward();
      optimizer->step();
      values.push_back(loss.item<double>());
    }
    set_memory_limit(kCUDA, kNoMemoryLimit);
    return values;
  };
  // Parameters, gradients and state are 256 MiB. A rank needs 128 MiB, four units of 4 MiB, and 32 MiB for cuBLAS.
  const int64_t limit = int64_t{192} << 20;
  on_ranks(1, {.backend = "nccl", .timeout = kTimeout}, [&](ProcessGroup& group) {
    bool refused = false;
    try {
      losses(group, limit, kFloat);
    } catch (const OutOfMemoryError& error) {
      refused = contains_text(error.what(), "beyond the limit of 192 MiB that set_memory_limit gave cuda:");
    }
    require(refused, "one GPU has the memory");
  });
  on_ranks(2, {.backend = "nccl", .timeout = kTimeout}, [&](ProcessGroup& group) {
    const auto sharded = losses(group, limit, kFloat), half = losses(group, limit, kBFloat16);
    require(sharded[2] < sharded[0], "the loss falls");
    for (size_t step = 0; step < 3; ++step)
      require(std::abs(half[step] / sharded[step] - 1) < 0.1, "bfloat16 has the same losses except for rounding");
  });
}

TEST_CASE("tensor-parallel layers on GPUs equal the plain layers", "[sharding]") {
  if (no_nccl_for(2)) return;
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [](ProcessGroup& group) {
    manual_seed(5);
    const nn::Linear up(nn::LinearOptions(16, 32)), down(nn::LinearOptions(32, 16));
    manual_seed(5);
    const nn::ColumnParallelLinear column(nn::ColumnParallelLinearOptions(16, 32), shared(group));
    const nn::RowParallelLinear row(nn::RowParallelLinearOptions(32, 16), shared(group));
    manual_seed(6);
    const Tensor x = randn({4, 16}).to(kCUDA).set_requires_grad(true);
    for (nn::Module* module : std::initializer_list<nn::Module*>{&*up, &*down, &*column, &*row}) module->to(kCUDA);
    const Tensor expected = down->forward(gelu(up->forward(x)));
    expected.square().sum().backward();
    const Tensor dx = x.grad().clone();
    x.zero_grad();
    const Tensor y = row->forward(gelu(column->forward(x)));
    y.square().sum().backward();
    require((y - expected).abs().max().item<double>() < 1e-5, "values");
    require((x.grad() - dx).abs().max().item<double>() < 1e-4, "gradients");
  });
}
