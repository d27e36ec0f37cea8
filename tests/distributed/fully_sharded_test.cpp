// Parameters, gradients and optimizer state that are divided among ranks, compared with those of one process.
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include <gradus/core/io/safetensors.h>
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

/// Makes steps from `begin` on with the whole batches in one process.
void train_alone(Net& net, optim::Optimizer& optimizer, const std::vector<Batch>& batches, int begin = 0) {
  for (size_t step = static_cast<size_t>(begin); step < batches.size(); ++step) {
    optimizer.zero_grad();
    loss_of(net, batches[step]).backward();
    optimizer.step();
  }
}

/// Makes the same steps with this rank's shares.
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
    Net net = make_net(1 + static_cast<uint64_t>(group.rank()), kDouble);  // gets the values of rank 0
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

namespace {

struct SkippingImpl : nn::Module {
  SkippingImpl() {
    to(kDouble);
    const NoGradGuard no_grad;
    for (const Tensor& parameter : parameters())
      parameter.copy_(linspace(-1, 1, parameter.numel(), kDouble).view(parameter.sizes()));
  }
  nn::Linear first = register_module("first", nn::Linear(3, 3));
  nn::Linear second = register_module("second", nn::Linear(3, 3));
  bool skips_second = false;
  Tensor forward(const Tensor& x) { return skips_second ? first(x) : second(first(x)); }
};
GRADUS_MODULE(Skipping);

/// Makes two steps of SGD with momentum; the second pass skips a layer. A forward pass without gradients, which calls
/// all layers, comes before each step.
void train_skipping(SkippingImpl& net, const std::vector<Tensor>& parameters) {
  optim::SGD sgd(parameters, optim::SGDOptions(0.1).momentum(0.9));
  for (const bool skips : {false, true}) {
    {
      const NoGradGuard no_grad;
      net.skips_second = false;
      net.forward(ones({2, 3}, kDouble));
    }
    net.skips_second = skips;
    sgd.zero_grad();
    square(net.forward(ones({2, 3}, kDouble))).sum().backward();
    sgd.step();
  }
}

}  // namespace

TEST_CASE("sharded training does not change a unit that a pass does not call", "[sharding]") {
  const Skipping alone;
  train_skipping(*alone, alone->parameters());
  expect_ranks("local", 2, [&](ProcessGroup& group) {
    const Skipping net;
    FullyShardedDataParallel fsdp(net, shared(group), Options());
    train_skipping(*net, fsdp.parameters());
    require(difference_of(values_of(fsdp.full_state_dict()), values_of(alone->state_dict())) < 1e-12, "parameters");
  });
}

TEST_CASE("a forward pass without gradients releases all sharded parameters", "[sharding]") {
  const bool one_unit = GENERATE(false, true);
  expect_ranks("local", 2, [&](ProcessGroup& group) {
    Net net = make_net(1, kDouble);
    Options options;
    if (one_unit) options.is_unit([](const std::string&, const nn::Module&) { return false; });
    const FullyShardedDataParallel fsdp(net, shared(group), options);
    const auto is_released = [](const Tensor& x) { return std::isnan(x.detach().flatten()[0].item<double>()); };
    const NoGradGuard no_grad;
    require(!std::isnan(net(ones({2, 1, 4, 4}, kDouble)).sum().item<double>()), "outputs");
    for (const auto& layer : {net->conv->weight, net->twice->weight, net->out->weight})
      require(is_released(layer), "released");
    require(!is_released(net->frozen->weight), "frozen parameters are whole");
  });
}

namespace {

/// Two units of which one's name begins with that of the other. They have one weight in common.
struct TiedImpl : nn::Module {
  TiedImpl() {
    to(kDouble);
    last->weight = last->replace_parameter("weight", layer->weight);
    const NoGradGuard no_grad;
    for (const Tensor& parameter : parameters())
      parameter.copy_(linspace(-1, 1, parameter.numel(), kDouble).view(parameter.sizes()));
  }
  nn::Linear layer = register_module("layer", nn::Linear(3, 3));
  nn::Linear last = register_module("layer_last", nn::Linear(3, 3));
  Tensor forward(const Tensor& x) { return last(layer(x).tanh()); }
};
GRADUS_MODULE(Tied);

template <class Optimizer>
void train_tied(const Tied& net, Optimizer& optimizer) {
  for (int step = 1; step <= 3; ++step) {
    optimizer.zero_grad();
    square(net(full({2, 3}, step, kDouble))).sum().backward();
    optimizer.step();
  }
}

}  // namespace

TEST_CASE("sharded training of units with a common parameter, and the net without its wrapper", "[sharding]") {
  const Tied alone;
  optim::SGD sgd(alone->parameters(), optim::SGDOptions(0.01).momentum(0.9));
  train_tied(alone, sgd);
  const auto strategy = GENERATE(ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op);
  const bool overlaps = GENERATE(false, true);
  expect_ranks("local", 2, [&](ProcessGroup& group) {
    const Tied net;
    {
      FullyShardedDataParallel fsdp(net, shared(group), Options().sharding_strategy(strategy).overlap_reduce(overlaps));
      optim::SGD own(fsdp.parameters(), optim::SGDOptions(0.01).momentum(0.9));
      train_tied(net, own);
      const nn::StateDict state = fsdp.full_state_dict();
      require(difference_of(values_of(state), values_of(alone->state_dict())) < 1e-12, "parameters");
      for (const auto& part : net->modules()) require(part->has_hooks(), "hooks");
    }
    for (const auto& part : net->modules()) require(!part->has_hooks(), "no hooks are left");
    net->load_state_dict(alone->state_dict());
    const Tensor x = ones({2, 3}, kDouble), y = net(x);
    require(y.equal(alone(x)), "the net works without its wrapper");
    square(y).sum().backward();
    require(net->layer->weight.grad().defined() && net->last->bias.grad().defined(), "its own gradients");
  });
}

