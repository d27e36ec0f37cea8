// Tensor-parallel layers compared with the plain layers in one process.
#include <gradus/tests/catch.h>

#include <cmath>
#include <sstream>

#include <gradus/autograd/diagnosis.h>
#include <gradus/distributed/comm/local/recording_group.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/sharding/sharded_embedding.h>
#include <gradus/distributed/sharding/tensor_parallel.h>
#include <gradus/tests/compare.h>
#include <gradus/tests/distributed/ranks.h>
#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed/values.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

constexpr int64_t kVocabulary = 24, kWidth = 24, kHeads = 12, kLength = 12;

/// A decoder with one block of plain layers.
struct PlainDecoderImpl : nn::Module {
  nn::Embedding embed = register_module("embed", nn::Embedding(kVocabulary, kWidth));
  nn::LayerNorm norm1 = register_module("norm1", nn::LayerNorm(std::vector<int64_t>{kWidth}));
  nn::MultiheadAttention attention = register_module(
      "attention", nn::MultiheadAttention(nn::MultiheadAttentionOptions(kWidth, kHeads).batch_first(true)));
  nn::LayerNorm norm2 = register_module("norm2", nn::LayerNorm(std::vector<int64_t>{kWidth}));
  nn::Linear up = register_module("up", nn::Linear(kWidth, 4 * kWidth));
  nn::Linear down = register_module("down", nn::Linear(4 * kWidth, kWidth));
  nn::LayerNorm norm3 = register_module("norm3", nn::LayerNorm(std::vector<int64_t>{kWidth}));
  nn::Linear head = register_module("head", nn::Linear(kWidth, kVocabulary));

  Tensor loss(const Tensor& tokens, const Tensor& targets) {  // (N, L) both
    const Tensor hidden_keys = ones({kLength, kLength}, kBool).triu(1);
    Tensor x = embed(tokens);  // (N, L, E)
    const Tensor y = norm1(x);
    x = x + std::get<0>(attention(y, y, y, Tensor(), false, hidden_keys));
    x = x + down(gelu(up(norm2(x))));
    return cross_entropy(head(norm3(x)).flatten(0, 1), targets.flatten());
  }
};
GRADUS_MODULE(PlainDecoder);

/// The same decoder of tensor-parallel layers, with or without sequence parallelism.
struct ParallelDecoderImpl : nn::Module {
  using Group = std::shared_ptr<ProcessGroup>;
  nn::VocabParallelEmbedding embed{nullptr};
  nn::ParallelSelfAttention attention{nullptr};
  nn::SequenceParallelLayerNorm cut_norms[3] = {nullptr, nullptr, nullptr};
  nn::LayerNorm norms[3] = {nullptr, nullptr, nullptr};
  nn::ColumnParallelLinear up{nullptr}, head{nullptr};
  nn::RowParallelLinear down{nullptr};
  Group group;
  bool cuts;

  ParallelDecoderImpl(const Group& group, bool cuts) : group(group), cuts(cuts) {
    const auto dim = cuts ? std::optional<int64_t>(1) : std::nullopt;
    embed = register_module(
        "embed",
        nn::VocabParallelEmbedding(nn::VocabParallelEmbeddingOptions(kVocabulary, kWidth).sequence_dim(dim), group));
    make_norm(0);
    attention = register_module(
        "attention",
        nn::ParallelSelfAttention(nn::ParallelSelfAttentionOptions(kWidth, kHeads).sequence_dim(dim), group));
    make_norm(1);
    up = register_module(
        "up", nn::ColumnParallelLinear(nn::ColumnParallelLinearOptions(kWidth, 4 * kWidth).sequence_dim(dim), group));
    down = register_module(
        "down", nn::RowParallelLinear(nn::RowParallelLinearOptions(4 * kWidth, kWidth).sequence_dim(dim), group));
    make_norm(2);
    head = register_module("head", nn::ColumnParallelLinear(
                                       nn::ColumnParallelLinearOptions(kWidth, kVocabulary).sequence_dim(dim), group));
  }
  void make_norm(size_t i) {
    const std::string name = "norm" + std::to_string(i + 1);
    const nn::LayerNormOptions options({kWidth});
    if (cuts) cut_norms[i] = register_module(name, nn::SequenceParallelLayerNorm(options, group));
    else norms[i] = register_module(name, nn::LayerNorm(options));
  }
  Tensor norm(size_t i, const Tensor& x) { return cuts ? cut_norms[i](x) : norms[i](x); }

