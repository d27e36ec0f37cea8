// Nets that change after their wrapper was made: a parameter that the wrapper does not know is an error, and never
// ignored.
#include <gradus/distributed/parallel/distributed_data_parallel.h>
#include <gradus/distributed/sharding/fully_sharded.h>
#include <gradus/distributed/sharding/zero_optimizer.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/ranks.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

struct WatchedImpl : nn::Module {
  WatchedImpl() {
    body = register_module("body", nn::Linear(3, 4));
    norm = register_module("norm", nn::BatchNorm1d(4));
    head = register_module("head", nn::Linear(4, 2));
    body->weight.requires_grad_(false);
  }
  Tensor forward(const Tensor& x) { return head(norm(body(x))); }

  nn::Linear body{nullptr}, head{nullptr};
  nn::BatchNorm1d norm{nullptr};
};
GRADUS_MODULE(Watched);

struct Change {
  std::string name;
  std::function<void(WatchedImpl&)> make;
  std::string error;
};

void freeze_all_but_body(WatchedImpl& net) {
  for (const Tensor& parameter : net.parameters()) parameter.requires_grad_(false);
  net.body->weight.requires_grad_(true);
}

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"unfrozen", [](WatchedImpl& net) { net.body->weight.requires_grad_(true); },
       "the parameter 'body.weight' requires gradients, but did not when the "},
      {"unfrozen alone", freeze_all_but_body, "the parameter 'body.weight' requires gradients, but did not"},
      {"added", [](WatchedImpl& net) { net.register_parameter("more", ones({1})); },
       "the parameter 'more' was added after"},
      {"replaced", [](WatchedImpl& net) { net.head->bias = net.head->replace_parameter("bias", ones({2})); },
       "the parameter 'head.bias' was replaced"},
      {"another head", [](WatchedImpl& net) { net.head = net.replace_module("head", nn::Linear(4, 2)); },
       "the parameter 'head.weight' was replaced"},
      {"removed", [](WatchedImpl& net) { net.unregister_module("head"); }, "the parameter 'head.weight' was removed"},
  };
  return all;
}

void pass(const Watched& net) { net(randn({5, 3}, net->head->weight.dtype())).sum().backward(); }

/// The change comes after one pass and is the same on all ranks, so that they do not disagree.
void expect_error(const std::function<std::function<void()>(const Watched&, ProcessGroup&)>& wrap,
                  const std::function<void(WatchedImpl&)>& change, const std::string& expected) {
  const auto results = run_ranks("local", 2, [&](ProcessGroup& group) {
    const Watched net;
    const auto step = wrap(net, group);
    step();
    change(*net);
    step();
  });
  for (const RankResult& result : results) CHECK_THAT(result.error, contains(expected));
}

std::function<void()> with_ddp(const Watched& net, ProcessGroup& group) {
  const auto ddp = std::make_shared<DistributedDataParallel>(net, shared(group));
  return [ddp, net] { pass(net); };
}

std::function<void()> with_fsdp(const Watched& net, ProcessGroup& group) {
  const auto fsdp = std::make_shared<FullyShardedDataParallel>(net, shared(group));
  return [fsdp, net] { pass(net); };
}

std::function<void()> with_zero(const Watched& net, ProcessGroup& group) {
  const auto zero = std::make_shared<ZeroRedundancyOptimizer>(
      net, shared(group), [](auto shards) { return std::make_unique<optim::SGD>(shards, 0.1); });
  return [zero, net] { pass(net), zero->step(); };
}

}  // namespace

TEST_CASE("ddp: a change of the net after construction is an error that names it", "[changed_net]") {
  for (const Change& change : changes()) {
    CAPTURE(change.name);
    expect_error(with_ddp, change.make, change.error);
  }
  expect_error(
      with_ddp, [](WatchedImpl& net) { net.to(kDouble); },
      "the parameter 'body.weight' is of shape (4, 3), float64 on cpu, but was of shape (4, 3), float32 on cpu");
  expect_error(
      with_ddp, [](WatchedImpl& net) { net.norm->running_mean.set_data(zeros({4})); },
      "the buffer 'norm.running_mean' of shape (4,) was moved or replaced");
  expect_error(
      with_ddp, [](WatchedImpl& net) { net.register_buffer("more", zeros({1})); },
      "the buffer 'more' was added after the DistributedDataParallel was made");
}

TEST_CASE("ddp: a change is noticed although only parts of the net are called", "[changed_net]") {
  const auto by_parts = [](const Watched& net, ProcessGroup& group) -> std::function<void()> {
    const auto ddp = std::make_shared<DistributedDataParallel>(net, shared(group));
    return [ddp, net] { net->head(net->norm(net->body(randn({5, 3})))).sum().backward(); };
  };
  expect_error(
      by_parts, [](WatchedImpl& net) { net.register_parameter("more", ones({1})); },
      "the parameter 'more' was added after the DistributedDataParallel was made");
}

