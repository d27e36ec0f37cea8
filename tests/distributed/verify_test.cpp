// verify() accepts right trainings and names the mistake of wrong ones.
#include <gradus/tests/catch.h>

#include <cmath>
#include <sstream>

#include <gradus/distributed/distributed.h>
#include <gradus/tests/distributed/processes.h>
#include <gradus/tests/distributed/ranks.h>
#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

using Group = std::shared_ptr<ProcessGroup>;

/// The report of all ranks of a group, which must be the same.
VerifyReport report_of(const std::string& kind, int ranks, const std::function<VerifyReport(const Group&)>& body) {
  std::vector<VerifyReport> reports(static_cast<size_t>(ranks));
  expect_ranks(kind, ranks, [&](ProcessGroup& group) {
    reports[static_cast<size_t>(group.rank())] = body(Group(std::shared_ptr<void>(), &group));
  });
  for (const VerifyReport& report : reports) CHECK(report.str() == reports[0].str());
  return reports[0];
}

VerifiedTraining train_net(uint64_t seed) {
  const Net net = make_net(seed, kFloat);
  return {net.ptr(), std::make_unique<optim::SGD>(net->parameters(), optim::SGDOptions(0.1).momentum(0.9)),
          [net](const TensorList& batch) {
            return loss_of(net, {batch[0], batch[1]});
          }};
}

/// A factory of nets with a convolution, `middle` and a linear layer, because each rank needs its own modules.
template <class MakeMiddle>
VerifiedTraining train_around(const MakeMiddle& make_middle) {
  const std::lock_guard lock(generator_mutex);
  manual_seed(1);
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(1, 3, 3).bias(false)), make_middle(), nn::Flatten(),
                     nn::Linear(12, 4));
  return {net.ptr(), std::make_unique<optim::SGD>(net->parameters(), optim::SGDOptions(0.1)),
          [net](const TensorList& batch) { return cross_entropy(net(batch[0]), batch[1]); }};
}

/// The parts of batches of 7 samples, which are made once.
auto parts_of(std::vector<Batch> batches) {
  return [batches = std::move(batches)](int64_t step, int rank, int ranks) {
    const Batch part = share(batches[static_cast<size_t>(step)], rank, ranks);
    return TensorList{part.images, part.labels};
  };
}

VerifyOptions wrapped(const VerifyOptions::Wrap& wrap) { return VerifyOptions().steps(3).wrap(wrap); }

/// Averages each gradient in a hook: data-parallel training that does not copy the initial weights.
std::shared_ptr<void> average_only(nn::Module& model, const Group& group) {
  for (const Tensor& parameter : model.parameters())
    if (parameter.requires_grad())
      parameter.register_hook([group](const Tensor& gradient) {
        const Tensor copy = gradient.clone();
        group->all_reduce(copy.array(), ReduceKind::avg);
        return copy;
      });
  return nullptr;
}

}  // namespace

TEST_CASE("verify: ranks that train like one process pass") {
  const auto [kind, ranks] = GENERATE(
      table<std::string, int>({{"local", 1}, {"local", 2}, {"local", 3}, {"local", 4}, {"shm", 3}, {"tcp", 2}}));
  CAPTURE(kind, ranks);
  const auto parts = parts_of(make_batches(10, 7, kFloat));
  const VerifyReport report = report_of(kind, ranks, [&](const Group& group) {
    return verify(
        group, [] { return train_net(1); }, parts);
  });
  INFO(report.str());
  CHECK(report.ok());
  REQUIRE(report.steps.size() == 11);
  const VerifyReport::Step& last = report.steps.back();
  CHECK(last.ranks.size() == static_cast<size_t>(ranks));
  CHECK(last.alone.samples == 7);
  CHECK(report.steps[0].alone.gradients == 0);
  CHECK(last.alone.gradients == 6);  // of the weights and biases of three layers
  CHECK(last.alone.differences[VerifyReport::kParameters].relative < 1e-5);
  CHECK((ranks == 1 || last.alone.differences[VerifyReport::kParameters].relative > 0));
  CHECK_THAT(report.str(), contains("They make the same steps"));
}