  Tensor loss(const Tensor& tokens, const Tensor& targets) {
    const Tensor seen_keys = ones({kLength, kLength}, kBool).tril();
    Tensor x = embed(tokens);  // (N, L, E), with sequence parallelism (N, L / n, E)
    x = x + attention(norm(0, x), seen_keys);
    x = x + down(gelu(up(norm(1, x))));
    return parallel_cross_entropy(head(norm(2, x)), targets, group);
  }
};
GRADUS_MODULE(ParallelDecoder);

template <class M, class... Args>
M make_seeded(DType dtype, uint64_t seed, const Args&... args) {
  const std::lock_guard lock(generator_mutex);
  manual_seed(seed);
  M module(args...);
  module->to(dtype);
  return module;
}

/// The part of a plain layer's tensor that belongs to a rank.
Tensor part_for(const std::string& name, const Tensor& whole, const Tensor& own, int rank, int ranks) {
  if (whole.sizes() == own.sizes()) return whole;
  if (name.find("in_proj") != std::string::npos)
    return whole.reshape({3, ranks, kWidth / ranks, -1}).select(1, rank).reshape(own.sizes());
  const int64_t dim = whole.size(0) == own.size(0) ? 1 : 0;
  return whole.narrow(dim, rank * own.size(dim), own.size(dim));
}

/// Returns "" if all parameters, or with `gradients` their gradients, equal the rank's parts of the plain layers'
/// tensors.
std::string difference_of_parts(nn::Module& parallel, const OrderedDict<std::string, Tensor>& plain, int rank,
                                int ranks, double tolerance, bool gradients) {
  for (const auto& item : parallel.named_parameters()) {
    const Tensor own = gradients ? item->grad() : item->detach();
    const Tensor part = part_for(item.key(), plain[item.key()], own, rank, ranks);
    if (tolerance == 0 && own.equal(part)) continue;
    if (const std::string found = difference(own, part, tolerance); !found.empty()) return item.key() + ": " + found;
  }
  return parallel.named_parameters().size() == plain.size() ? "" : "another number of parameters";
}

struct Text {
  Tensor tokens, targets;
};
Text make_text(int64_t samples) {
  const Tensor all = randint(0, kVocabulary, {samples, kLength + 1}, kLong);
  return {all.narrow(1, 0, kLength).contiguous(), all.narrow(1, 1, kLength).contiguous()};
}

/// The parameters and gradients of a plain decoder after steps of SGD, and the losses.
struct PlainRun {
  std::vector<double> losses;
  OrderedDict<std::string, Tensor> gradients, parameters;
};
PlainRun run_plain(DType dtype, const std::vector<Text>& texts, double lr) {
  const PlainDecoder net = make_seeded<PlainDecoder>(dtype, 3);
  optim::SGD sgd(net->parameters(), optim::SGDOptions(lr));
  PlainRun run;
  for (const Text& text : texts) {
    sgd.zero_grad();
    const Tensor loss = net->loss(text.tokens, text.targets);
    run.losses.push_back(loss.item<double>());
    loss.backward();
    sgd.step();
  }
  for (const auto& item : net->named_parameters()) {
    run.gradients.insert(item.key(), item->grad().clone());
    run.parameters.insert(item.key(), item->detach().clone());
  }
  return run;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) { return error.what(); }
  return "";
}
void require_message(const std::function<void()>& call, const std::string& part) {
  const std::string message = message_of(call);
  require(message.find(part) != std::string::npos, "expected '" + part + "', got '" + message + "'");
}

}  // namespace

TEST_CASE("tensor_parallel: any number of ranks begins with the weights of the plain layers", "[tensor_parallel]") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const bool cuts = GENERATE(false, true);
  CAPTURE(ranks, cuts);
  const PlainDecoder plain = make_seeded<PlainDecoder>(kFloat, 3);
  const uint64_t offset = default_generator().offset();
  expect_ranks("local", ranks, [&](ProcessGroup& group) {
    const std::lock_guard lock(generator_mutex);
    manual_seed(3);
    const ParallelDecoder net(shared(group), cuts);
    require(default_generator().offset() == offset, "the generator is elsewhere");
    require(difference_of_parts(*net, plain->named_parameters(), group.rank(), ranks, 0, false).empty(), "start");
    const auto copy = std::make_shared<nn::ColumnParallelLinearImpl>(*net->up)->clone();
    require(copy->named_parameters()["weight"].equal(net->up->weight), "clone");
  });
}