namespace {

/// Trains by ZeRO `stage` with Adam over shares of `batches`. Calls `look` at the end, when parameters are whole.
void train_staged(int stage, ProcessGroup& of_rank, const std::vector<Batch>& batches, DType dtype, bool strict,
                  const std::function<void(Net& net)>& look) {
  const auto group = shared(of_rank);
  Net net = make_net(1, dtype);
  if (stage > 1) {
    const auto strategy = stage == 2 ? ShardingStrategy::shard_grad_op : ShardingStrategy::full_shard;
    FullyShardedDataParallel fsdp(net, group, Options().sharding_strategy(strategy).strict(strict));
    const auto optimizer = adam(fsdp.parameters());
    train_sharded(net, fsdp, *optimizer, batches, 0, batches.size());
    Net whole = make_net(2, dtype);
    whole->load_state_dict(fsdp.full_state_dict());
    return look(whole);
  }
  ZeroRedundancyOptimizer zero(net, group, adam);
  DistributedDataParallel ddp(net, group, small_buckets().strict(strict));
  for (const Batch& batch : batches) {
    zero.zero_grad();
    loss_of(net, share(batch, group->rank(), group->size())).backward();
    zero.step();
  }
  look(net);
}

}  // namespace

TEST_CASE("strict sharded training has the bits of one process that adds the shares in order", "[sharding]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(2, 3, 4), stage = GENERATE(1, 2, 3);
  CAPTURE(transport, ranks, stage);
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
    train_staged(stage, group, batches, kFloat, true, [&](Net& net) {
      require(difference_of(values_of(net->state_dict()), values_of(alone->state_dict())) == 0, "the same bits");
    });
  });
}

TEST_CASE("sharded training in float32 equals that of one process after 100 steps", "[sharding]") {
  const int ranks = GENERATE(2, 3, 4), stage = GENERATE(1, 2, 3);
  CAPTURE(ranks, stage);
  std::vector<Batch> batches = make_batches(5, 12, kFloat);
  while (batches.size() < 100) batches.push_back(batches[batches.size() % 5]);
  Net alone = make_net(1, kFloat);
  const std::vector<Tensor> start = numbers_of(*alone);
  const auto reference = adam(alone->parameters());
  train_alone(alone, *reference, batches);
  REQUIRE(difference_of(numbers_of(*alone), start) > 0.1);
  expect_ranks("shm", ranks, [&](ProcessGroup& group) {
    train_staged(stage, group, batches, kFloat, false, [&](Net& net) {
      require(difference_of(values_of(net->state_dict()), values_of(alone->state_dict())) < 1e-3, "parameters");
    });
  });
}

TEST_CASE("keys of optimizer state are divided into a parameter and an entry", "[sharding]") {
  const auto parts = [](const std::string& key) {
    const auto entry = state_entry(key);
    return entry ? std::to_string(entry->parameter) + " " + entry->name : "none";
  };
  CHECK(parts("state.12.exp_avg") == "12 exp_avg");
  CHECK(parts("state.0.max.exp_avg_sq") == "0 max.exp_avg_sq");
  for (const char* key : {"", "state", "state.", "state.x.step", "state.5", "state.5x.step", "param_groups.0.lr"})
    CHECK(parts(key) == "none");
}

TEST_CASE("ZeroRedundancyOptimizer names the entry that a state lacks, or has for no parameter", "[sharding]") {
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  Net net = make_net(1, kDouble);
  ZeroRedundancyOptimizer zero(net, shared(group), adam);
  DistributedDataParallel ddp(net, shared(group), small_buckets());
  loss_of(net, make_batches(1, 4, kDouble)[0]).backward();
  zero.step();
  const optim::StateDict whole = zero.state_dict();
  int lacking = 0;
  for (const auto& item : whole) {
    if (!item.key().ends_with(".exp_avg")) continue;
    ++lacking;
    optim::StateDict state = whole;
    state.erase(item.key());
    CHECK_THROWS_WITH(zero.load_state_dict(state), contains("the state has no '" + item.key() + "', of '"));
  }
  CHECK(lacking > 1);
  optim::StateDict more = whole;
  more.insert("state." + std::to_string(lacking) + ".exp_avg", zeros({1}));
  CHECK_THROWS_WITH(zero.load_state_dict(more), contains("but there are " + std::to_string(lacking) + " parameters"));
  zero.load_state_dict(whole);
  for (const auto& item : zero.state_dict()) CHECK(item->equal(whole[item.key()]));
}

TEST_CASE("a checkpoint of ZeroRedundancyOptimizer continues on another number of ranks", "[sharding]") {
  const int before = GENERATE(1, 2, 3, 4), after = GENERATE(1, 2, 4);
  CAPTURE(before, after);
  const TemporaryDirectory folder;
  const std::vector<Batch> batches = make_batches(kSteps, 12, kDouble);
  Net alone = make_net(1, kDouble);
  const auto reference = adam(alone->parameters());
  train_alone(alone, *reference, batches);
  const auto train_some = [&](ProcessGroup& group, uint64_t seed, size_t begin, size_t end) {
    Net net = make_net(seed, kDouble);
    ZeroRedundancyOptimizer zero(net, shared(group), adam);
    DistributedDataParallel ddp(net, shared(group), small_buckets());
    if (begin > 0) zero.load(folder.path().string());
    for (size_t i = begin; i < end; ++i) {
      zero.zero_grad();
      loss_of(net, share(batches[i], group.rank(), group.size())).backward();
      zero.step();
    }
    if (begin == 0) zero.save(folder.path().string());
    else require(difference_of(numbers_of(*net), numbers_of(*alone)) < 1e-12, "parameters");
  };
  expect_ranks("local", before, [&](ProcessGroup& group) { train_some(group, 1, 0, 2); });
  expect_ranks("local", after, [&](ProcessGroup& group) { train_some(group, 7, 2, batches.size()); });
}

