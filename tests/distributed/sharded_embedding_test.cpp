// Tables that are distributed over ranks, compared with a table in one process.
#include <gradus/tests/catch.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <gradus/distributed/comm/local/recording_group.h>
#include <gradus/distributed/sharding/sharded_embedding.h>
#include <gradus/tests/compare.h>
#include <gradus/tests/distributed/processes.h>
#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed/values.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

nn::ShardedEmbedding make_table(ProcessGroup& group, const nn::ShardedEmbeddingOptions& options, DType dtype) {
  const std::lock_guard lock(generator_mutex);
  manual_seed(5);
  nn::ShardedEmbedding table(options, shared(group));
  table->to(dtype);
  return table;
}
nn::Embedding make_plain_table(int64_t rows, int64_t columns, DType dtype) {
  const std::lock_guard lock(generator_mutex);
  manual_seed(5);
  nn::Embedding table(rows, columns);
  table->to(dtype);
  return table;
}

/// Returns "" if this rank's rows of `x` equal the rows of `whole`, up to `tolerance`.
std::string difference_of_rows(const nn::ShardedEmbedding& table, const Tensor& x, const Tensor& whole,
                               double tolerance) {
  int64_t own = 0;
  for (int64_t row = 0; row < whole.size(0); ++row) {
    const auto place = table->place_of(row);
    if (place.rank != table->group->rank()) continue;
    ++own;
    const Tensor ours = x[place.row], theirs = whole[row];
    if (tolerance == 0 ? !ours.equal(theirs) : !difference(ours, theirs, tolerance).empty())
      return "row " + std::to_string(row) + " differs";
  }
  return own == x.size(0) ? "" : "another number of rows";
}

/// Indices of a rank in a step: with duplicates, of different shapes, and none on the last of several ranks.
Tensor indices_of(int rank, int ranks, int step, int64_t rows) {
  if (ranks > 1 && rank == ranks - 1 && step == 0) return empty({0, 2}, kLong);
  const Tensor numbers = arange(6 + 2 * rank) * (3 + step) + 5 * rank;
  return (numbers.square().remainder(rows)).reshape({-1, 2});
}
/// A loss that has a different gradient for each element.
Tensor loss_of_vectors(const Tensor& y, int rank) {
  const Tensor weights = (arange(y.numel(), y.options()) * 0.37 + rank).sin().reshape(y.sizes());
  return (y * weights).sum() + (y * y).sum() * 0.1;
}

/// Row-wise Adagrad, one row after the other.
void adagrad_rows(const Tensor& weight, const Tensor& gradient, std::map<int64_t, double>* squares, double lr) {
  for (int64_t row = 0; row < weight.size(0); ++row) {
    if (gradient[row].abs().sum().item<double>() == 0) continue;
    double& sum = (*squares)[row];
    sum += gradient[row].square().mean().item<double>();
    weight[row].sub_(gradient[row] * (lr / (std::sqrt(sum) + 1e-10)));
  }
}

void require_error(const std::function<void()>& call, const std::string& part) {
  std::string message;
  try {
    call();
  } catch (const Error& error) { message = error.what(); }
  require(message.find(part) != std::string::npos, "expected '" + part + "', got '" + message + "'");
}

}  // namespace