TEST_CASE("verify: shares may be empty, and in float64 the two agree to its precision") {
  const auto parts = parts_of(make_batches(3, 2, kDouble));
  const auto make = [] {
    const Net net = make_net(1, kDouble);
    return VerifiedTraining{net.ptr(), std::make_unique<optim::Adam>(net->parameters(), optim::AdamOptions(0.01)),
                            [net](const TensorList& batch) {
                              return loss_of(net, {batch[0], batch[1]});
                            }};
  };
  const VerifyReport report = report_of("local", 3, [&](const Group& group) {
    return verify(group, make, parts, VerifyOptions().steps(3).tolerance(1e-12));
  });
  CHECK(report.diagnosis() == "");
  for (const size_t rank : {0, 1, 2}) CHECK(report.steps[1].ranks[rank].samples == (rank < 2 ? 1 : 0));
}

TEST_CASE("verify: gradients that are not averaged") {
  const auto parts = parts_of(make_batches(3, 7, kFloat));
  const VerifyReport report = report_of("local", 3, [&](const Group& group) {
    return verify(
        group, [] { return train_net(1); }, parts, wrapped([](nn::Module&, const Group&) { return nullptr; }));
  });
  CHECK_FALSE(report.ok());
  CHECK_THAT(report.diagnosis(), contains("in step 1, rank 1's gradient '") && contains("' is not rank 0's"));
  CHECK_THAT(report.diagnosis(), contains("gradients are not averaged over the ranks"));
  for (const auto& rank : report.steps[0].ranks) CHECK(rank.differences[VerifyReport::kParameters].relative == 0);
  CHECK_THAT(report.str(), contains("They differ: in step 1, "));
}

TEST_CASE("verify: gradients that are summed") {
  const auto parts = parts_of(make_batches(3, 8, kFloat));
  const auto sum = [](nn::Module& model, const Group& group) {
    for (const Tensor& parameter : model.parameters())
      if (parameter.requires_grad())
        parameter.register_hook([group](const Tensor& gradient) {
          const Tensor copy = gradient.clone();
          group->all_reduce(copy.array());
          return copy;
        });
    return nullptr;
  };
  const VerifyReport report = report_of("local", 2, [&](const Group& group) {
    return verify(
        group, [] { return train_net(1); }, parts, wrapped(sum));
  });
  CHECK_THAT(report.diagnosis(), contains("all gradients are 2"));
  CHECK_THAT(report.diagnosis(), contains("times those of one process: sums, not averages"));
  CHECK_THAT(report.str(), contains(" 1.0e+00 "));  // twice the gradient differs from it by as much as the gradient
}

TEST_CASE("verify: gradients that are averaged twice") {
  const auto parts = parts_of(make_batches(3, 8, kFloat));
  const auto halve = [](nn::Module& model, const Group& group) {
    average_only(model, group);
    for (const Tensor& parameter : model.parameters())
      if (parameter.requires_grad()) parameter.register_hook([](const Tensor& gradient) { return gradient / 2; });
    return nullptr;
  };
  const VerifyReport report = report_of("local", 2, [&](const Group& group) {
    return verify(
        group, [] { return train_net(1); }, parts, wrapped(halve));
  });
  CHECK_THAT(report.diagnosis(), contains("all gradients are ") && contains(" times those of one process"));
  CHECK_THAT(report.diagnosis(), !contains("sums, not averages"));
  CHECK_THAT(report.str(), contains("Relative differences of 2 ranks from one process"));
  CHECK_THAT(VerifyReport().str(), contains("Relative differences of 0 ranks"));
}

TEST_CASE("verify: of gradients that differ by the same amount, the first one is named") {
  const auto parts = parts_of(make_batches(1, 8, kFloat));
  const auto spoil = [](nn::Module& model, const Group&) {
    for (const Tensor& parameter : model.parameters())
      if (parameter.requires_grad())
        parameter.register_hook([](const Tensor& gradient) { return gradient * std::nan(""); });
    return nullptr;
  };
  const VerifyReport report = report_of("local", 2, [&](const Group& group) {
    return verify(
        group, [] { return train_net(1); }, parts, wrapped(spoil).steps(1));
  });
  CHECK_THAT(report.str(), contains(" inf ") && contains("  gradient '" + report.names[VerifyReport::kGradients][0]));
}