TEST_CASE("a sharded checkpoint continues on another number of ranks", "[sharding]") {
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
    whole->load_state_dict(state);  // a net of one process loads the state, and gives it back
    for (const Tensor& shard : fsdp.parameters()) shard.detach().zero_();
    fsdp.load_full_state_dict(whole->state_dict());
    require(difference_of(values_of(fsdp.full_state_dict()), values_of(state)) == 0, "the full state");
  });
}

TEST_CASE("a whole state is loaded into shards, and into what is not sharded", "[sharding]") {
  expect_ranks("local", 2, [](ProcessGroup& group) {
    Net net = make_net(1, kFloat);
    FullyShardedDataParallel fsdp(net, shared(group));
    nn::StateDict state("Key");
    double value = 0;
    for (const auto& item : fsdp.full_state_dict()) state.insert(item.key(), full(item->sizes(), ++value));
    fsdp.load_full_state_dict(state);
    const nn::StateDict loaded = fsdp.full_state_dict();
    require(loaded.keys() == state.keys(), "keys");
    for (const auto& item : state) require(loaded[item.key()].equal(*item), item.key());
    require(net->frozen->bias.equal(state["frozen.bias"]), "a frozen parameter");
  });
}

TEST_CASE("a damaged sharded checkpoint is an error that changes nothing", "[sharding]") {
  const TemporaryDirectory folder;
  const std::string index = folder.file("index.json");
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  Net net = make_net(1, kFloat);
  FullyShardedDataParallel fsdp(net, shared(group));
  const auto optimizer = adam(fsdp.parameters());
  fsdp.save(folder.path().string(), *optimizer);
  const std::string good(reinterpret_cast<const char*>(io::read_file(index).data()), io::read_file(index).size());
  CHECK(good.starts_with("{\n \"ranks\": 1,\n \"save\": \""));
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
  fails("", "not the index of a sharded checkpoint");
  fails("[1, 2", "not the index of a sharded checkpoint");
  fails("{}", "not the index of a sharded checkpoint");
  fails(changed("\"ranks\": 1", "\"ranks\": -1"), "it is for -1 ranks");
  fails(changed("\"ranks\": 1", "\"ranks\": 9223372036854775807"), "it is for 9223372036854775807 ranks");
  fails(changed("\"ranks\": 1", "\"ranks\": \"x\""), "not the index of a sharded checkpoint");
  fails(changed("\"unit.conv\"", "\"unit.convolution\""), "it has 'unit.convolution', which this net does not have");
  for (const char* name : {"optimizer.other", "optimizer.state.99.exp_avg"})  // with the cut of the convolution
    fails(changed("\"unit.conv\"", "\"" + std::string(name) + "\""),
          "'" + std::string(name) + "' belongs to none of the ");
  fails(changed("'conv.weight' of shape (3, 1, 3, 3)", "'conv.weight' of shape (1, 3, 3, 3)"), "'unit.conv' is 1 x 35");
  fails(changed("\"save\": \"", "\"save\": \"1"), ".safetensors");
  fails(changed("\"save\": \"", "\"save\": \"../"), "a save '../");
  // Changes the entry of the convolution, whose line has 48 elements.
  const auto of_conv = [&](const char* key, const std::string& value) {
    const size_t at = good.find(':', good.find('"' + std::string(key) + '"', good.find("\"unit.conv\""))) + 2;
    return good.substr(0, at) + value + good.substr(good.find_first_of(",\n", at));
  };
  fails(of_conv("length", "64"), "of which the index says parts of 64");
  fails(of_conv("length", "99"), "of which the index says parts of 99");  // 35 and the longest padding
  fails(of_conv("length", "35"), "of which the index says parts of 35");
  fails(changed("\"ranks\": 1", "\"ranks\": 1048577"), "it is for 1048577 ranks");
  fails(changed("\"ranks\": 1", "\"ranks\": 0"), "it is for 0 ranks");
  for (const char* length : {"16", "34", "100", "9999", "9223372036854775807", "-1"})
    fails(of_conv("length", length), std::string("1 parts of ") + length + " are not the 35 of 'unit.conv'");
  const std::string no_length = of_conv("length", "0");
  const size_t of_size = no_length.find(':', no_length.find("\"size\"", no_length.find("\"unit.conv\""))) + 2;
  fails(no_length.substr(0, of_size) + "0" + no_length.substr(no_length.find_first_of(",\n", of_size)),
        "1 parts of 0 are not the 0 of 'unit.conv'");
  for (const char* number : {"7", "-1", "9223372036854775807"}) fails(of_conv("blocks", number), "'unit.conv' is ");
  const size_t cut = good.find('{', good.find("\"unit.conv\"")), cut_end = good.find('}', cut) + 1;
  fails(good.substr(0, cut) + "null" + good.substr(cut_end),
        "'unit.conv' is whole, but in this net 1 x 35 cut along dimension 0 as 'conv.weight' of shape ");
  fails(changed("\"whole.frozen.bias\": null", "\"whole.frozen.bias\": " + good.substr(cut, cut_end - cut)),
        "'whole.frozen.bias' is 1 x 35 cut along dimension 0 as 'conv.weight' of shape ");
  fails(of_conv("dim", "1"), "'unit.conv' is 1 x 35 cut along dimension 1");
  fails(changed("\"whole.frozen.bias\"", "\"optimizer.frozen\""), "it has no 'whole.frozen.bias'");

  // Files that the index does not describe.
  const size_t at = good.find("\"save\": \"") + 9;
  const std::string save = good.substr(at, good.find('"', at) - at), part = folder.file("rank_0." + save);
  std::filesystem::copy(part + ".safetensors", folder.file("rank_0.1" + save) + ".safetensors");
  fails(changed("\"save\": \"", "\"save\": \"1"), "it does not belong to save 1" + save);
  const io::Safetensors whole = io::load_safetensors_with_metadata(part + ".safetensors");
  for (const char* missing : {"unit.conv", "whole.frozen.bias", "optimizer.param_groups.0.lr"}) {
    std::vector<std::pair<std::string, Array>> others(whole.tensors.begin(), whole.tensors.end());
    std::erase_if(others, [&](const auto& tensor) { return tensor.first == missing; });
    REQUIRE(others.size() + 1 == whole.tensors.size());
    io::save_safetensors(part + ".safetensors", others, whole.metadata);
    fails(good, ".safetensors: it has no '" + std::string(missing) + "'");
  }
  io::save_safetensors(part + ".safetensors", {whole.tensors.begin(), whole.tensors.end()}, {});
  fails(good, "it does not belong to save " + save);
  io::save_safetensors(part + ".safetensors", {whole.tensors.begin(), whole.tensors.end()}, whole.metadata);

  io::write_file(index, std::string_view(good));
  fsdp.load(folder.path().string(), *optimizer);
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    if (file.path().extension() == ".safetensors") std::filesystem::remove(file.path());
  CHECK_THROWS_WITH(fsdp.load(folder.path().string(), *optimizer), contains(".safetensors"));
}