TEST_CASE("tensor_parallel: exchanges have the gradients of what they compute", "[tensor_parallel]") {
  const int ranks = GENERATE(1, 2, 3, 4);
  CAPTURE(ranks);
  const Tensor x = randn({12, 2}, kDouble), targets = randint(0, 12, {2}, kLong);
  expect_ranks("local", ranks, [&](ProcessGroup& own_group) {
    const auto group = shared(own_group);
    const double own = 0.5 + group->rank();
    // All ranks compute the same function of the same x, so that all check its gradients with the same calls.
    const autograd::GradcheckFunction functions[] = {
        [&](const TensorList& in) -> TensorList {
          return {reduce_from_ranks(copy_to_ranks(in[0], group) * own, group)};
        },
        [&](const TensorList& in) -> TensorList {
          return {gather_from_ranks(scatter_to_ranks(in[0], group, 0).square() * own, group, 0)};
        },
        [&](const TensorList& in) -> TensorList {
          return {gather_from_ranks(scatter_to_ranks(in[0].t(), group).square() * own, group)};
        },
        [&](const TensorList& in) -> TensorList {
          const Tensor all = all_gather_sequence(scatter_to_ranks(in[0].t(), group, 1).square(), group, 1);
          return {gather_from_ranks(reduce_scatter_sequence(all.square() * own, group, 1), group, 1)};
        },
        [&](const TensorList& in) -> TensorList {
          return {parallel_cross_entropy(scatter_to_ranks(in[0].t(), group), targets, group)};
        },
    };
    for (const auto& f : functions) {
      const Tensor input = x.clone().requires_grad_();
      autograd::gradcheck(f, {input});
      autograd::gradgradcheck(f, {input});
    }
    const double sum = ranks * ranks / 2.0;
    require(difference(functions[0]({x})[0], x * sum, 1e-14).empty(), "reduce_from_ranks");
    require(scatter_to_ranks(x, group, 0).equal(x.narrow(0, group->rank() * 12 / ranks, 12 / ranks)), "scatter");
    require(gather_from_ranks(scatter_to_ranks(x.t(), group), group).equal(x.t()), "gather_from_ranks");
    const Tensor given = x + group->rank();
    Tensor summed = x * ranks + ranks * (ranks - 1) / 2.0;
    require(
        difference(reduce_scatter_sequence(given.t(), group, 1), scatter_to_ranks(summed.t(), group, 1), 1e-14).empty(),
        "reduce_scatter_sequence");
  });
}

TEST_CASE("tensor_parallel: a transformer makes the step of one process", "[tensor_parallel]") {
  const std::string kind = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(1, 2, 3, 4);
  const bool cuts = GENERATE(false, true);
  CAPTURE(kind, ranks, cuts);
  manual_seed(11);
  const std::vector<Text> texts = {make_text(2), make_text(3)};
  const PlainRun plain = run_plain(kDouble, texts, 0.1);
  expect_ranks(kind, ranks, [&](ProcessGroup& group) {
    const auto net = make_seeded<ParallelDecoder>(kDouble, 3, shared(group), cuts);
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
    for (size_t i = 0; i < texts.size(); ++i) {
      sgd.zero_grad();
      const Tensor loss = net->loss(texts[i].tokens, texts[i].targets);
      require(std::abs(loss.item<double>() - plain.losses[i]) < 1e-12, "the loss of step " + std::to_string(i));
      loss.backward();
      sgd.step();
    }
    const auto differs = [&](const OrderedDict<std::string, Tensor>& of_plain, bool gradients) {
      return difference_of_parts(*net, of_plain, group.rank(), ranks, 1e-12, gradients);
    };
    require(differs(plain.gradients, true).empty(), "gradient of " + differs(plain.gradients, true));
    require(differs(plain.parameters, false).empty(), differs(plain.parameters, false));
  });
}

TEST_CASE("tensor_parallel: 100 steps in float32 have the losses of one process", "[tensor_parallel]") {
  manual_seed(12);
  const std::vector<Text> texts(100, make_text(2));
  const PlainRun plain = run_plain(kFloat, texts, 0.2);
  CHECK(plain.losses.back() < 0.5 * plain.losses.front());
  const int ranks = GENERATE(2, 3, 4);
  const bool cuts = GENERATE(false, true);
  CAPTURE(ranks, cuts);
  expect_ranks("shm", ranks, [&](ProcessGroup& group) {
    const auto net = make_seeded<ParallelDecoder>(kFloat, 3, shared(group), cuts);
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.2));
    for (size_t i = 0; i < texts.size(); ++i) {
      sgd.zero_grad();
      const Tensor loss = net->loss(texts[i].tokens, texts[i].targets);
      require(std::abs(loss.item<double>() - plain.losses[i]) < 1e-3, "the loss of step " + std::to_string(i));
      loss.backward();
      sgd.step();
    }
  });
}

