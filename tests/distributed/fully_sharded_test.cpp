// Parameters, gradients and optimizer state divided among ranks: the numbers of one process.
#include <filesystem>
#include <numeric>

#include <gradus/distributed/comm/local/recording_group.h>
#include <gradus/distributed/sharding/fully_sharded.h>
#include <gradus/distributed/sharding/zero_optimizer.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/processes.h>
#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed/values.h>
#include <gradus/tests/temporary_directory.h>

namespace {

using namespace gradus;
using namespace gradus::test;
using namespace gradus::dist;

constexpr int kSteps = 4;
using Options = FullyShardedDataParallelOptions;

std::unique_ptr<optim::Optimizer> adam(const std::vector<Tensor>& parameters) {
  return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01).weight_decay(0.1));
}

/// Steps from `begin` on over the whole batches on one process.
void train_alone(Net& net, optim::Optimizer& optimizer, const std::vector<Batch>& batches, int begin = 0) {
  for (size_t step = static_cast<size_t>(begin); step < batches.size(); ++step) {
    optimizer.zero_grad();
    loss_of(net, batches[step]).backward();
    optimizer.step();
  }
}

/// The same on this rank's shares.
void train_sharded(Net& net, FullyShardedDataParallel& fsdp, optim::Optimizer& optimizer,
                   const std::vector<Batch>& batches, size_t begin, size_t end) {
  for (size_t step = begin; step < end; ++step) {
    optimizer.zero_grad();
    loss_of(net, share(batches[step], fsdp.group()->rank(), fsdp.group()->size())).backward();
    optimizer.step();
  }
}

std::vector<Tensor> values_of(const nn::StateDict& state) {
  std::vector<Tensor> values;
  for (const auto& item : state) values.push_back(item.value());
  return values;
}

}  // namespace

TEST_CASE("sharded training has the parameters of one process", "[sharding]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(1, 2, 3, 4);
  const auto strategy = GENERATE(ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op);
  CAPTURE(transport, ranks, static_cast<int>(strategy));
  const std::vector<Batch> batches = make_batches(kSteps, 12, kDouble);
  Net alone = make_net(1, kDouble);
  const auto reference = adam(alone->parameters());
  train_alone(alone, *reference, batches);
  const std::vector<Tensor> expected = values_of(alone->state_dict());
  alone->eval();

  expect_ranks(transport, ranks, [&](ProcessGroup& group) {
    Net net = make_net(1 + static_cast<uint64_t>(group.rank()), kDouble);  // rank 0's values count
    FullyShardedDataParallel fsdp(net, shared(group), Options().sharding_strategy(strategy));
    const auto optimizer = adam(fsdp.parameters());
    train_sharded(net, fsdp, *optimizer, batches, 0, batches.size());
    require(difference_of(values_of(fsdp.full_state_dict()), expected) < 1e-12, "parameters");
    const bool whole = strategy == ShardingStrategy::shard_grad_op;
    require(whole || std::isnan(net->out->weight[0][0].item<double>()), "released parameters are NaN");
    require(!net->out->weight.grad().defined(), "gradients are the shards'");
    NoGradGuard no_grad;
    require(difference_of({net(batches[0].images)}, {alone(batches[0].images)}) < 1e-12, "outputs");
  });
}