namespace {

/// Saves shards in which every element is `value`.
void save_value(ProcessGroup& group, const std::string& folder, double value) {
  Net net = make_net(1, kFloat);
  FullyShardedDataParallel fsdp(net, shared(group));
  for (const Tensor& shard : fsdp.parameters()) shard.detach().fill_(value);
  const optim::SGD sgd(fsdp.parameters(), optim::SGDOptions(value));
  fsdp.save(folder, sgd);
}

/// The value of the elements that were saved. Throws if there are several values.
double loaded_value(const std::string& folder) {
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  Net net = make_net(1, kFloat);
  FullyShardedDataParallel fsdp(net, shared(group));
  optim::SGD sgd(fsdp.parameters(), optim::SGDOptions(1));
  fsdp.load(folder, sgd);
  const double value = sgd.defaults().get_lr() == 1 ? sgd.param_groups()[0].options().get_lr() : 0;
  for (const auto& item : fsdp.full_state_dict())
    if (item.key().find("frozen") == std::string::npos)
      require((item.value() == value).all().item<bool>(), "a mixture of saves");
  return value;
}

}  // namespace

TEST_CASE("a save that ends at any of its collectives leaves the old checkpoint or the new one", "[sharding]") {
  uint64_t begin = 0, end = 0;  // sequence numbers of the second save's collectives
  {
    const TemporaryDirectory folder;
    expect_ranks("local", 2, [&](ProcessGroup& group) {
      save_value(group, folder.path().string(), 2);
      if (group.rank() == 0) begin = group.barrier()->sequence();
      else group.barrier();
      save_value(group, folder.path().string(), 3);
      if (group.rank() == 0) end = group.barrier()->sequence();
      else group.barrier();
    });
    CHECK(loaded_value(folder.path().string()) == 3);
    size_t files = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) files += file.exists() ? 1 : 0;
    CHECK(files == 3);
  }
  REQUIRE(end > begin + 3);
  bool seen[2] = {false, false};
  for (uint64_t sequence = end - 1; sequence > begin; --sequence)
    for (const int victim : {0, 1}) {
      const TemporaryDirectory folder;
      const auto results = run_ranks("local", 2,
                                     [&](ProcessGroup& group) {
                                       save_value(group, folder.path().string(), 2);
                                       group.barrier();
                                       save_value(group, folder.path().string(), 3);
                                     },
                                     {}, {{.rank = victim, .sequence = sequence}});
      CHECK(!results[static_cast<size_t>(victim)].error.empty());
      const double value = loaded_value(folder.path().string());
      CHECK((value == 2 || value == 3));
      seen[value == 3] = true;
    }
  CHECK((seen[0] && seen[1]));
}

TEST_CASE("a save removes the parts of earlier saves, and no other files", "[sharding]") {
  const TemporaryDirectory folder;
  const std::vector<std::string> others = {"rank_notes.txt", "ranks.safetensors", "net.safetensors"};
  for (const std::string& name : others) io::write_file(folder.file(name), "mine");
  for (const int value : {1, 2})
    expect_ranks("local", 2, [&](ProcessGroup& group) { save_value(group, folder.path().string(), value); });
  CHECK(folder.count() == others.size() + 3);  // with the index and the parts of two ranks
  for (const std::string& name : others) CHECK(std::filesystem::exists(folder.file(name)));
  CHECK(loaded_value(folder.path().string()) == 2);
}

TEST_CASE("a save that fails on one rank is an error on all, and leaves the old checkpoint", "[sharding]") {
  const int failing = GENERATE(0, 1);
  const TemporaryDirectory folder;
  const std::string path = folder.path().string();
  expect_ranks("local", 2, [&](ProcessGroup& group) { save_value(group, path, 1); });
  const auto results = run_ranks("local", 2, [&](ProcessGroup& group) {
    save_value(group, group.rank() == failing ? path + "/index.json/x" : path, 2);  // index.json is a file
  });
  CHECK(results[static_cast<size_t>(failing)].error != "");
  CHECK_THAT(results[static_cast<size_t>(1 - failing)].error, contains("another rank could not write its part"));
  CHECK(loaded_value(path) == 1);
}

TEST_CASE("a save that is killed leaves the old checkpoint or the new one", "[sharding][processes]") {
  const uint64_t point = GENERATE(range(1, 7));
  const TemporaryDirectory folder;
  Processes processes("shm", 2, Milliseconds(20'000), [&](ProcessGroup& group, Store& store) {
    for (int64_t value = 2;; ++value) {
      save_value(group, folder.path().string(), static_cast<double>(value));
      if (group.rank() == 0) store.add("saves", 1);
    }
  });
  int64_t saves = 0;
  while ((saves = processes.store().add("saves", 0)) < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(philox(point, 1, 0).word[0] % 8000));
  for (const int rank : {0, 1}) processes.signal(rank, SIGKILL);
  CHECK(loaded_value(folder.path().string()) >= static_cast<double>(saves) + 1);
}