TEST_CASE("tensor_parallel: a step sends the bytes of the formula", "[tensor_parallel]") {
  const int ranks = GENERATE(2, 3, 4);
  const bool cuts = GENERATE(false, true);
  CAPTURE(ranks, cuts);
  const Text text = make_text(2);
  const auto group = std::make_shared<RecordingGroup>(1, ranks);
  const auto net = make_seeded<ParallelDecoder>(kDouble, 3, group, cuts);
  const Tensor loss = net->loss(text.tokens, text.targets);
  loss.backward();
  using enum CollectiveKind;
  const int64_t positions = 2 * kLength, activation = positions * kWidth * 8, others = ranks - 1;
  // The loss sends the largest logit of each row, then the sum of exponentials and the target's logit.
  int64_t reduced = 3 * positions * 8;
  // Activations are reduced after embedding, attention and MLP, and in backward before attention, MLP and head.
  if (!cuts) reduced += 6 * activation;
  else reduced += (3 * 2 + 2) * kWidth * 8;  // gradients of three norms and two biases
  const int64_t gathered = cuts ? 6 * activation / ranks : 0;
  CHECK(group->bytes(all_reduce) == 2 * reduced * others / ranks);
  CHECK(group->bytes(all_gather) == gathered * others);
  CHECK(group->bytes(reduce_scatter) == gathered * others);
}

TEST_CASE("tensor_parallel: a mesh of two by two trains with DistributedDataParallel", "[tensor_parallel]") {
  const std::string kind = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const bool cuts = GENERATE(false, true);
  CAPTURE(kind, cuts);
  manual_seed(13);
  const std::vector<Text> texts = {make_text(4), make_text(4), make_text(4)};
  const PlainRun plain = run_plain(kDouble, texts, 0.1);
  expect_ranks(kind, 4, [&](ProcessGroup& group) {
    const auto mesh = make_mesh(shared(group), {2, 2});
    const int row = group.rank() / 2, column = group.rank() % 2;
    require(mesh[0]->ranks() == std::vector<int>{column, column + 2} && mesh[0]->rank() == row, "data dimension");
    require(mesh[1]->ranks() == std::vector<int>{2 * row, 2 * row + 1} && mesh[1]->rank() == column,
            "tensor dimension");
    // The second copy of the net begins with different values, and gets the values of the first copy.
    const auto net = make_seeded<ParallelDecoder>(kDouble, row == 0 ? 3 : 99, mesh[1], cuts);
    const DistributedDataParallel ddp(net, mesh[0], small_buckets());
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
    for (const Text& text : texts) {
      sgd.zero_grad();
      net->loss(text.tokens.narrow(0, 2 * row, 2).contiguous(), text.targets.narrow(0, 2 * row, 2).contiguous())
          .backward();
      sgd.step();
    }
    const std::string differs = difference_of_parts(*net, plain.parameters, column, 2, 1e-12, false);
    require(differs.empty(), differs);
  });
  expect_ranks("local", 4, [&](ProcessGroup& group) {
    const auto cube = make_mesh(shared(group), {1, 4, 1});
    require(cube.size() == 3 && cube[0]->size() == 1 && cube[1]->size() == 4 && cube[2]->size() == 1, "three sizes");
    require_message([&] { make_mesh(shared(group), {2, 3}); }, "a mesh of sizes (2, 3) does not have 4 ranks");
    require_message([&] { make_mesh(shared(group), {-2, -2}); }, "a dimension of -2 ranks");
    for (const Shape& sizes : {Shape{0}, Shape{4, 0}, Shape{0, 4}})
      require_message([&] { make_mesh(shared(group), sizes); }, "a mesh cannot have a dimension of 0 ranks");
    require_message([&] { make_mesh(shared(group), {8}); }, "a mesh of sizes (8,) does not have 4 ranks");
    require_message([&] { make_mesh(shared(group), {2}); }, "a mesh of sizes (2,) does not have 4 ranks");
    require_message([&] { make_mesh(shared(group), {}); }, "a mesh of sizes () does not have 4 ranks");
    require_message([&] { make_mesh(nullptr, {4}); }, "[make_mesh] the process group is null");
  });
}