TEST_CASE("sharded_embedding: rows, gradients and steps are those of one table", "[sharded_embedding]") {
  const std::string kind = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(1, 2, 3, 4);
  const auto placement = GENERATE(nn::RowPlacement::range, nn::RowPlacement::hash);
  const int64_t rows = GENERATE(1, 3, 29), columns = 5;
  CAPTURE(kind, ranks, rows);
  const nn::Embedding plain = make_plain_table(rows, columns, kDouble);
  const Tensor start = plain->weight.detach().clone();
  std::map<int64_t, double> squares;
  std::vector<std::vector<Tensor>> vectors;
  std::vector<Tensor> gradients, weights;
  for (int step = 0; step < 3; ++step) {
    plain->zero_grad();
    vectors.emplace_back();
    Tensor loss = zeros({}, kDouble);
    for (int rank = 0; rank < ranks; ++rank) {
      const Tensor y = plain(indices_of(rank, ranks, step, rows));
      vectors.back().push_back(y.detach());
      loss = loss + loss_of_vectors(y, rank) / ranks;
    }
    loss.backward();
    gradients.push_back(plain->weight.grad().clone());
    NoGradGuard no_grad;
    adagrad_rows(plain->weight, gradients.back(), &squares, 0.1);
    weights.push_back(plain->weight.detach().clone());
  }

  expect_ranks(kind, ranks, [&](ProcessGroup& group) {
    const int rank = group.rank();
    const auto table = make_table(group, nn::ShardedEmbeddingOptions(rows, columns).placement(placement), kDouble);
    require(difference_of_rows(table, table->weight.detach(), start, 0).empty(), "start");
    for (int step = 0; step < 3; ++step) {
      const auto at = static_cast<size_t>(step);
      const Tensor indices = indices_of(rank, ranks, step, rows);
      const Tensor y = table(step == 1 ? indices.to(kInt) : indices);
      const Tensor& expected = vectors[at][static_cast<size_t>(rank)];
      require(y.sizes() == expected.sizes(), "shape");
      require(y.numel() == 0 || difference(y.detach(), expected, 1e-12).empty(), "vectors");
      loss_of_vectors(y, rank).backward();
      require(!table->weight.grad().defined(), "there is no dense gradient");
      const auto gradient = table->row_gradient();
      const Tensor dense = zeros_like(table->weight.detach()).index_add(0, gradient.rows, gradient.values);
      require(difference_of_rows(table, dense, gradients[at], 1e-12).empty(), "gradient");
      table->adagrad_step(0.1);
      require(table->row_gradient().rows.numel() == 0, "a step forgets the gradient");
      require(difference_of_rows(table, table->weight.detach(), weights[at], 1e-12).empty(), "weights");
    }
  });
}

TEST_CASE("sharded_embedding: 100 steps with DistributedDataParallel have the losses of one process",
          "[sharded_embedding]") {
  const int64_t rows = 29, columns = 6, samples = 12;
  const int ranks = GENERATE(2, 3, 4);
  CAPTURE(ranks);
  manual_seed(8);
  const Tensor indices = randint(0, rows, {samples, 3}, kLong), labels = indices.sum({1}).remainder(4);
  const auto make_output = [&] {
    const std::lock_guard lock(generator_mutex);
    manual_seed(6);
    return nn::Linear(columns, 4);
  };
  const auto loss_of = [](const Tensor& vectors, const nn::Linear& output, const Tensor& classes) {
    return cross_entropy(output(vectors.sum({1})), classes);
  };
  std::vector<double> losses;
  const nn::Embedding plain = make_plain_table(rows, columns, kFloat);
  {
    const nn::Linear output = make_output();
    optim::SGD sgd(output->parameters(), optim::SGDOptions(0.1));
    std::map<int64_t, double> squares;
    for (int step = 0; step < 100; ++step) {
      sgd.zero_grad(), plain->zero_grad();
      const Tensor loss = loss_of(plain(indices), output, labels);
      losses.push_back(loss.item<double>());
      loss.backward();
      sgd.step();
      NoGradGuard no_grad;
      adagrad_rows(plain->weight, plain->weight.grad(), &squares, 0.05);
    }
  }
  CHECK(losses.back() < 0.2 * losses.front());
  expect_ranks("shm", ranks, [&](ProcessGroup& group) {
    const auto options = nn::ShardedEmbeddingOptions(rows, columns).placement(nn::RowPlacement::hash);
    const auto table = make_table(group, options, kFloat);
    const nn::Linear output = make_output();
    const DistributedDataParallel ddp(output, shared(group));
    optim::SGD sgd(output->parameters(), optim::SGDOptions(0.1));
    const Batch own = share({indices, labels}, group.rank(), ranks);
    for (int step = 0; step < 100; ++step) {
      sgd.zero_grad();
      const Tensor loss = loss_of(table(own.images), output, own.labels);
      loss.backward();
      sgd.step();
      table->adagrad_step(0.05);
      const Array mean = loss.detach().clone().array();
      group.all_reduce(mean, ReduceKind::avg);
      const double expected = losses[static_cast<size_t>(step)];
      require(std::abs(Tensor(mean).item<double>() - expected) < 1e-3, "the loss of step " + std::to_string(step));
    }
  });
}