TEST_CASE("verify: a rank that begins with another seed") {
  const auto parts = parts_of(make_batches(3, 8, kFloat));
  const VerifyReport report = report_of("local", 3, [&](const Group& group) {
    return verify(
        group, [&] { return train_net(group->rank() == 2 ? 5 : 1); }, parts, wrapped(average_only));
  });
  CHECK_THAT(report.diagnosis(), contains("before training, rank 2's parameter '"));
  CHECK_THAT(report.diagnosis(), contains("it began with different numbers (another seed?)"));
  std::istringstream table(report.str());
  std::string line;
  std::getline(table, line), std::getline(table, line);
  double step = 0, loss = 0, of_one[3] = {}, between = 0;  // the first row
  table >> step >> loss >> of_one[0] >> of_one[1] >> of_one[2] >> between;
  CHECK(between > 0.1);

  // The training in one process begins with another seed than the ranks.
  int calls = 0;
  const VerifyReport alone = report_of("local", 1, [&](const Group& group) {
    return verify(
        group, [&] { return train_net(++calls == 2 ? 5 : 1); }, parts, VerifyOptions().steps(1));
  });
  CHECK_THAT(alone.diagnosis(), contains("before training, the parameter '"));
  CHECK_THAT(alone.diagnosis(), contains("the two trainings began with different numbers"));
}

TEST_CASE("verify: batch norm over each rank, and over all ranks") {
  const auto parts = parts_of(make_batches(3, 8, kFloat));
  const auto make = [] { return train_around([] { return nn::BatchNorm2d(3); }); };
  const VerifyReport plain =
      report_of("local", 2, [&](const Group& group) { return verify(group, make, parts, VerifyOptions().steps(3)); });
  CHECK(plain.batch_norm == "1");
  const VerifyReport one =
      report_of("local", 1, [&](const Group& group) { return verify(group, make, parts, VerifyOptions().steps(1)); });
  CHECK((one.ok() && one.batch_norm.empty()));  // a single rank has the whole batch
  CHECK_THAT(plain.diagnosis(), contains("batch norm '1' uses the statistics of each rank's part alone; "
                                         "nn::convert_sync_batchnorm"));
  const auto buffer = static_cast<size_t>(plain.steps[1].alone.differences[VerifyReport::kBuffers].index);
  CHECK_THAT(plain.names[VerifyReport::kBuffers].at(buffer), contains("1.running_"));
  const VerifyReport synchronized = report_of("local", 2, [&](const Group& group) {
    return verify(group, make, parts, wrapped([](nn::Module& model, const Group& of) {
                    nn::convert_sync_batchnorm(model, of);
                    return std::make_shared<DistributedDataParallel>(model, of);
                  }));
  });
  INFO(synchronized.str());
  CHECK(synchronized.ok());
  // Buffers that nothing keeps equal.
  const VerifyReport buffers = report_of("local", 2, [&](const Group& group) {
    return verify(group, make, parts, wrapped([](nn::Module& model, const Group& of) {
                    return std::make_shared<DistributedDataParallel>(
                        model, of, DistributedDataParallelOptions().broadcast_buffers(false));
                  }));
  });
  CHECK_THAT(buffers.diagnosis(), contains("rank 1's buffer '1.running_"));
  CHECK_THAT(buffers.diagnosis(), contains("nn::convert_sync_batchnorm"));
}

TEST_CASE("verify: dropout hides other differences") {
  const auto parts = parts_of(make_batches(2, 8, kFloat));
  const auto report = [&](double p) {
    return report_of("local", 2, [&](const Group& group) {
      return verify(
          group, [&] { return train_around([&] { return nn::Dropout(p); }); }, parts, VerifyOptions().steps(2));
    });
  };
  CHECK_THAT(report(0.5).diagnosis(), contains("dropout '1' draws different numbers on each rank"));
  CHECK(report(0).diagnosis() == "");
  // Layers in evaluation neither draw numbers nor compute statistics of a part.
  const auto evaluated = [&](auto layer) {
    return report_of("local", 2, [&](const Group& group) {
      return verify(
          group,
          [&] {
            return train_around([&] {
              auto made = layer();
              made->eval();
              return made;
            });
          },
          parts, VerifyOptions().steps(2));
    });
  };
  for (const VerifyReport& found :
       {evaluated([] { return nn::Dropout(0.5); }), evaluated([] { return nn::BatchNorm2d(3); })}) {
    CHECK(found.dropout == "");
    CHECK(found.batch_norm == "");
    CHECK(found.diagnosis() == "");
  }

  const auto draw = [](int64_t, int rank, int ranks) {
    const Batch part = share(make_batches(1, 8, kFloat)[0], rank, ranks);
    return TensorList{part.images, part.labels};
  };
  const VerifyReport drawn = report_of("local", 2, [&](const Group& group) {
    return verify(
        group, [] { return train_net(1); }, draw, VerifyOptions().steps(2));
  });
  CHECK_THAT(drawn.diagnosis(), contains("each rank draws different random numbers in the step"));
}