TEST_CASE("ZeroRedundancyOptimizer takes the steps of the plain optimizer", "[sharding]") {
  const auto transport = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(1, 2, 3, 4);
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
    zero.load_state_dict(state);  // its own moments of two steps ago, then those of the plain optimizer
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

namespace {

/// The message of the exception that `call` throws; "" if it throws none.
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) { return error.what(); }
  return "";
}

}  // namespace

TEST_CASE("sharding: after a pass that ended by an exception, passes are errors", "[sharding]") {
  const auto strategy = GENERATE(ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op);
  CAPTURE(static_cast<int>(strategy));
  expect_ranks("local", 1, [&](ProcessGroup& group) {
    nn::Linear twice(3, 3);  // two calls, so that its gradients are sent at the end of the pass
    nn::Sequential net(twice, nn::Tanh(), twice);
    const FullyShardedDataParallel fsdp(net, shared(group), Options().sharding_strategy(strategy));
    bool fails = true;
    const auto step = [&] {
      Tensor x = ones({2, 3}).requires_grad_();
      x.register_hook([&](const Tensor&) -> Tensor {
        if (fails) throw std::runtime_error("out of luck");
        return Tensor();
      });
      return message_of([&] { net(x).sum().backward(); });
    };
    require(step() == "out of luck", "the first pass");
    fails = false;
    const std::string second = step();
    require(second.find("its backward pass ended by an exception") != std::string::npos, "then: " + second);
  });
}

TEST_CASE("sharding: nets of a single parameter are trained, clipped, saved and loaded", "[sharding]") {
  const int wrapper = GENERATE(0, 1, 2);  // FullyShardedDataParallel with either strategy, or ZeroRedundancyOptimizer
  const int ranks = GENERATE(1, 2, 3);
  CAPTURE(wrapper, ranks);
  const auto make = [] {
    nn::Linear net(nn::LinearOptions(4, 2).bias(false));
    const NoGradGuard no_grad;
    net->weight.copy_(linspace(-1, 1, 8).reshape({2, 4}));
    return net;
  };
  const auto loss_of = [](const nn::Linear& net) {
    return net(tensor({{1.0, 2.0, 3.0, 4.0}}).to(kFloat)).square().sum();
  };
  const nn::Linear alone = make();
  optim::SGD sgd(alone->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 4; ++step) {
    sgd.zero_grad();
    loss_of(alone).backward();
    if (wrapper < 2) nn::utils::clip_grad_norm_(alone->parameters(), 0.5);
    sgd.step();
  }
  const TemporaryDirectory folder;
  const std::string path = folder.path().string();
  for (const bool goes_on : {false, true})
    expect_ranks("local", ranks, [&](ProcessGroup& group) {
      const nn::Linear net = make();
      const auto options = optim::SGDOptions(0.1).momentum(0.9);
      if (wrapper == 2) {
        ZeroRedundancyOptimizer zero(net, shared(group), [&](const std::vector<Tensor>& shards) {
          return std::make_unique<optim::SGD>(shards, options);
        });
        DistributedDataParallel ddp(net, shared(group));
        if (goes_on) zero.load(path);
        for (int step = 0; step < 2; ++step) zero.zero_grad(), loss_of(net).backward(), zero.step();
        if (!goes_on) return zero.save(path);
        return require(difference_of({net->weight.detach()}, {alone->weight.detach()}) < 1e-6, "the weight");
      }
      FullyShardedDataParallel fsdp(
          net, shared(group),
          Options().sharding_strategy(wrapper == 0 ? ShardingStrategy::full_shard : ShardingStrategy::shard_grad_op));
      optim::SGD own(fsdp.parameters(), options);
      if (goes_on) fsdp.load(path, own);
      for (int step = 0; step < 2; ++step) {
        own.zero_grad();
        loss_of(net).backward();
        fsdp.clip_grad_norm_(0.5);
        own.step();
      }
      if (!goes_on) return fsdp.save(path, own);
      require(difference_of({fsdp.full_state_dict()["weight"]}, {alone->weight.detach()}) < 1e-6, "the weight");
    });
}

TEST_CASE("sharding: param_dtype computes in bfloat16, and shards stay float32", "[sharding]") {
  const auto strategy = GENERATE(ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op);
  const bool is_half = GENERATE(false, true), offload = GENERATE(false, true);
  CAPTURE(static_cast<int>(strategy), is_half, offload);
  const Batch batch = make_batches(1, 12, kFloat)[0];
  const Net computed = make_net(1, is_half ? kBFloat16 : kFloat), expected = make_net(1, kFloat);
  const auto step_alone = [&] {
    computed->zero_grad();
    cross_entropy(computed(is_half ? batch.images.to(kBFloat16) : batch.images), batch.labels).backward();
    const NoGradGuard no_grad;
    for (size_t i = 0; i < expected->parameters().size(); ++i) {
      const Tensor parameter = expected->parameters()[i], used = computed->parameters()[i];
      if (used.grad().defined()) parameter.sub_(used.grad().to(kFloat), 0.1);
      used.copy_(parameter);
    }
  };
  step_alone(), step_alone();
  expect_ranks("local", 1, [&](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    auto options = Options().sharding_strategy(strategy).cpu_offload(offload);
    if (is_half) options.param_dtype(kBFloat16);
    if (is_half) net->frozen->to(kBFloat16);
    FullyShardedDataParallel fsdp(net, shared(group), options);
    optim::SGD sgd(fsdp.parameters(), optim::SGDOptions(0.1));
    for (int i = 0; i < 2; ++i) {
      sgd.zero_grad();
      const Tensor y = net(batch.images);
      require(y.dtype() == (is_half ? kBFloat16 : kFloat), "the type of the output");
      cross_entropy(y, batch.labels).backward();
      for (const Tensor& shard : fsdp.parameters())
        require(shard.dtype() == kFloat && shard.grad().dtype() == kFloat, "the type of shards and their gradients");
      sgd.step();
    }
    const nn::StateDict state = fsdp.full_state_dict();
    for (const auto& item : expected->named_parameters())
      if (item->requires_grad()) require(difference_of({state[item.key()]}, {item->detach()}) < 1e-6, item.key());
  });
}

