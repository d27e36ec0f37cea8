// Nets that are divided among ranks, of which one is killed during a step.
#include <gradus/distributed/sharding/fully_sharded.h>
#include <gradus/distributed/sharding/sharded_embedding.h>
#include <gradus/distributed/sharding/tensor_parallel.h>
#include <gradus/distributed/sharding/zero_optimizer.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/processes.h>
#include <gradus/tests/distributed/training.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// Calls `step` without end, and reports when it has done so several times.
void step_without_end(Store& store, const std::function<void()>& step) {
  for (int64_t i = 0;; ++i) {
    step();
    if (i == 3) store.add("running", 1);
  }
}

void train_fully_sharded(const std::shared_ptr<ProcessGroup>& group, Store& store) {
  const Net net = make_net(1, kFloat);
  FullyShardedDataParallel fsdp(net, group);
  optim::Adam adam(fsdp.parameters(), optim::AdamOptions(1e-3));
  const Batch batch = make_batches(1, 4, kFloat)[0];
  step_without_end(store, [&] {
    adam.zero_grad();
    loss_of(net, batch).backward();
    adam.step();
  });
}

void train_zero(const std::shared_ptr<ProcessGroup>& group, Store& store) {
  const Net net = make_net(1, kFloat);
  ZeroRedundancyOptimizer zero(net, group, [](auto shards) { return std::make_unique<optim::Adam>(shards, 1e-3); });
  DistributedDataParallel ddp(net, group, small_buckets());
  const Batch batch = make_batches(1, 4, kFloat)[0];
  step_without_end(store, [&] {
    zero.zero_grad();
    loss_of(net, batch).backward();
    zero.step();
  });
}

void train_tensor_parallel(const std::shared_ptr<ProcessGroup>& group, Store& store) {
  nn::ColumnParallelLinear up(nn::ColumnParallelLinearOptions(12, 24), group);
  nn::RowParallelLinear down(nn::RowParallelLinearOptions(24, 12), group);
  const Tensor x = ones({4, 12});
  step_without_end(store, [&] { down(gelu(up(x))).sum().backward(); });
}

void train_table(const std::shared_ptr<ProcessGroup>& group, Store& store) {
  nn::ShardedEmbedding table(nn::ShardedEmbeddingOptions(100, 8), group);
  const Tensor indices = arange(50).to(kLong) * 2;
  step_without_end(store, [&] {
    table(indices).square().sum().backward();
    table->adagrad_step(1e-3);
  });
}

}  // namespace

TEST_CASE("sharding: a rank that is killed in a step is named by all survivors, which keep no memory of the step",
          "[faults][sharding][processes]") {
  const auto kind = GENERATE(as<std::string>(), "tcp", "shm");
  const auto train = GENERATE(&train_fully_sharded, &train_zero, &train_tensor_parallel, &train_table);
  const int victim = GENERATE(0, 2);
  CAPTURE(kind, victim);
  Processes processes(kind, 3, Milliseconds(30'000), [&](ProcessGroup& group, Store& store) {
    set_num_threads(1);
    const auto held = [] { return runtime(DeviceType::cpu).memory_stats(0).allocated; };
    const int64_t before = held();
    try {
      train(shared(group), store);
    } catch (const CollectiveError&) {
      // A thread of the group may not have released the array yet that it was sending.
      for (const Deadline patience(Milliseconds(5000)); held() != before && !patience.passed();)
        std::this_thread::yield();
      if (held() != before) throw std::runtime_error(std::to_string(held() - before) + " bytes are left");
      throw;
    }
  });
  processes.wait_until_running();
  std::this_thread::sleep_for(std::chrono::microseconds(philox(static_cast<uint64_t>(victim), 7, 0).word[0] % 5000));
  processes.signal(victim, SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == victim) continue;
    const RankResult result = processes.result(rank);
    CHECK(result.status.failure == CommFailure::peer_lost);
    CHECK(result.status.rank == victim);
    CHECK_THAT(result.error, contains("rank " + std::to_string(victim) + " was lost"));
  }
}