namespace {

/// A net with a table, and a layer that is whole on every rank.
struct TableNetImpl : nn::Module {
  nn::ShardedEmbedding table{nullptr};
  nn::Linear output{nullptr};
  TableNetImpl(ProcessGroup& group, const nn::ShardedEmbeddingOptions& options) {
    table = register_module("table", make_table(group, options, kDouble));
    const std::lock_guard lock(generator_mutex);
    manual_seed(6);
    output = register_module("output", nn::Linear(options.embedding_dim(), 4));
    output->to(kDouble);
  }
  Tensor loss(const Batch& batch) { return cross_entropy(output(table(batch.images).sum({1})), batch.labels); }
};

}  // namespace

TEST_CASE("sharded_embedding: clipping over all ranks, and a checkpoint that another number of ranks loads",
          "[sharded_embedding]") {
  const int before = GENERATE(1, 2, 3, 4), after = GENERATE(1, 2, 4);
  const auto placement = before % 2 == 0 ? nn::RowPlacement::range : nn::RowPlacement::hash;
  const int64_t rows = GENERATE(3, 29), columns = 6;
  CAPTURE(before, after, rows);
  manual_seed(9);
  const Tensor indices = randint(0, rows, {12, 3}, kLong);
  const Batch batch = {indices, indices.sum({1}).remainder(4)};
  const nn::Embedding plain = make_plain_table(rows, columns, kDouble);
  const nn::Linear output = [&] {
    manual_seed(6);
    nn::Linear layer(columns, 4);
    layer->to(kDouble);
    return layer;
  }();
  std::vector<Tensor> all = output->parameters();
  all.push_back(plain->weight);
  optim::SGD sgd(output->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  std::map<int64_t, double> squares;
  std::vector<double> norms;
  for (int step = 0; step < 4; ++step) {
    sgd.zero_grad(), plain->zero_grad();
    cross_entropy(output(plain(batch.images).sum({1})), batch.labels).backward();
    norms.push_back(nn::utils::clip_grad_norm_(all, 0.3));
    sgd.step();
    NoGradGuard no_grad;
    adagrad_rows(plain->weight, plain->weight.grad(), &squares, 0.1);
  }
  CHECK(norms[0] > 0.3);
  const TemporaryDirectory folder;
  const auto train = [&](ProcessGroup& of_rank, bool goes_on) {
    const auto group = shared(of_rank);
    TableNetImpl net(of_rank, nn::ShardedEmbeddingOptions(rows, columns).placement(placement));
    const DistributedDataParallel ddp(net.output, group);
    optim::SGD own(net.output->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    if (goes_on) {
      NoGradGuard no_grad;
      for (const Tensor& parameter : net.parameters()) parameter.zero_();
      load_sharded(folder.path().string(), net, group, &own);
    }
    for (size_t i = goes_on ? 2 : 0; i < (goes_on ? 4u : 2u); ++i) {
      own.zero_grad();
      net.loss(share(batch, group->rank(), group->size())).backward();
      const double norm = clip_grad_norm_(net, group, 0.3).item<double>();
      require(std::abs(norm - norms[i]) < 1e-12, "norm of step " + std::to_string(i));
      own.step();
      net.table->adagrad_step(0.1);
    }
    if (!goes_on) return save_sharded(folder.path().string(), net, group, &own);
    const std::string differs =
        difference_of_rows(net.table, net.table->weight.detach(), plain->weight.detach(), 1e-12);
    require(differs.empty(), differs);
    require(difference(net.output->weight.detach(), output->weight.detach(), 1e-12).empty(), "the whole layer");
    const auto other = placement == nn::RowPlacement::hash ? nn::RowPlacement::range : nn::RowPlacement::hash;
    TableNetImpl elsewhere(of_rank, nn::ShardedEmbeddingOptions(rows, columns).placement(other));
    require_error([&] { load_sharded(folder.path().string(), elsewhere, group, &own); },
                  "cut along dimension 0 as rows");
  };
  expect_ranks("local", before, [&](ProcessGroup& group) { train(group, false); });
  expect_ranks("local", after, [&](ProcessGroup& group) { train(group, true); });
}

TEST_CASE("sharded_embedding: a table beyond the limit of one rank trains on two", "[sharded_embedding][processes]") {
  constexpr int64_t kRows = 100'000, kColumns = 32, kBytes = kRows * kColumns * 4;
  Processes processes("tcp", 2, Milliseconds(20'000), [&](ProcessGroup& group, Store&) {
    set_memory_limit(Device(), runtime(DeviceType::cpu).memory_stats(0).allocated + kBytes * 3 / 4);
    bool is_too_large = false;
    try {
      const nn::Embedding plain(kRows, kColumns);
    } catch (const OutOfMemoryError&) { is_too_large = true; }
    require(is_too_large, "one rank has not enough");
    const auto table = make_table(group, nn::ShardedEmbeddingOptions(kRows, kColumns), kFloat);
    const Tensor indices = (arange(512) * 12'347 + group.rank()).remainder(kRows).to(kLong);
    double first = 0, last = 0;
    for (int step = 0; step < 10; ++step) {
      const Tensor loss = table(indices).square().mean();
      loss.backward();
      table->adagrad_step(0.1);
      (step == 0 ? first : last) = loss.item<double>();
    }
    require(first > 0.9 && last < 0.5 * first, "the loss falls");
  });
  for (const int rank : {0, 1}) CHECK(processes.result(rank).error == "");
}

TEST_CASE("sharded_embedding: a step writes only the rows that were looked up", "[sharded_embedding]") {
  expect_ranks("local", 2, [](ProcessGroup& group) {
    const auto table = make_table(group, {1000, 4}, kFloat);
    const Tensor before = table->weight.detach().clone();
    // The gradients of two passes are added.
    for (int pass = 0; pass < 2; ++pass) table(tensor({3, 3, 700 + pass}).to(kLong)).sum().backward();
    const auto gradient = table->row_gradient();
    const Tensor expected_rows = group.rank() == 0 ? tensor({3}) : tensor({200, 201});
    require(gradient.rows.equal(expected_rows.to(kLong)), "rows");
    // The gradient of the mean loss of two ranks. Both ranks look up row 3 twice in each of two passes.
    require((gradient.values == (group.rank() == 0 ? 4.0 : 1.0)).all().item<bool>(), "values");
    table->adagrad_step(0.5);
    const Tensor changed = (table->weight.detach() != before).any(1).nonzero().flatten();
    require(changed.equal(gradient.rows), "changed rows");
    require(table->squares.nonzero().flatten().equal(gradient.rows), "state");
    const Tensor after = table->weight.detach().clone();
    table(tensor({5}).to(kLong)).sum().backward();
    table->clear_gradient();
    table->adagrad_step(0.5);
    {
      NoGradGuard no_grad;
      require(!table(tensor({5}).to(kLong)).requires_grad(), "NoGradGuard");
    }
    require(table->weight.detach().equal(after), "nothing to do");
  });
}

TEST_CASE("sharded_embedding: hashing spreads neighbours, and any number of ranks has the same initial values",
          "[sharded_embedding]") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const auto placement = GENERATE(nn::RowPlacement::range, nn::RowPlacement::hash);
  CAPTURE(ranks);
  const nn::Embedding plain = make_plain_table(1000, 3, kFloat);
  expect_ranks("local", ranks, [&](ProcessGroup& group) {
    const auto table = make_table(group, nn::ShardedEmbeddingOptions(1000, 3).placement(placement), kFloat);
    require(difference_of_rows(table, table->weight.detach(), plain->weight.detach(), 0).empty(), "start");
    require(table->weight.size(0) <= (1000 + ranks - 1) / ranks, "a rank has its share alone");
    int64_t own = 0;  // number of this rank's rows among the first hundred
    for (int64_t row = 0; row < 100; ++row) own += table->place_of(row).rank == group.rank();
    if (placement == nn::RowPlacement::hash) require(std::abs(own - 100 / ranks) <= 3, "spread");
    else require(own == (group.rank() == 0 ? 100 : 0), "neighbours");
    const auto copy = [&] {
      const std::lock_guard lock(generator_mutex);  // clone() draws random numbers before it copies
      return std::dynamic_pointer_cast<nn::ShardedEmbeddingImpl>(table->clone());
    }();
    require(copy->weight.equal(table->weight) && copy->place_of(77).row == table->place_of(77).row, "clone");
    copy->forward(tensor({1, 2}).to(kLong)).sum().backward();
    require(table->row_gradient().rows.numel() == 0, "a clone has gradients of its own");
  });
}

TEST_CASE("sharded_embedding: a lookup sends the bytes of the formula", "[sharded_embedding]") {
  const int ranks = GENERATE(2, 4);
  const auto group = std::make_shared<RecordingGroup>(1, ranks);
  nn::ShardedEmbedding table(nn::ShardedEmbeddingOptions(4000, 8), group);
  const Tensor indices = arange(4000).reshape({2, 2000}).to(kLong);
  const Tensor y = table(indices);
  using enum CollectiveKind;
  const int64_t elsewhere = 4000 / ranks * (ranks - 1);  // number of indices whose rows other ranks own
  CHECK(group->bytes(all_to_all) == 8 * (ranks - 1));
  CHECK(group->bytes(all_to_all_v) == elsewhere * (8 + 8 * 4));
  group->reset_bytes();
  y.sum().backward();
  CHECK(group->bytes(all_to_all_v) == elsewhere * 8 * 4);
  table->adagrad_step(0.1);
  CHECK(group->bytes(all_to_all) == 0);
  CHECK(table->weight.numel() + table->squares.numel() == 4000 / ranks * (8 + 1));
}

TEST_CASE("sharded_embedding: a bad index on one rank is an error on all, and the group stays usable",
          "[sharded_embedding]") {
  const std::string kind = GENERATE(as<std::string>(), "local", "shm", "tcp");
  expect_ranks(kind, 3, [](ProcessGroup& group) {
    const auto table = make_table(group, {10, 4}, kFloat);
    for (const int64_t bad : {int64_t{10}, int64_t{-1}}) {
      const Tensor indices = tensor({int64_t{2}, group.rank() == 1 ? bad : 9});
      const std::string own = "index " + std::to_string(bad) + " at position 1 is outside of the table of 10 rows";
      require_error([&] { table(indices); },
                    group.rank() == 1 ? own : "rank 1 looks up an index outside of the table of 10 rows");
    }
    require(table(tensor({0, 9}).to(kLong)).sizes() == Shape({2, 4}), "the next lookup");
  });
}

TEST_CASE("sharded_embedding: hashed rows have the places that saved tables rely on", "[sharded_embedding]") {
  LocalGroup group(std::make_shared<LocalWorld>(1), 0);
  // Row r is at r * m modulo the number of rows, where m is the first number from the golden section on that has no
  // common divisor with the number of rows.
  for (const auto& [rows, second] : {std::pair(1, 0), {2, 1}, {3, 2}, {10, 7}, {29, 18}, {30, 19}, {1000, 619}}) {
    const auto options = nn::ShardedEmbeddingOptions(rows, 1).placement(nn::RowPlacement::hash);
    const auto table = make_table(group, options, kFloat);
    CHECK(table->place_of(0).row == 0);
    for (int row = 0; row < rows; ++row) CHECK(table->place_of(row).row == row * second % rows);
  }
}

TEST_CASE("sharded_embedding: errors", "[sharded_embedding]") {
  expect_ranks("local", 2, [](ProcessGroup& group) {
    const auto made = [&](int64_t rows, int64_t columns, nn::RowPlacement placement = nn::RowPlacement::range) {
      return nn::ShardedEmbedding(nn::ShardedEmbeddingOptions(rows, columns).placement(placement), shared(group));
    };
    require_error([&] { made(0, 4); }, "ShardedEmbedding of 0 rows with 4 columns");
    require_error([&] { made(4, 0); }, "ShardedEmbedding of 4 rows with 0 columns");
    require_error([&] { made(-1, 4); }, "ShardedEmbedding of -1 rows with 4 columns");
    require_error([&] { made(int64_t{1} << 31, 1, nn::RowPlacement::hash); }, "takes less than 2^31 rows");
    require_error([&] { nn::ShardedEmbedding(nn::ShardedEmbeddingOptions(4, 4), nullptr); }, "needs a process group");
    const auto table = make_table(group, {10, 4}, kDouble);
    require_error([&] { table(ones({2})); }, "indices must be int64 or int32, got float32");
    int64_t elsewhere = 0;
    const Array there(Storage::adopt(&elsewhere, 8, Device(DeviceType::cuda, 0), {}), 0, {1}, {1}, DType::i64);
    require_error([&] { table(Tensor(there)); }, "indices are on cuda:0, the table on cpu");
    require_error([&] { table->adagrad_step(-1); }, "lr and eps must not be negative");
    require_error([&] { table->adagrad_step(1, -1e-9); }, "lr and eps must not be negative, got 1 and -1e-09");
    table->adagrad_step(0, 0);
    require_error([&] { DistributedDataParallel ddp(table, shared(group)); }, "the nets differ");
    const Tensor y = table(tensor({1, 2}).to(kLong)).square().sum();
    require_error([&] { y.backward({}, true, /*create_graph=*/true); }, "is not differentiable twice");
  });
}