TEST_CASE("sharding: a parameter belongs to the innermost unit, or to the net if other units share it", "[sharding]") {
  const auto line = [](int64_t in, int64_t out) { return nn::Linear(nn::LinearOptions(in, out).bias(false)); };
  // The lengths of the shards, which are multiples of 16 elements: of the net itself, then of each unit that has any.
  const auto lengths = [&](const std::set<std::string>& units, bool shared_weight) {
    LocalGroup group(std::make_shared<LocalWorld>(1), 0);
    const nn::Linear of_block = line(4, 5), deep = line(7, 7), of_net = line(1, 1), last = line(9, 9);
    nn::Sequential inner(deep), block(of_block, inner), net(of_net, block, last);  // "1", "1.0", "1.1", "1.1.0", "2"
    if (shared_weight) last->weight = last->replace_parameter("weight", deep->weight);
    const auto is_unit = [&](const std::string& name, const nn::Module&) { return units.contains(name); };
    const FullyShardedDataParallel fsdp(net, shared(group), Options().is_unit(is_unit));
    std::vector<int64_t> found;
    for (const Tensor& shard : fsdp.parameters()) found.push_back(shard.numel());
    return found;
  };
  using Lengths = std::vector<int64_t>;
  CHECK(lengths({}, false) == Lengths{208});
  CHECK(lengths({"1"}, false) == Lengths{112, 96});
  CHECK(lengths({"1", "1.1"}, false) == Lengths{112, 32, 64});
  CHECK(lengths({"1", "1.0", "1.1.0"}, false) == Lengths{112, 32, 64});  // nothing is left for "1"
  CHECK(lengths({"1.1", "2"}, false) == Lengths{48, 64, 96});
  CHECK(lengths({"1", "1.1", "2"}, true) == Lengths{80, 32});  // the common weight is the net's own
  CHECK(lengths({"1", "1.1"}, true) == Lengths{16, 32, 64});
}

TEST_CASE("sharding: param_dtype converts the net's own inputs, if they are floating", "[sharding]") {
  struct SeveralImpl : nn::Module {
    nn::Embedding table = register_module("table", nn::Embedding(5, 3));
    nn::Linear first = register_module("first", nn::Linear(3, 2)), second = register_module("second", nn::Linear(3, 2));
    Tensor forward(const Tensor& x, const Tensor& y, const Tensor& numbers) {
      types = {x.dtype(), y.dtype(), numbers.dtype()};
      return first(x) + second(y) + first(table(numbers));
    }
    std::vector<DType> types;
  };
  expect_ranks("local", 1, [](ProcessGroup& group) {
    const auto net = std::make_shared<SeveralImpl>();
    const Tensor x = ones({4, 3}), numbers = arange(4).to(kLong);
    {
      const FullyShardedDataParallel fsdp(*net, shared(group), Options().param_dtype(kBFloat16));
      nn::call(*net, x, x * 2, numbers).sum().backward();
      require(net->types == std::vector{kBFloat16, kBFloat16, kLong}, "the types of inputs");
    }
    net->to(kFloat);
    const FullyShardedDataParallel fsdp(*net, shared(group));
    nn::call(*net, x, x * 2, numbers).sum().backward();
    require(net->types == std::vector{kFloat, kFloat, kLong}, "without param_dtype");
  });
}

TEST_CASE("sharding: norms of any type are those over all ranks", "[sharding]") {
  const double type = GENERATE(1.0, 2.0, 3.5, double{INFINITY});
  CAPTURE(type);
  const std::vector<Batch> batches = make_batches(1, 12, kDouble);
  const Net alone = make_net(1, kDouble);
  loss_of(alone, batches[0]).backward();
  const double limit = 0.01, norm = nn::utils::clip_grad_norm_(alone->parameters(), limit, type);
  CHECK(norm > limit);
  for (const int ranks : {1, 3})
    expect_ranks("local", ranks, [&](ProcessGroup& group) {
      const Net net = make_net(1, kDouble);
      FullyShardedDataParallel fsdp(net, shared(group));
      loss_of(net, share(batches[0], group.rank(), ranks)).backward();
      const double own = fsdp.clip_grad_norm_(limit, type).item<double>();
      require(std::abs(own / norm - 1) < 1e-12, "the norm is " + std::to_string(own));
      const double clipped = fsdp.clip_grad_norm_(1e9, type).item<double>();  // changes nothing
      require(std::abs(clipped / limit - 1) < 1e-4, "the norm after clipping is " + std::to_string(clipped));
    });
}