TEST_CASE("ddp: a change on one rank ends the group on all ranks", "[changed_net]") {
  const auto results = run_ranks("tcp", 2, [&](ProcessGroup& group) {
    const Watched net;
    const DistributedDataParallel ddp(net, shared(group));
    if (group.rank() == 1) net->body->weight.requires_grad_(true);
    pass(net);
  });
  for (const RankResult& result : results)
    CHECK_THAT(result.error, contains("the parameter 'body.weight' requires gradients, but did not when"));
  CHECK_THAT(results[0].error, contains("rank 1 ended the group: "));
}

TEST_CASE("ddp: changes that do not affect the averages are allowed", "[changed_net]") {
  expect_ranks("local", 2, [](ProcessGroup& group) {
    const Watched net;
    std::optional<DistributedDataParallel> ddp;
    ddp.emplace(net, shared(group));
    pass(net);
    net->head->bias.requires_grad_(false), net->head->bias.requires_grad_(true);
    net->zero_grad(), net->zero_grad(false);
    net->head->bias.mutable_grad() = ones({2});
    {
      const auto alone = ddp->no_sync();
      pass(net);
    }
    pass(net);
    net->eval();
    {
      const NoGradGuard no_grad;
      net->body->weight.requires_grad_(true);
      net(ones({1, 3}));  // without gradients, so no gradient can be missing
      net->body->weight.requires_grad_(false);
    }
    net->train();
  });
}

TEST_CASE("ddp: a change during no_sync, a change between it and the next pass, and a net that outlives its ddp",
          "[changed_net]") {
  const auto results = run_ranks("local", 2, [](ProcessGroup& group) {
    const Watched net;
    {
      DistributedDataParallel ddp(net, shared(group));
      const auto alone = ddp.no_sync();
      pass(net);
    }
    require(!net->has_hooks(), "they go with it");
    Tensor loss;
    {
      DistributedDataParallel ddp(net, shared(group));
      loss = net(randn({5, 3})).sum();
    }
    net->body->weight.requires_grad_(true);
    loss.backward();  // its ddp has been destroyed
    net->body->weight.requires_grad_(false);
    DistributedDataParallel ddp(net, shared(group));
    const auto alone = ddp.no_sync();
    net->body->weight.requires_grad_(true);
    pass(net);
  });
  for (const RankResult& result : results) CHECK_THAT(result.error, contains("'body.weight' requires gradients"));
  const auto between = run_ranks("local", 2, [](ProcessGroup& group) {
    const Watched net;
    DistributedDataParallel ddp(net, shared(group));
    {
      const auto alone = ddp.no_sync();
      pass(net);
    }
    net->body->weight.requires_grad_(true);
    pass(net);
  });
  for (const RankResult& result : between) CHECK_THAT(result.error, contains("'body.weight' requires gradients"));
}

TEST_CASE("sharding: a change of the net after construction is an error that names it", "[changed_net]") {
  for (const Change& change : changes()) {
    CAPTURE(change.name);
    expect_error(with_fsdp, change.make, change.error);
    expect_error(with_zero, change.make, change.error);
  }
  expect_error(
      with_fsdp, [](WatchedImpl& net) { net.head->bias.requires_grad_(false); },
      "the parameter 'head.bias' was frozen after the FullyShardedDataParallel was made");
  const auto move = [](WatchedImpl& net) { net.head->bias.set_data(zeros({2})); };
  for (const auto& wrap : {with_fsdp, with_zero})
    expect_error(wrap, move, "the numbers of the parameter 'head.bias' were moved or replaced");
  const auto results = run_ranks("local", 2, [](ProcessGroup& group) {
    const Watched net;
    ZeroRedundancyOptimizer zero(net, shared(group),
                                 [](auto shards) { return std::make_unique<optim::SGD>(shards, 0.1); });
    pass(net);
    net->head->bias.set_data(zeros({2}, kDouble));
    zero.step();
  });
  for (const RankResult& result : results)
    CHECK_THAT(result.error, contains("'head.bias' were moved or replaced after the net was sharded, now float64 on"));
}

TEST_CASE("sharding: a frozen parameter, which no rank divides, may be moved", "[changed_net]") {
  expect_ranks("local", 2, [](ProcessGroup& group) {
    const Watched net;
    const FullyShardedDataParallel fsdp(net, shared(group));
    pass(net);
    const Tensor y = net(randn({5, 3}));
    net->body->weight.set_data(net->body->weight.to(kDouble));
    y.sum().backward();
    net->body->weight.set_data(net->body->weight.to(kFloat));
    pass(net);
  });
}