TEST_CASE("verify: a rank that has the wrong batch") {
  const auto parts = parts_of(make_batches(3, 8, kFloat));
  const auto report = [&](const std::function<TensorList(int64_t, int, int)>& batch_of) {
    return report_of("local", 3,
                     [&](const Group& group) {
                       return verify(
                           group, [] { return train_net(1); }, batch_of, VerifyOptions().steps(2));
                     })
        .diagnosis();
  };
  CHECK_THAT(report([&](int64_t step, int rank, int ranks) { return parts(step, rank == 1 ? 0 : rank, ranks); }),
             contains("ranks 0 and 1 had the same batch"));
  CHECK_THAT(report([&](int64_t step, int rank, int ranks) { return parts(rank == 2 ? 1 - step : step, rank, ranks); }),
             contains("in step 1, the loss is "));
  CHECK_THAT(report([&](int64_t step, int rank, int ranks) { return parts(rank == 2 ? 1 - step : step, rank, ranks); }),
             contains("the batches of the ranks are not the parts of the whole batch"));
  CHECK(report([&](int64_t step, int rank, int ranks) {
          return parts(step, rank == 2 ? 1 : rank, ranks);
        }).starts_with("in step 1, the ranks have 9 samples and one process 8"));
}

TEST_CASE("verify: a training loop that forgets the weight of uneven parts") {
  const bool weighted = GENERATE(false, true);
  const auto parts = parts_of(make_batches(3, 7, kFloat));
  const VerifyReport report = report_of("shm", 2, [&](const Group& group) {
    TrainingComparison comparison(group);
    const auto train = [&](int rank, int ranks) {
      const VerifiedTraining training = train_net(1);
      std::optional<DistributedDataParallel> ddp;
      if (ranks > 1) ddp.emplace(*training.model, group);
      comparison.observe(*training.model);
      for (int64_t step = 0; step < 3; ++step) {
        const TensorList batch = parts(step, rank, ranks);
        training.optimizer->zero_grad();
        const Tensor loss = training.loss(batch);
        (ddp && weighted ? loss * ddp->loss_weight(batch[0].size(0), 7) : loss).backward();
        training.optimizer->step();
        comparison.observe(*training.model, loss.item<double>(), batch[0].size(0));
      }
    };
    train(group->rank(), group->size());
    if (comparison.alone()) train(0, 1);
    return comparison.report();
  });
  CAPTURE(weighted);
  CHECK(report.ok() == weighted);
  if (!weighted)
    CHECK_THAT(report.diagnosis(), contains("parts have 4, 3 samples: multiply each rank's mean loss by "
                                            "DistributedDataParallel::loss_weight"));
}

TEST_CASE("verify: an optimizer that makes a different step") {
  const auto parts = parts_of(make_batches(1, 8, kFloat));
  const VerifyReport report = report_of("local", 3, [&](const Group& group) {
    return verify(
        group,
        [&] {
          VerifiedTraining training = train_net(1);
          training.optimizer->set_lr(group->rank() == 1 ? 0.2 : 0.1);
          return training;
        },
        parts, VerifyOptions().steps(1));
  });
  CHECK_THAT(report.diagnosis(), contains("in step 1, rank 1's parameter '"));
  CHECK_THAT(report.diagnosis(), contains("with the same gradients its optimizer made a different step"));
}

TEST_CASE("verify: a gradient that differs late may be rounding, but in the first uneven step it is a missing weight") {
  VerifyReport report;
  report.tolerance = 1e-3;
  report.names[VerifyReport::kGradients] = {"weight"};
  const auto parts = [](double first, double second) {
    VerifyReport::Step step;
    step.ranks.resize(2);
    step.ranks[0].samples = first, step.ranks[1].samples = second;
    step.samples = step.alone.samples = first + second, step.alone.gradients = 1;
    return step;
  };
  report.steps = {{}, parts(4, 3), parts(4, 3)};
  CHECK(report.ok());
  report.steps[2].alone.differences[VerifyReport::kGradients] = {0.1, 0};
  report.steps[2].alone.gradient_rest = 0.1;
  CHECK(report.diagnosis() ==
        "in step 2, the gradient 'weight' of the ranks is not that of one process (relative difference 0.1): one "
        "step earlier all was equal, so it may be rounding, amplified by activations near 0 or the learning rate");
  report.steps[1] = parts(4, 4);
  CHECK_THAT(report.diagnosis(), contains("parts have 4, 3 samples"));
}