TEST_CASE("tensor_parallel: clipping over all ranks, and a checkpoint that another number of ranks loads",
          "[tensor_parallel]") {
  const int before = GENERATE(1, 2, 3, 4), after = GENERATE(1, 2, 4);
  const bool cuts = before % 2 == 0;
  CAPTURE(before, after);
  manual_seed(14);
  const std::vector<Text> texts = {make_text(2), make_text(2), make_text(2), make_text(2)};
  const auto step = [](auto& net, const Text& text, optim::Optimizer& optimizer, const auto& clip) {
    optimizer.zero_grad();
    net->loss(text.tokens, text.targets).backward();
    const double norm = clip();
    optimizer.step();
    return norm;
  };
  const PlainDecoder plain = make_seeded<PlainDecoder>(kDouble, 3);
  optim::SGD sgd(plain->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  std::vector<double> norms;
  for (const Text& text : texts)
    norms.push_back(step(plain, text, sgd, [&] { return nn::utils::clip_grad_norm_(plain->parameters(), 0.2); }));
  CHECK(norms[0] > 0.2);
  const TemporaryDirectory folder;
  const auto train = [&](ProcessGroup& of_rank, bool goes_on) {
    const auto group = shared(of_rank);
    const auto net = make_seeded<ParallelDecoder>(kDouble, goes_on ? 99 : 3, group, cuts);
    optim::SGD own(net->parameters(), optim::SGDOptions(goes_on ? 9 : 0.1).momentum(0.9));
    if (goes_on) load_sharded(folder.path().string(), *net, group, &own);
    for (size_t i = goes_on ? 2 : 0; i < (goes_on ? 4u : 2u); ++i) {
      const double norm = step(net, texts[i], own, [&] { return clip_grad_norm_(*net, group, 0.2).item<double>(); });
      require(std::abs(norm - norms[i]) < 1e-12, "norm of step " + std::to_string(i));
    }
    if (!goes_on) return save_sharded(folder.path().string(), *net, group, &own);
    const auto expected = plain->named_parameters();
    const std::string differs = difference_of_parts(*net, expected, group->rank(), after, 1e-12, false);
    require(differs.empty(), differs);
    const ParallelDecoder other = make_seeded<ParallelDecoder>(kDouble, 3, group, cuts);
    const nn::ColumnParallelLinearOptions wider(kWidth, 2 * kVocabulary);
    other->replace_module("head", make_seeded<nn::ColumnParallelLinear>(kDouble, 3, wider, group));
    require_message([&] { load_sharded(folder.path().string(), *other, group); },
                    "'head.weight' is 1 x 24 cut along dimension 0, but in this net 1 x 48 cut");
  };
  expect_ranks("local", before, [&](ProcessGroup& group) { train(group, false); });
  expect_ranks("local", after, [&](ProcessGroup& group) { train(group, true); });
}

TEST_CASE("tensor_parallel: norms of any type are those over all ranks", "[tensor_parallel]") {
  const double type = GENERATE(1.0, 2.0, 3.5, double{INFINITY}), limit = 0.01;
  const int ranks = GENERATE(1, 2, 3);
  const bool cuts = GENERATE(false, true);
  CAPTURE(type, ranks, cuts);
  manual_seed(16);
  const Text text = make_text(2);
  const PlainDecoder plain = make_seeded<PlainDecoder>(kDouble, 3);
  plain->loss(text.tokens, text.targets).backward();
  const double norm = nn::utils::clip_grad_norm_(plain->parameters(), limit, type);
  CHECK(norm > limit);
  expect_ranks("local", ranks, [&](ProcessGroup& group) {
    const auto net = make_seeded<ParallelDecoder>(kDouble, 3, shared(group), cuts);
    net->loss(text.tokens, text.targets).backward();
    const double own = clip_grad_norm_(*net, shared(group), limit, type).item<double>();
    require(std::abs(own / norm - 1) < 1e-12, "the norm is " + std::to_string(own));
    OrderedDict<std::string, Tensor> gradients;
    for (const auto& item : plain->named_parameters()) gradients.insert(item.key(), item->grad());
    require(difference_of_parts(*net, gradients, group.rank(), ranks, 1e-12, true).empty(), "clipped gradients");
  });
}

TEST_CASE("tensor_parallel: layers say which of their tensors are divided, and how", "[tensor_parallel]") {
  const auto group = std::make_shared<RecordingGroup>(1, 4);
  const auto text_of = [](const ShardedModule& module) {
    std::ostringstream text;
    for (const auto& [name, checkpoint_name, cut] : module.parts())
      text << name << (name == checkpoint_name ? "" : " as " + checkpoint_name) << ' ' << cut.blocks << " x "
           << cut.size << " by " << cut.length << " along " << cut.dim << ", ";
    return text.str();
  };
  const auto column = nn::ColumnParallelLinearOptions(4, 8);
  CHECK(text_of(*nn::ColumnParallelLinear(column, group)) == "weight 1 x 8 by 2 along 0, bias 1 x 8 by 2 along 0, ");
  CHECK(text_of(*nn::ColumnParallelLinear(nn::ColumnParallelLinearOptions(column).bias(false), group)) ==
        "weight 1 x 8 by 2 along 0, ");
  for (const int64_t out : {1, 4})
    CHECK(text_of(*nn::RowParallelLinear(nn::RowParallelLinearOptions(8, out), group)) ==
          "weight 1 x 8 by 2 along 1, ");
  CHECK(text_of(*nn::VocabParallelEmbedding(nn::VocabParallelEmbeddingOptions(12, 5), group)) ==
        "weight 1 x 12 by 3 along 0, ");
  const auto attention = nn::ParallelSelfAttentionOptions(16, 8);
  CHECK(text_of(*nn::ParallelSelfAttention(attention, group)) ==
        "in_proj_weight 3 x 16 by 4 along 0, in_proj_bias 3 x 16 by 4 along 0, ");
  CHECK(text_of(*nn::ParallelSelfAttention(nn::ParallelSelfAttentionOptions(attention).bias(false), group)) ==
        "in_proj_weight 3 x 16 by 4 along 0, ");
  const nn::ShardedEmbedding table(nn::ShardedEmbeddingOptions(10, 2), group);
  CHECK(text_of(*table) ==
        "weight_1_of_4 as weight 1 x 10 by 3 along 0, squares_1_of_4 as squares 1 x 10 by 3 along 0, ");
}

TEST_CASE("sharded modules: a group and parameters are needed to clip, save and load", "[tensor_parallel]") {
  const auto group = std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), 0);
  const nn::Linear net(2, 2);
  const nn::ReLU empty;
  const TemporaryDirectory folder;
  const std::string path = folder.path().string();
  const std::pair<const char*, std::function<void(const nn::Module&, const GroupPtr&)>> calls[] = {
      {"clip_grad_norm_", [](const nn::Module& of, const GroupPtr& on) { clip_grad_norm_(of, on, 1); }},
      {"save_sharded", [&](const nn::Module& of, const GroupPtr& on) { save_sharded(path, of, on); }},
      {"load_sharded", [&](const nn::Module& of, const GroupPtr& on) { load_sharded(path, of, on); }}};
  for (const auto& [name, call] : calls) {
    const std::string context = "[" + std::string(name) + "] ";
    CHECK_THROWS_WITH(call(*net, nullptr), context + "the process group is null");
    if (std::string(name) != "load_sharded")
      CHECK_THROWS_WITH(call(*empty, group), contains(context) && contains(" has no parameters"));
    CHECK_NOTHROW(call(*net, group));  // without gradients, and then what was saved
  }
  const nn::Linear one(nn::LinearOptions(2, 3).bias(false));  // a single parameter
  const Tensor before = one->weight.detach().clone();
  for (const auto& [name, call] : calls) {
    CAPTURE(name);
    CHECK_NOTHROW(call(*one, group));
  }
  CHECK(one->weight.equal(before));
}