TEST_CASE("sharding: parameters keep their strides, and parameters with gaps get none", "[sharding]") {
  const int wrapper = GENERATE(0, 1, 2);
  CAPTURE(wrapper);
  struct Strided : nn::Module {
    Tensor turned, sliced;
    Strided() {
      turned = register_parameter("turned", linspace(-1, 1, 15, kDouble).reshape({5, 3}).t());
      sliced = register_parameter("sliced", Tensor(linspace(1, 2, 20, kDouble).reshape({5, 4}).array().slice(1, 0, 3)));
    }
    Tensor loss() const { return (turned.matmul(sliced)).square().sum(); }  // (3, 3)
  };
  const Strided alone;
  REQUIRE((!alone.turned.is_contiguous() && !alone.sliced.array().is_dense()));
  const auto reference = adam(alone.parameters());
  for (int step = 0; step < 3; ++step) reference->zero_grad(), alone.loss().backward(), reference->step();
  expect_ranks("local", 2, [&](ProcessGroup& group) {
    Strided net;
    const auto check = [&](const Tensor& turned, const Tensor& sliced) {
      require(difference_of({turned, sliced}, {alone.turned.detach(), alone.sliced.detach()}) < 1e-12, "parameters");
    };
    const auto check_state = [&](const optim::StateDict& state) {
      for (const auto& item : reference->state_dict())
        require(difference_of({state[item.key()]}, {item.value()}) < 1e-12, item.key());
    };
    if (wrapper == 0) {  // no module's forward uses the parameters, so there is nothing to train
      FullyShardedDataParallel fsdp(net, shared(group), Options().sharding_strategy(ShardingStrategy::shard_grad_op));
      require(net.turned.array().strides() == alone.turned.array().strides(), "the strides");
      const Strided start;
      nn::StateDict state = fsdp.full_state_dict();
      require(state["turned"].equal(start.turned) && state["sliced"].equal(start.sliced), "the state");
      state["turned"] = (start.turned.detach() * 2).contiguous();
      fsdp.load_full_state_dict(state);
      const nn::StateDict loaded = fsdp.full_state_dict();
      require(loaded["turned"].equal(start.turned * 2) && loaded["sliced"].equal(start.sliced), "the loaded state");
      return;
    }
    if (wrapper == 1) {
      ZeroRedundancyOptimizer zero(net, shared(group), adam);
      for (int step = 0; step < 3; ++step) zero.zero_grad(), net.loss().backward(), zero.step();
      check(net.turned.detach(), net.sliced.detach());
      check_state(zero.state_dict());
      zero.load_state_dict(reference->state_dict());
      check_state(zero.state_dict());
      return;
    }
    const DistributedDataParallel ddp(net, shared(group), small_buckets());
    const auto own = adam(net.parameters());
    for (int step = 0; step < 3; ++step) own->zero_grad(), net.loss().backward(), own->step();
    check(net.turned.detach(), net.sliced.detach());
  });
}

TEST_CASE("ZeroRedundancyOptimizer needs an optimizer of exactly its parts", "[sharding]") {
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  const nn::Linear net(2, 2);
  using Parts = std::vector<Tensor>;
  const std::function<std::unique_ptr<optim::Optimizer>(Parts)> wrong[] = {
      [](const Parts&) { return nullptr; },
      [](const Parts& parts) { return std::make_unique<optim::SGD>(Parts{parts[0]}, 0.1); },
      [](Parts parts) {
        parts.push_back(ones({1}).requires_grad_());
        return std::make_unique<optim::SGD>(parts, 0.1);
      }};
  for (const auto& make : wrong)
    CHECK_THROWS_WITH(ZeroRedundancyOptimizer(net, shared(group), make),
                      "ZeroRedundancyOptimizer: `make` has to give the 2 parts, and nothing else, to an optimizer");
}