TEST_CASE("verify: a parameter that has no effect on the loss drifts by rounding") {
  const auto parts = parts_of(make_batches(5, 8, kFloat));
  const auto make = [] {
    const std::lock_guard lock(generator_mutex);
    manual_seed(1);
    nn::Sequential net(nn::Flatten(), nn::Linear(16, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 4));
    return VerifiedTraining{net.ptr(), std::make_unique<optim::Adam>(net->parameters(), optim::AdamOptions(0.01)),
                            [net](const TensorList& batch) { return cross_entropy(net(batch[0]), batch[1]); }};
  };
  const VerifyReport report = report_of("local", 2, [&](const Group& group) {
    return verify(group, make, parts, wrapped([](nn::Module& model, const Group& of) {
                    nn::convert_sync_batchnorm(model, of);
                    return std::make_shared<DistributedDataParallel>(model, of);
                  }));
  });
  CHECK_THAT(report.diagnosis(), contains("in step 1, the parameter '1.bias' of the ranks is not that of one process"));
  CHECK_THAT(report.diagnosis(), contains("its gradient is 0 except for rounding"));
}

TEST_CASE("verify: a NaN loss and an exception in one process reach all ranks") {
  const auto parts = parts_of(make_batches(1, 8, kFloat));
  const VerifyReport report = report_of("local", 2, [&](const Group& group) {
    return verify(
        group,
        [&] {
          VerifiedTraining training = train_net(1);
          training.loss = [loss = training.loss](const TensorList& batch) { return loss(batch) * NAN; };
          return training;
        },
        parts, VerifyOptions().steps(1));
  });
  CHECK_FALSE(report.ok());
  CHECK_THAT(report.diagnosis(), contains("the loss of one process alone is nan, which the ranks have not caused"));
  const auto results = run_ranks("local", 2, [&](ProcessGroup& group) {
    verify(
        Group(std::shared_ptr<void>(), &group), [] { return train_net(1); },
        [&](int64_t step, int rank, int ranks) {
          if (ranks == 1) throw std::runtime_error("out of memory");
          return parts(step, rank, ranks);
        },
        VerifyOptions().steps(1));
  });
  CHECK(results[0].error == "out of memory");
  CHECK_THAT(results[1].error, contains("rank 0 ended the group: out of memory"));
}

TEST_CASE("verify: observations that do not match are errors") {
  CHECK_THROWS_WITH(TrainingComparison(nullptr), contains("needs a process group"));
  for (const double tolerance : {-1e-3, std::nan("")})
    expect_ranks("local", 1, [&](ProcessGroup& group) {
      try {
        TrainingComparison(Group(std::shared_ptr<void>(), &group), tolerance);
      } catch (const ValueError&) { return; }
      require(false, "tolerance");
    });
  expect_ranks("local", 1, [](ProcessGroup& group) {
    const Group shared(std::shared_ptr<void>(), &group);
    const auto error_of = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const ValueError& error) { return error.what(); }
      return "";
    };
    nn::Linear net(2, 2);
    TrainingComparison comparison(shared);
    require(error_of([&] { comparison.alone(); }).find("that observe() has seen") != std::string::npos, "alone");
    comparison.observe(*net);
    require(comparison.alone(), "rank 0");
    require(error_of([&] { comparison.report(); }).find("made 0 observations, the ranks 1") != std::string::npos,
            "report");
    comparison.observe(*net);
    require(comparison.report().diagnosis() == "no step was compared", "no step");
    TrainingComparison other(shared);
    other.observe(*net);
    other.alone();
    require(error_of([&] { other.observe(*nn::ReLU()); }).find("other parameters than") != std::string::npos, "model");
    require(error_of([&] { comparison.observe(*net); }).find("one process made more") != std::string::npos, "more");
  });
}