TEST_CASE("tensor_parallel: strict sums have the same bits on every transport", "[tensor_parallel]") {
  const bool cuts = GENERATE(false, true);
  manual_seed(15);
  const std::vector<Text> texts = {make_text(2), make_text(3)};
  std::vector<Tensor> expected;
  for (const char* kind : {"local", "shm", "tcp"})
    expect_ranks(kind, 4, [&](ProcessGroup& group) {
      group.set_strict(true);
      const auto net = make_seeded<ParallelDecoder>(kFloat, 3, shared(group), cuts);
      optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
      for (const Text& text : texts) {
        sgd.zero_grad();
        net->loss(text.tokens, text.targets).backward();
        sgd.step();
      }
      if (group.rank() != 1) return;
      const std::vector<Tensor> numbers = numbers_of(*net);
      if (expected.empty()) expected = numbers;
      for (size_t i = 0; i < numbers.size(); ++i) require(numbers[i].equal(expected[i]), "the same bits");
    });
}

TEST_CASE("tensor_parallel: cross-entropy equals that over all classes", "[tensor_parallel]") {
  const int ranks = GENERATE(1, 2, 4, 8);
  const Reduction reduction = GENERATE(Reduction::mean, Reduction::sum, Reduction::none);
  const int64_t ignored = GENERATE(int64_t{-100}, int64_t{3});
  CAPTURE(ranks, ignored);
  Tensor logits = randn({5, 8}, kDouble) * 1000;  // their exponentials overflow
  const Tensor targets = tensor({1, 3, 7, 3, 0}).to(kLong), weights = arange(1, 6).to(kDouble);
  const auto weighted = [&](const Tensor& loss) {
    return reduction == Reduction::none ? (loss * weights).sum() : loss * 3.0;
  };
  logits.requires_grad_();
  const Tensor expected = cross_entropy(logits, targets, {}, reduction, ignored);
  weighted(expected).backward();
  expect_ranks("local", ranks, [&](ProcessGroup& group) {
    const int64_t count = 8 / ranks, first = group.rank() * count;
    const Tensor own = logits.detach().narrow(1, first, count).clone().requires_grad_();
    const Tensor loss = parallel_cross_entropy(own, targets, shared(group), reduction, ignored);
    require(difference(loss.detach(), expected.detach(), 1e-12).empty(), "loss");
    weighted(loss).backward();
    require(difference(own.grad(), logits.grad().narrow(1, first, count), 1e-12).empty(), "gradient");

    const Tensor of_one = parallel_cross_entropy(own.detach()[1], targets[1], shared(group), reduction);  // one row
    require(difference(of_one, cross_entropy(logits.detach()[1], targets[1], {}, reduction), 1e-12).empty(), "one row");

    const Tensor cubes = own.detach().reshape({5, 1, count}).to(kHalf), places = targets.reshape({5, 1});
    const Tensor of_half = parallel_cross_entropy(cubes, places, shared(group), Reduction::none, ignored);
    require(of_half.sizes() == Shape({5, 1}) && of_half.dtype() == kFloat, "half types are computed in float32");
  });
}