TEST_CASE("sharding: errors", "[sharding]") {
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  Net net = make_net(1, kFloat);
  CHECK_THROWS_WITH(FullyShardedDataParallel(net, nullptr), contains("the process group is null"));
  CHECK_THROWS_WITH(FullyShardedDataParallel(net, shared(group), Options().param_dtype(kHalf)),
                    contains("param_dtype takes kBFloat16"));
  CHECK_THROWS_WITH(FullyShardedDataParallel(nn::Flatten(), shared(group)), contains("has no parameters"));
  Net frozen = make_net(1, kFloat);
  for (const Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  CHECK_THROWS_WITH(ZeroRedundancyOptimizer(frozen, shared(group), adam), contains("there are no parameters"));
  Net mixed = make_net(1, kFloat);
  mixed->out->bias.set_data(mixed->out->bias.detach().to(kDouble));
  CHECK_THROWS_WITH(FullyShardedDataParallel(mixed, shared(group)),
                    contains("'out.bias' of float64 on cpu: they cannot share a line of memory"));
  FullyShardedDataParallel fsdp(net, shared(group));
  nn::StateDict state = fsdp.full_state_dict();
  state.erase("out.bias");
  CHECK_THROWS_WITH(fsdp.load_full_state_dict(state), contains("the state has no 'out.bias'"));
  state.insert("out.bias", Tensor());
  CHECK_THROWS_WITH(fsdp.load_full_state_dict(state), contains("the state has no 'out.bias'"));
  state["out.bias"] = ones({3});
  CHECK_THROWS_WITH(fsdp.load_full_state_dict(state), contains("'out.bias' has shape (3,) in the state, (4,) in the"));
  state = fsdp.full_state_dict();
  state.insert("more", ones({1}));
  CHECK_THROWS_WITH(fsdp.load_full_state_dict(state), contains("the net has no 'more', which the state has"));
  const Tensor loss = loss_of(net, make_batches(1, 4, kFloat)[0]);
  const auto optimizer = adam(fsdp.parameters());
  for (const Tensor& shard : fsdp.parameters()) shard.detach().zero_();
  CHECK_THROWS_WITH(loss.backward(), contains("was changed afterwards, perhaps by an optimizer step"));
}

namespace {

/// Many layers of 128 x 128 without bias, 64 KiB each. Each keeps its input of one row for backward.
struct DeepImpl : nn::Module {
  static constexpr int64_t kLayers = 64, kLayerBytes = 128 * 128 * 4;
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

/// The most memory that tensors of this process have in the third of three steps, beyond what they had before `make`.
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

namespace {

/// A net that is sharded over `group` by ZeRO `stage`, and what is needed for a step. Stage 0 is
/// DistributedDataParallel.
struct Staged {
  Deep net;
  std::shared_ptr<DistributedDataParallel> ddp;
  std::shared_ptr<ZeroRedundancyOptimizer> zero;
  std::shared_ptr<FullyShardedDataParallel> fsdp;
  std::shared_ptr<optim::Adam> adam;

  Staged(int stage, const std::shared_ptr<ProcessGroup>& group, Options fsdp_options = {}) {
    const optim::AdamOptions options(1e-3);
    if (stage == 1)
      zero = std::make_shared<ZeroRedundancyOptimizer>(
          net, group, [&](auto shards) { return std::make_unique<optim::Adam>(shards, options); });
    if (stage < 2) ddp = std::make_shared<DistributedDataParallel>(net, group);
    const auto strategy = stage == 2 ? ShardingStrategy::shard_grad_op : ShardingStrategy::full_shard;
    if (stage > 1)
      fsdp = std::make_shared<FullyShardedDataParallel>(net, group, fsdp_options.sharding_strategy(strategy));
    if (!zero) adam = std::make_shared<optim::Adam>(fsdp ? fsdp->parameters() : net->parameters(), options);
  }
  optim::Optimizer& optimizer() { return zero ? zero->local() : *adam; }
  void step() {
    if (zero) zero->zero_grad();
    else adam->zero_grad();
    net(ones({1, 128})).sum().backward();
    if (zero) zero->step();
    else adam->step();
  }
};

}  // namespace

TEST_CASE("sharding: the memory of a rank is that of the formula and the plan", "[sharding][processes]") {
  const int ranks = GENERATE(1, 2, 4);
  CAPTURE(ranks);
  Processes processes("tcp", ranks, Milliseconds(60'000), [](ProcessGroup& of_rank, Store&) {
    const auto group = shared(of_rank);
    const int64_t N = group->size(), layer = DeepImpl::kLayerBytes, P = DeepImpl::kLayers * layer, G = P, S = 2 * P,
                  A = DeepImpl::kLayers * 128 * 4;
    struct Case {
      const char* name;
      int stage;
      Options options;
      int64_t formula;
    };
    const Options one_line = Options().overlap_reduce(false), half = Options().param_dtype(kBFloat16);
    const Case cases[] = {
        {"DDP", 0, {}, P + G + S + A},
        {"ZeRO 1", 1, {}, P + G + S / N + A},
        // The gradients of one unit and, if backward does not wait for them, those of a unit that are being sent.
        {"ZeRO 2", 2, {}, P + (G + S) / N + 2 * layer + A},
        {"ZeRO 2 without overlap", 2, one_line, P + (G + S) / N + layer + A},
        // The parameters of the unit and of the next one.
        {"ZeRO 3", 3, {}, (P + G + S) / N + 2 * layer + 2 * layer + A},
        {"ZeRO 3 without overlap", 3, one_line, (P + G + S) / N + 2 * layer + layer + A},
        {"ZeRO 2 in bfloat16", 2, half, P / 2 + (P + G + S) / N + 2 * layer / 2 + A / 2},
        {"ZeRO 3 in bfloat16", 3, half, (P + G + S) / N + 2 * layer / 2 + 2 * layer / 2 + A / 2},
    };
    for (const auto& [name, stage, options, formula] : cases) {
      const int64_t measured = peak_bytes([&, stage = stage, options = options] {
        const auto staged = std::make_shared<Staged>(stage, group, options);
        return [=] { staged->step(); };
      });
      check_bytes(name, measured, formula);
      if (group->rank() > 0) continue;  // the plan is the same
      Staged staged(stage, std::make_shared<RecordingGroup>(group->rank(), group->size()), options);
      const auto loss = [](const Tensor& y, const Tensor&) { return y.sum(); };
      const int64_t planned = plan(staged.net, {1, 128}, staged.optimizer(), PlanOptions().loss(loss)).peak;
      require(std::abs(planned - measured) < 2048, std::string(name) + ": planned " + std::to_string(planned) +
                                                       " bytes, measured " + std::to_string(measured));
    }
  });
  for (int rank = 0; rank < ranks; ++rank) CHECK(processes.result(rank).error == "");
}

TEST_CASE("sharding: DistributedDataParallel and ZeRO 1 send the bytes of the formula", "[sharding]") {
  const int ranks = GENERATE(2, 8, 64), stage = GENERATE(0, 1);
  const auto group = std::make_shared<RecordingGroup>(1, ranks);
  Staged staged(stage, group);
  staged.step();
  staged.step();
  group->reset_bytes();
  staged.step();
  const int64_t N = ranks, P = DeepImpl::kLayers * DeepImpl::kLayerBytes;
  CHECK(group->bytes(CollectiveKind::all_reduce) == 2 * P / N * (N - 1));
  CHECK(group->bytes(CollectiveKind::all_gather) == stage * P / N * (N - 1));
}

TEST_CASE("sharding: a net beyond one rank's limit trains on two", "[sharding][processes]") {
  const int64_t P = DeepImpl::kLayers * DeepImpl::kLayerBytes;
  const auto train_deep = [](const Deep& net, optim::Optimizer& optimizer) {
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      net(ones({1, 128})).square().sum().backward();
      optimizer.step();
    }
  };
  manual_seed(4);
  const Deep alone;
  optim::Adam whole(alone->parameters(), optim::AdamOptions(1e-3));
  train_deep(alone, whole);
  Processes processes("tcp", 2, Milliseconds(20'000), [&](ProcessGroup& group, Store&) {
    set_memory_limit(Device(), runtime(DeviceType::cpu).memory_stats(0).allocated + P * 5 / 2);  // one rank needs 4 P
    bool is_too_large = false;
    try {
      const Deep net;
      optim::Adam optimizer(net->parameters(), optim::AdamOptions(1e-3));
      train_deep(net, optimizer);
    } catch (const OutOfMemoryError&) { is_too_large = true; }
    require(is_too_large, "one rank has not enough");
    manual_seed(4);
    const Deep net;
    FullyShardedDataParallel fsdp(net, shared(group));
    optim::Adam optimizer(fsdp.parameters(), optim::AdamOptions(1e-3));
    train_deep(net, optimizer);
    NoGradGuard no_grad;
    require(difference_of({net(ones({1, 128}))}, {alone(ones({1, 128}))}) < 1e-5, "the net of one process");
  });
  for (const int rank : {0, 1}) CHECK(processes.result(rank).error == "");
}

TEST_CASE("sharding: the plan for one rank of many, and the bytes of a step, are those of the formula", "[sharding]") {
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
  step();  // so that the shards have changed
  group->reset_bytes();
  step();
  CHECK(group->bytes(CollectiveKind::reduce_scatter) == P / N * (N - 1));
  CHECK(group->bytes(CollectiveKind::all_gather) == (whole ? 1 : 2) * P / N * (N - 1));
}