TEST_CASE("sharded parameters: units within units, a net without units, and gradients that add up", "[sharding]") {
  const int kind = GENERATE(0, 1, 2);
  const std::vector<Batch> batches = make_batches(2, 12, kDouble);
  Net alone = make_net(1, kDouble);
  optim::SGD sgd(alone->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  for (int pass = 0; pass < 2; ++pass)
    for (const Batch& batch : batches) loss_of(alone, batch).backward();
  const double norm = nn::utils::clip_grad_norm_(alone->parameters(), 0.5);
  sgd.step();
  expect_ranks("local", 2, [&](ProcessGroup& group) {
    Net net = make_net(1, kDouble);
    Options options;
    if (kind == 0) options.is_unit([](const std::string&, const nn::Module&) { return false; });
    if (kind == 1) options.is_unit([](const std::string& name, const nn::Module&) { return name == "twice"; });
    if (kind == 2) options.is_unit([](const std::string&, const nn::Module& part) { return part.children().empty(); });
    FullyShardedDataParallel fsdp(net, shared(group), options);
    optim::SGD own(fsdp.parameters(), optim::SGDOptions(0.1).momentum(0.9));
    for (int pass = 0; pass < 2; ++pass)
      for (const Batch& batch : batches) loss_of(net, share(batch, group.rank(), 2)).backward();
    require(std::abs(fsdp.clip_grad_norm_(0.5).item<double>() - norm) < 1e-12, "the norm over all ranks");
    own.step();
    require(difference_of(values_of(fsdp.full_state_dict()), values_of(alone->state_dict())) < 1e-12, "parameters");
  });
}

TEST_CASE("strict sharded training has the bits of one process that adds the shares in order", "[sharding]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(2, 3);
  const std::vector<Batch> batches = make_batches(3, 12, kFloat);
  Net alone = make_net(1, kFloat);
  const auto reference = adam(alone->parameters());
  for (const Batch& batch : batches) {
    reference->zero_grad();
    for (int rank = 0; rank < ranks; ++rank) loss_of(alone, share(batch, rank, ranks)).backward();
    for (const Tensor& parameter : alone->parameters())
      if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad() / ranks;
    reference->step();
  }
  expect_ranks(transport, ranks, [&](ProcessGroup& group) {
    Net net = make_net(1, kFloat);
    FullyShardedDataParallel fsdp(net, shared(group), Options().strict(true));
    const auto optimizer = adam(fsdp.parameters());
    train_sharded(net, fsdp, *optimizer, batches, 0, batches.size());
    require(difference_of(values_of(fsdp.full_state_dict()), values_of(alone->state_dict())) == 0, "the same bits");
  });
}

TEST_CASE("a sharded checkpoint goes on with another number of ranks", "[sharding]") {
  const int before = GENERATE(1, 2, 3), after = GENERATE(1, 2, 4);
  CAPTURE(before, after);
  const TemporaryDirectory folder;
  const std::vector<Batch> batches = make_batches(kSteps, 12, kDouble);
  Net alone = make_net(1, kDouble);
  const auto reference = adam(alone->parameters());
  train_alone(alone, *reference, batches);
  expect_ranks("local", before, [&](ProcessGroup& group) {
    Net net = make_net(1, kDouble);
    FullyShardedDataParallel fsdp(net, shared(group));
    const auto optimizer = adam(fsdp.parameters());
    train_sharded(net, fsdp, *optimizer, batches, 0, 2);
    fsdp.save(folder.path().string(), *optimizer);
  });
  expect_ranks("local", after, [&](ProcessGroup& group) {
    Net net = make_net(7, kDouble);
    FullyShardedDataParallel fsdp(net, shared(group), Options().sharding_strategy(ShardingStrategy::shard_grad_op));
    const auto optimizer = adam(fsdp.parameters());
    fsdp.load(folder.path().string(), *optimizer);
    train_sharded(net, fsdp, *optimizer, batches, 2, batches.size());
    const nn::StateDict state = fsdp.full_state_dict();
    require(difference_of(values_of(state), values_of(alone->state_dict())) < 1e-12, "parameters");
    Net whole = make_net(9, kDouble);
    whole->load_state_dict(state);  // a net of one process takes it, and gives it back
    for (const Tensor& shard : fsdp.parameters()) shard.detach().zero_();
    fsdp.load_full_state_dict(whole->state_dict());
    require(difference_of(values_of(fsdp.full_state_dict()), values_of(state)) == 0, "the full state");
  });
}

TEST_CASE("a damaged sharded checkpoint is an error that changes nothing", "[sharding]") {
  const TemporaryDirectory folder;
  const std::string index = folder.file("index.json"), shard = folder.file("rank_0.safetensors");
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  Net net = make_net(1, kFloat);
  FullyShardedDataParallel fsdp(net, shared(group));
  const auto optimizer = adam(fsdp.parameters());
  fsdp.save(folder.path().string(), *optimizer);
  const std::string good(reinterpret_cast<const char*>(io::read_file(index).data()), io::read_file(index).size());
  const auto values = values_of(fsdp.full_state_dict());
  const auto fails = [&](const std::string& text, const std::string& with) {
    io::write_file(index, std::string_view(text));
    CHECK_THROWS_WITH(fsdp.load(folder.path().string(), *optimizer), contains(with));
    CHECK(difference_of(values_of(fsdp.full_state_dict()), values) == 0);
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  fails("", "no index of a sharded checkpoint");
  fails("[1, 2", "no index of a sharded checkpoint");
  fails("{}", "no index of a sharded checkpoint");
  fails(changed("\"ranks\": 1", "\"ranks\": -1"), "it is of -1 ranks");
  fails(changed("\"ranks\": 1", "\"ranks\": 9223372036854775807"), "it is of 9223372036854775807 ranks");
  fails(changed("\"ranks\": 1", "\"ranks\": \"x\""), "no index of a sharded checkpoint");
  fails(changed("\"name\": \"conv\"", "\"name\": \"convolution\""), "has other parameters than this net's 'conv'");
  fails(changed("\"begin\": 0", "\"begin\": 16"), "has other parameters");
  fails(changed("\"save\": \"", "\"save\": \"1"), "it is not of the save that");
  const auto with_shard = [&](const std::string& length) {  // of 'conv', whose line has 48 elements
    const size_t at = good.find("\"shard\": ") + 9;
    return good.substr(0, at) + length + good.substr(good.find_first_of(",\n", at));
  };
  fails(with_shard("64"), "but the index says 64 elements");
  for (const char* length : {"16", "9999", "9223372036854775807", "-1"})
    fails(with_shard(length), std::string("1 shards of ") + length + " elements are not the 35 of 'conv'");
  io::write_file(index, std::string_view(good));
  fsdp.load(folder.path().string(), *optimizer);
  std::filesystem::remove(shard);
  CHECK_THROWS_WITH(fsdp.load(folder.path().string(), *optimizer), contains("rank_0.safetensors"));
}

TEST_CASE("ZeroRedundancyOptimizer takes the steps of its optimizer alone", "[sharding]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(1, 2, 3);
  CAPTURE(transport, ranks);
  const std::vector<Batch> batches = make_batches(kSteps, 12, kDouble);
  Net alone = make_net(1, kDouble);
  std::vector<Tensor> trained;
  for (const Tensor& parameter : alone->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  const auto reference = adam(trained);
  train_alone(alone, *reference, batches);
  expect_ranks(transport, ranks, [&](ProcessGroup& group) {
    Net net = make_net(1, kDouble);
    ZeroRedundancyOptimizer zero(net, shared(group), adam);
    DistributedDataParallel ddp(net, shared(group), small_buckets());
    const auto step = [&](ZeroRedundancyOptimizer& optimizer, size_t i) {
      optimizer.zero_grad();
      loss_of(net, share(batches[i], group.rank(), ranks)).backward();
      optimizer.step();
    };
    step(zero, 0);
    step(zero, 1);
    const optim::StateDict state = zero.state_dict();
    step(zero, 2);
    zero.load_state_dict(state);  // its moments of two steps ago, and then those of the optimizer alone
    optim::StateDict again = zero.state_dict();
    for (const auto& item : state) require(difference_of({again[item.key()]}, {item.value()}) == 0, "the state");
    zero.load_state_dict(reference->state_dict());
    again = zero.state_dict();
    for (const auto& item : reference->state_dict())
      require(again[item.key()].sizes() == item->sizes(), "shapes of the optimizer alone");
  });
  expect_ranks(transport, ranks, [&](ProcessGroup& group) {
    Net net = make_net(1, kDouble);
    ZeroRedundancyOptimizer zero(net, shared(group), adam);
    DistributedDataParallel ddp(net, shared(group), small_buckets());
    for (const Batch& batch : batches) {
      zero.zero_grad();
      loss_of(net, share(batch, group.rank(), ranks)).backward();
      zero.step();
    }
    require(difference_of(values_of(net->state_dict()), values_of(alone->state_dict())) < 1e-12, "parameters");
    const optim::StateDict state = zero.state_dict();
    for (const auto& item : reference->state_dict())
      require(difference_of({state[item.key()]}, {item.value()}) < 1e-12, "the state");
  });
}

TEST_CASE("sharding: what cannot be", "[sharding]") {
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  Net net = make_net(1, kFloat);
  CHECK_THROWS_WITH(FullyShardedDataParallel(net, nullptr), contains("the process group is null"));
  CHECK_THROWS_WITH(FullyShardedDataParallel(net, shared(group), Options().param_dtype(kHalf)),
                    contains("param_dtype takes kBFloat16"));
  CHECK_THROWS_WITH(FullyShardedDataParallel(nn::Flatten(), shared(group)), contains("has no parameters"));
  Net mixed = make_net(1, kFloat);
  mixed->out->bias.set_data(mixed->out->bias.detach().to(kDouble));
  CHECK_THROWS_WITH(FullyShardedDataParallel(mixed, shared(group)),
                    contains("'out.bias' of float64 on cpu: they cannot share a line of memory"));
  FullyShardedDataParallel fsdp(net, shared(group));
  nn::StateDict state = fsdp.full_state_dict();
  state.erase("out.bias");
  CHECK_THROWS_WITH(fsdp.load_full_state_dict(state), contains("the state has no 'out.bias'"));
  const Tensor loss = loss_of(net, make_batches(1, 4, kFloat)[0]);
  const auto optimizer = adam(fsdp.parameters());
  for (const Tensor& shard : fsdp.parameters()) shard.detach().zero_();
  CHECK_THROWS_WITH(loss.backward(), contains("was changed since, by an optimizer's step perhaps"));
}

namespace {

/// Many layers of 128 x 128 without bias, 64 KiB each, each of which keeps its input of one row for backward.
struct DeepImpl : nn::Module {
  static constexpr int64_t kLayers = 192, kLayerBytes = 128 * 128 * 4;
  std::vector<nn::Linear> layers;
  DeepImpl() {
    for (int64_t i = 0; i < kLayers; ++i)
      layers.push_back(
          register_module("layer" + std::to_string(i), nn::Linear(nn::LinearOptions(128, 128).bias(false))));
  }
  Tensor forward(Tensor x) {
    for (nn::Linear& layer : layers) x = layer(x);
    return x;
  }
};
using Deep = nn::ModuleHolder<DeepImpl>;

/// The most that tensors of this process hold in the third of three steps, without what they held before `make`.
template <class Make>
int64_t peak_bytes(const Make& make) {
  DeviceRuntime& cpu = runtime(DeviceType::cpu);
  const int64_t before = cpu.memory_stats(0).allocated;
  auto step = make();
  step();
  step();
  cpu.reset_peak_memory_stats(0);
  step();
  return cpu.memory_stats(0).peak_allocated - before;
}

void check_bytes(const char* what, int64_t measured, int64_t formula) {
  require(std::abs(measured - formula) < formula / 50,
          std::string(what) + ": " + std::to_string(measured) + " bytes, by the formula " + std::to_string(formula));
}

}  // namespace

TEST_CASE("sharding: the memory of a rank is what the formula says", "[sharding][processes]") {
  const int ranks = GENERATE(1, 2, 4);
  CAPTURE(ranks);
  Processes processes("tcp", ranks, Milliseconds(20'000), [](ProcessGroup& of_rank, Store&) {
    const auto group = shared(of_rank);
    const int64_t N = group->size(), layer = DeepImpl::kLayerBytes, P = DeepImpl::kLayers * layer, G = P, S = 2 * P,
                  A = DeepImpl::kLayers * 128 * 4;
    const Tensor x = ones({1, 128});
    const auto adam_of = [](const std::vector<Tensor>& parameters) {
      return std::make_shared<optim::Adam>(parameters, optim::AdamOptions(1e-3));
    };
    const auto zero1 = peak_bytes([&] {
      const Deep net;
      const auto zero = std::make_shared<ZeroRedundancyOptimizer>(
          net, group, [](auto shards) { return std::make_unique<optim::Adam>(shards, 1e-3); });
      const auto ddp = std::make_shared<DistributedDataParallel>(net, group);
      return [=]() mutable {
        zero->zero_grad();
        net(x).sum().backward();
        zero->step();
      };
    });
    // Not with the activations, but with a copy of the shard's gradients the step has its peak.
    check_bytes("ZeRO 1", zero1, P + G + S / N + G / N);
    for (const auto strategy : {ShardingStrategy::shard_grad_op, ShardingStrategy::full_shard}) {
      const auto measured = peak_bytes([&] {
        const Deep net;
        const auto fsdp = std::make_shared<FullyShardedDataParallel>(net, group, Options().sharding_strategy(strategy));
        const auto adam = adam_of(fsdp->parameters());
        return [=, keep = fsdp]() mutable {
          adam->zero_grad();
          net(x).sum().backward();
          adam->step();
        };
      });
      // Two lines of gradients, one that is sent and one that backward adds to, beside that of the shard.
      if (strategy == ShardingStrategy::shard_grad_op) check_bytes("ZeRO 2", measured, P + (G + S) / N + 2 * layer + A);
      else check_bytes("ZeRO 3", measured, (P + G + S) / N + 2 * layer + 2 * layer + A);
    }
  });
  for (int rank = 0; rank < ranks; ++rank) CHECK(processes.result(rank).error == "");
}

TEST_CASE("sharding: plan says the memory of one rank of many, and what a step sends is by the formula", "[sharding]") {
  const int ranks = GENERATE(2, 8, 64);
  const auto strategy = GENERATE(ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op);
  const auto group = std::make_shared<RecordingGroup>(1, ranks);
  const Deep net;
  FullyShardedDataParallel fsdp(net, group, Options().sharding_strategy(strategy));
  optim::Adam adam(fsdp.parameters(), optim::AdamOptions(1e-3));
  const int64_t N = ranks, layer = DeepImpl::kLayerBytes, P = DeepImpl::kLayers * layer, S = 2 * P,
                A = DeepImpl::kLayers * 128 * 4;
  const auto report =
      plan(net, {1, 128}, adam, PlanOptions().loss([](const Tensor& y, const Tensor&) { return y.sum(); }));
  const bool whole = strategy == ShardingStrategy::shard_grad_op;
  const int64_t formula = whole ? P + (P + S) / N + 2 * layer + A : (2 * P + S) / N + 4 * layer + A;
  CAPTURE(report.peak, formula, report.str());
  CHECK(std::abs(report.peak - formula) <= std::max(formula / 50, layer));
  CHECK(!fsdp.parameters()[0].grad().defined());

  const auto step = [&] {
    adam.zero_grad();
    net->forward(ones({1, 128})).sum().backward();
    adam.step();
  };
  step();  // after which shards have changed
  group->reset_bytes();
  step();
  CHECK(group->bytes(CollectiveKind::reduce_scatter) == P / N * (N - 1));
  CHECK(group->bytes(CollectiveKind::all_gather) == (whole ? 1 : 2) * P / N * (N - 1));
}