TEST_CASE("tensor_parallel: sizes that cannot be divided among the ranks are errors that name both numbers",
          "[tensor_parallel]") {
  expect_ranks("local", 2, [](ProcessGroup& own) {
    const auto group = shared(own);
    const std::shared_ptr<ProcessGroup> none;
    require_message([&] { nn::ColumnParallelLinear(nn::ColumnParallelLinearOptions(4, 7), group); },
                    "7 output features cannot be shared equally by 2");
    require_message([&] { nn::RowParallelLinear(nn::RowParallelLinearOptions(5, 4), group); },
                    "5 input features cannot be shared equally by 2");
    require_message([&] { nn::VocabParallelEmbedding(nn::VocabParallelEmbeddingOptions(9, 4), group); },
                    "9 rows of an embedding cannot be shared");
    require_message([&] { nn::ParallelSelfAttention(nn::ParallelSelfAttentionOptions(6, 3), group); },
                    "3 heads cannot be shared equally by 2");
    require_message([&] { nn::ParallelSelfAttention(nn::ParallelSelfAttentionOptions(6, 4), group); },
                    "embed_dim 6 cannot be divided into 4 heads");
    for (const auto& [size, heads] : {std::pair(6, 0), {0, 2}, {-6, 2}, {6, -2}})
      require_message([size = size, heads = heads,
                       &group] { nn::ParallelSelfAttention(nn::ParallelSelfAttentionOptions(size, heads), group); },
                      "embed_dim " + std::to_string(size) + " cannot be divided into " + std::to_string(heads) +
                          " heads of equal size");
    require_message([&] { nn::ColumnParallelLinear(nn::ColumnParallelLinearOptions(4, 8), none); },
                    "needs a process group");
    require_message([&] { nn::SequenceParallelLayerNorm(nn::LayerNormOptions({4}), none); }, "needs a process group");
    const std::pair<const char*, std::function<void()>> without_group[] = {
        {"copy_to_ranks", [&] { copy_to_ranks(ones({2}), none); }},
        {"reduce_from_ranks", [&] { reduce_from_ranks(ones({2}), none); }},
        {"scatter_to_ranks", [&] { scatter_to_ranks(ones({2}), none); }},
        {"gather_from_ranks", [&] { gather_from_ranks(ones({2}), none); }},
        {"all_gather_sequence", [&] { all_gather_sequence(ones({2}), none, 0); }},
        {"reduce_scatter_sequence", [&] { reduce_scatter_sequence(ones({2}), none, 0); }},
        {"parallel_cross_entropy", [&] {
           parallel_cross_entropy(ones({1, 2}), zeros({1}, kLong), none);
         }}};
    for (const auto& [name, call] : without_group)
      require_message(call, "[" + std::string(name) + "] the process group is null");
    require_message([&] { nn::RowParallelLinear(nn::RowParallelLinearOptions(4, 8), none); }, "needs a process group");
    require_message([&] { nn::VocabParallelEmbedding(nn::VocabParallelEmbeddingOptions(4, 8), none); },
                    "needs a process group");
    require_message([&] { nn::ParallelSelfAttention(nn::ParallelSelfAttentionOptions(4, 2), none); },
                    "needs a process group");
    require_message([&] { copy_to_ranks(ones({2}, kLong), group); }, "x must be floating, got int64");
    require_message(
        [&] {
          scatter_to_ranks(ones({2, 3}), group);
        },
        "[scatter_to_ranks] dimension 1 of x of shape (2, 3)");
    require_message([&] { reduce_scatter_sequence(ones({3, 2}), group, 0); }, "cannot be cut into 2 equal parts");
    require_message([&] { parallel_cross_entropy(ones({2, 3}), ones({3}, kLong), group); }, "need targets of shape (2");
    const auto targets = [](int64_t last) { return tensor({0, last}).to(kLong); };
    require_message(
        [&] {
          parallel_cross_entropy(ones({2, 3}), targets(6), group);
        },
        "targets: number 1 of them, 6, is outside [0, 6)");
    require_message(
        [&] {
          parallel_cross_entropy(ones({2, 3}), ones({2}), group);
        },
        "targets must be int64 or int32, got float32");
    const nn::VocabParallelEmbedding embed(nn::VocabParallelEmbeddingOptions(4, 3), group);
    require_message([&] { embed(targets(-1)); }, "indices: number 1 of them, -1, is outside [0, 4)");
    require_message([&] { embed(targets(4)); }, "indices: number 1 of them, 4, is outside [0, 4)");
    require_message([&] { embed(tensor({4, 0}, kLong)); }, "indices: number 0 of them, 4, is outside [0, 4)");
    require_message([&] { parallel_cross_entropy(ones({}), ones({}, kLong), group); },
                    "logits of shape () need targets of shape ()");
    require_message([&] { embed(ones({2})); }, "indices must be int64 or int32, got float32");
    const nn::ParallelSelfAttention attention(nn::ParallelSelfAttentionOptions(4, 2), group);
    require_message([&] { attention(ones({3, 4})); }, "x must be (N, L, E), got shape (3, 4)");
    require_message([&] { attention(ones({1, 2, 3, 4})); }, "x must be (N, L, E), got shape (1, 2, 3, 4)");
    for (const auto& [in, out] : {std::pair(0, 4), {4, 0}}) {
      require_message(
          [&, in = in, out = out] { nn::ColumnParallelLinear(nn::ColumnParallelLinearOptions(in, out), group); },
          "features");
      require_message([&, in = in, out = out] { nn::RowParallelLinear(nn::RowParallelLinearOptions(in, out), group); },
                      "features");
    }
    require_message([&] { nn::VocabParallelEmbedding(nn::VocabParallelEmbeddingOptions(4, 0), group); },
                    "an embedding of 0 columns");

    // None of these calls has sent anything. The linear layers in their other modes:
    manual_seed(1);
    const Tensor x = ones({2, 3, 4}).cumsum(2);
    const auto all = nn::ColumnParallelLinear(nn::ColumnParallelLinearOptions(4, 6).gather_output(true), group)(x);
    require(all.sizes() == Shape({2, 3, 6}), "gather_output");
    const nn::RowParallelLinear row(nn::RowParallelLinearOptions(4, 6).input_is_parallel(false).bias(false), group);
    require(row(x).sizes() == Shape({2, 3, 6}) && row->parameters().size() == 1, "input_is_parallel");
    require(embed(tensor({3, 0}).to(kInt)).sizes() == Shape({2, 3}), "int32 indices");
  });
}