TEST_CASE("verify: a report is a table with a line for each step") {
  using Kind = VerifyReport::Kind;
  VerifyReport report;
  report.tolerance = 0.125;
  report.names = {{{"a", "b"}, {"a", "b"}, {"mean"}}};
  report.steps.resize(2);
  for (VerifyReport::Step& step : report.steps) {
    step.ranks.resize(2);
    step.loss = step.alone.loss = 4, step.samples = step.alone.samples = 6;
    step.alone.gradients = 2;
  }
  report.steps[0].ranks[1].differences[Kind::kBuffers] = {0.0625, 0};
  report.steps[1].loss = 4.25;
  report.steps[1].alone.differences = {{{0.1, 1}, {0.02, 0}, {0.003, 0}}};
  report.steps[1].ranks[0].differences[Kind::kGradients] = {0.01, 0};
  CHECK(report.str() ==
        "Relative differences of 2 ranks from one process, and of ranks from rank 0:\n"
        "step        loss    gradients   parameters      buffers  between ranks  most different\n"
        "   0     0.0e+00      0.0e+00      0.0e+00      0.0e+00        6.2e-02\n"
        "   1     6.2e-02      1.0e-01      2.0e-02      3.0e-03        1.0e-02  gradient 'b'\n"
        "They make the same steps, up to 0.125.\n");
}

TEST_CASE("verify: a report of the numbers before training alone") {
  VerifyReport report;
  report.names = {{{"a"}, {"a"}, {}}};
  report.steps.resize(1);
  report.steps.shrink_to_fit();
  report.steps[0].ranks.resize(3);
  CHECK(report.diagnosis() == "no step was compared");
  CHECK_THAT(report.str(), contains("Relative differences of 3 ranks from one process") &&
                               contains("They differ: no step was compared.\n"));
}

TEST_CASE("the tests' comparison of trainings notices NaN, missing tensors and other shapes") {
  const Tensor x = ones({3});
  CHECK(difference_of({x, x}, {x, x}) == 0);
  CHECK(difference_of({x}, {x * 3}) == 0.5);
  CHECK(difference_of({x * NAN, x}, {x, x}) == INFINITY);
  CHECK(difference_of({x, x * INFINITY}, {x, x * INFINITY}) == INFINITY);
  CHECK(difference_of({}, {}) == INFINITY);
  CHECK(difference_of({x}, {x, x}) == INFINITY);
  CHECK(difference_of({x}, {ones({1})}) == INFINITY);
}

TEST_CASE("verify: gradients that are cleared before observe() do not count as equal") {
  const auto parts = parts_of(make_batches(2, 4, kFloat));
  const bool cleared = GENERATE(false, true);
  const VerifyReport report = report_of("local", 2, [&](const Group& group) {
    TrainingComparison comparison(group);
    const auto train = [&](int rank, int ranks) {
      const VerifiedTraining training = train_net(1);
      std::optional<DistributedDataParallel> ddp;
      if (ranks > 1) ddp.emplace(*training.model, group);
      comparison.observe(*training.model);
      for (int64_t step = 0; step < 2; ++step) {
        const TensorList batch = parts(step, rank, ranks);
        const Tensor loss = training.loss(batch);
        loss.backward();
        training.optimizer->step();
        if (cleared) training.optimizer->zero_grad();
        comparison.observe(*training.model, loss.item<double>(), batch[0].size(0));
        training.optimizer->zero_grad();
      }
    };
    train(group->rank(), group->size());
    if (comparison.alone()) train(0, 1);
    return comparison.report();
  });
  CHECK(report.ok() != cleared);
  if (cleared) CHECK_THAT(report.diagnosis(), contains("no parameter has a gradient"));
}

TEST_CASE("verify: random numbers are reset for the training in one process", "[processes]") {
  Processes processes("shm", 2, Milliseconds(20'000), [](ProcessGroup& group, Store&) {
    manual_seed(3);
    const auto parts = parts_of(make_batches(3, 6, kFloat));
    const auto make = [] {
      nn::Sequential net(nn::Flatten(), nn::Linear(16, 8), nn::Tanh(), nn::Linear(8, 4));  // from the default generator
      return VerifiedTraining{net.ptr(), std::make_unique<optim::SGD>(net->parameters(), 0.1),
                              [net](const TensorList& batch) { return cross_entropy(net(batch[0]), batch[1]); }};
    };
    const VerifyReport report = verify(Group(std::shared_ptr<void>(), &group), make, parts, VerifyOptions().steps(3));
    require(report.ok(), report.diagnosis());
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.result(rank).error == "");
}
