// Training over ranks: N ranks with a share of every batch make the steps that one process makes with whole batches.
#include <gradus/tests/catch.h>

#include <cmath>

#include <gradus/tests/distributed/ranks.h>
#include <gradus/tests/distributed/training.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

TEST_CASE("ddp: ranks with shares of a batch make the steps of one process") {
  const std::string kind = GENERATE(as<std::string>(), "local", "coalescing", "shm", "tcp");
  const int ranks = GENERATE(1, 2, 3, 4);
  const bool strict = GENERATE(false, true);
  CAPTURE(kind, ranks, strict);
  const auto batches = make_batches(3, 7, kDouble);  // shares have 1 to 7 samples
  const Net alone = make_net(1, kDouble);
  optim::SGD sgd(alone->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  for (const Batch& batch : batches) {
    sgd.zero_grad();
    loss_of(alone, batch).backward();
    sgd.step();
  }
  const std::vector<Tensor> expected = numbers_of(*alone);
  expect_ranks(kind, ranks, [&](ProcessGroup& group) {
    const Net net = make_net(1 + static_cast<uint64_t>(group.rank()), kDouble);  // gets the values of rank 0
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets().strict(strict));
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    for (const Batch& batch : batches) {
      const Batch own = share(batch, group.rank(), ranks);
      sgd.zero_grad();
      (loss_of(net, own) * ddp.loss_weight(own.labels.size(0), 7)).backward();
      sgd.step();
    }
    const double difference = difference_of(numbers_of(*net), expected);
    require(difference < 1e-12, "parameters differ by " + std::to_string(difference * 1e12) + "e-12");
  });
}

TEST_CASE("ddp: strict averages have the bits of one process that sums the shares and divides once") {
  const std::string kind = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const int ranks = GENERATE(2, 3, 4);
  CAPTURE(kind, ranks);
  const auto batches = make_batches(4, 12, kFloat);
  const Net alone = make_net(1, kFloat);
  optim::Adam adam(alone->parameters(), optim::AdamOptions(0.01));
  for (const Batch& batch : batches) {
    adam.zero_grad();
    for (int rank = 0; rank < ranks; ++rank) loss_of(alone, share(batch, rank, ranks)).backward();
    for (const Tensor& parameter : alone->parameters())
      if (parameter.grad().defined()) parameter.grad().div_(ranks);
    adam.step();
  }
  const std::vector<Tensor> expected = numbers_of(*alone);
  expect_ranks(kind, ranks, [&](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets().strict(true));
    optim::Adam adam(net->parameters(), optim::AdamOptions(0.01));
    for (const Batch& batch : batches) {
      adam.zero_grad();
      loss_of(net, share(batch, group.rank(), ranks)).backward();
      adam.step();
    }
    const auto numbers = numbers_of(*net);
    for (size_t i = 0; i < numbers.size(); ++i)
      require(numbers[i].equal(expected[i]), "parameter " + std::to_string(i));
  });
}

TEST_CASE("ddp: 100 steps of Adam in float32 keep the losses of one process") {
  const auto batches = make_batches(100, 16, kFloat);
  const Net alone = make_net(1, kFloat);
  const std::vector<Tensor> start = numbers_of(*alone);
  optim::Adam adam(alone->parameters(), optim::AdamOptions(0.01));
  std::vector<double> expected;
  for (const Batch& batch : batches) {
    adam.zero_grad();
    const Tensor loss = loss_of(alone, batch);
    expected.push_back(loss.item<double>());
    loss.backward();
    adam.step();
  }
  expect_ranks("shm", 3, [&](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets());
    optim::Adam adam(net->parameters(), optim::AdamOptions(0.01));
    for (size_t i = 0; i < batches.size(); ++i) {
      const Batch own = share(batches[i], group.rank(), 3);
      adam.zero_grad();
      const Tensor loss = loss_of(net, own) * ddp.loss_weight(own.labels.size(0), 16);
      const Array mean = loss.detach().clone().array();
      group.all_reduce(mean, ReduceKind::avg);
      const double difference = std::abs(Tensor(mean).item<double>() - expected[i]);
      require(difference < 1e-3 * expected[i], "the loss of step " + std::to_string(i));
      loss.backward();
      adam.step();
    }
    require(difference_of(numbers_of(*net), start) > 0.1, "it trains");
  });
}

TEST_CASE("ddp: gradients are parts of few buckets, before and after zero_grad") {
  expect_ranks("local", 2, [&](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    const std::vector<std::string> names = net->state_dict().keys();
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group});
    const Batch batch{ones({2, 1, 4, 4}), zeros({2}, kLong)};
    const auto distance = [&] {
      const Tensor &a = net->out->weight.grad(), &b = net->conv->weight.grad();
      return std::abs(static_cast<char*>(a.array().data()) - static_cast<char*>(b.array().data()));
    };
    loss_of(net, batch).backward();
    require(distance() < 8192, "one bucket");
    const void* const place = net->out->weight.grad().array().data();
    for (const bool to_none : {true, false}) {
      net->zero_grad(to_none);
      loss_of(net, batch).backward();
      require(net->out->weight.grad().array().data() == place, "the slot stays");
    }
    // If the gradient is replaced by another tensor, its values are used and copied into the bucket.
    net->zero_grad();
    net->out->weight.mutable_grad() = ones_like(net->out->weight);
    loss_of(net, batch).backward();
    require(net->out->weight.grad().array().data() == place, "back in the bucket");
    require(net->state_dict().keys() == names, "names without a prefix");
  });
}

TEST_CASE("ddp: a net of a single parameter is averaged, too") {
  expect_ranks("local", 2, [](ProcessGroup& group) {
    const nn::Linear net(nn::LinearOptions(3, 1).bias(false));
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group});
    net(full({1, 3}, group.rank() + 1.0)).sum().backward();
    require(net->weight.grad().equal(full({1, 3}, 1.5, kFloat)), "the average");
  });
}

TEST_CASE("ddp: the weight of a loss makes the average of uneven shares that of the whole batch") {
  expect_ranks("local", 4, [](ProcessGroup& group) {
    const DistributedDataParallel ddp(nn::Linear(3, 1), {std::shared_ptr<void>(), &group});
    require(ddp.loss_weight(3, 12) == 1 && ddp.loss_weight(1, 8) == 0.5 && ddp.loss_weight(0, 8) == 0, "weights");
    require(ddp.loss_weight(1, 1) == 4, "the only sample");
    for (const auto& [own, all] : {std::pair(-1, 8), {9, 8}, {0, 0}, {0, -1}}) {
      std::string message;
      try {
        ddp.loss_weight(own, all);
      } catch (const ValueError& error) { message = error.what(); }
      const std::string expected = "loss_weight] " + std::to_string(own) + " samples of this rank among " +
                                   std::to_string(all) + " of all ranks";
      require(message.find(expected) != std::string::npos, "expected '" + expected + "', got '" + message + "'");
    }
  });
}

TEST_CASE("ddp: no_sync accumulates on each rank, and the next pass averages the sums") {
  const auto batches = make_batches(3, 8, kDouble);
  const Net alone = make_net(1, kDouble);
  for (const Batch& batch : batches) loss_of(alone, batch).backward();
  expect_ranks("local", 2, [&](ProcessGroup& group) {
    const Net net = make_net(1, kDouble);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets());
    for (int repeat = 0; repeat < 2; ++repeat) {
      net->zero_grad();
      {
        const auto alone_for_now = ddp.no_sync();
        for (int i = 0; i < 2; ++i) loss_of(net, share(batches[static_cast<size_t>(i)], group.rank(), 2)).backward();
      }
      loss_of(net, share(batches[2], group.rank(), 2)).backward();
      for (const char* name : {"conv", "out"}) {
        const Tensor grad = net->named_parameters()[std::string(name) + ".weight"].grad();
        const Tensor expected = alone->named_parameters()[std::string(name) + ".weight"].grad();
        require(grad.allclose(expected, 1e-12, 1e-14), name);
      }
    }
    // A second pass without no_sync adds its average to the average of the first pass.
    net->zero_grad();
    for (const Batch& batch : batches) loss_of(net, share(batch, group.rank(), 2)).backward();
    require(net->out->weight.grad().allclose(alone->out->weight.grad(), 1e-12, 1e-14), "averages add up");
  });
}

TEST_CASE("ddp: a parameter without a gradient is named on its rank and ends the wait of the others") {
  const std::string kind = GENERATE(as<std::string>(), "local", "shm", "tcp");
  const auto results = run_ranks(kind, 3, [&](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets());
    const Tensor images = ones({2, 1, 4, 4});
    if (group.rank() == 1) net->twice(net->conv(images).flatten(1)).sum().backward();
    else net(images).sum().backward();
  });
  for (int rank = 0; rank < 3; ++rank) {
    INFO("rank " << rank << ": " << results[static_cast<size_t>(rank)].error);
    const std::string& error = results[static_cast<size_t>(rank)].error;
    CHECK(error.find("rank 1 has no gradient in this backward pass for 'out.weight', 'out.bias'") != std::string::npos);
    CHECK(error.find("find_unused_parameters(true)") != std::string::npos);
  }
  const auto first = run_ranks(kind, 2, [&](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets());
    net->out(net->twice(ones({2, 12}))).sum().backward();
  });
  for (const RankResult& result : first)
    CHECK(result.error.find("has no gradient in this backward pass for 'conv.weight', 'conv.bias':") !=
          std::string::npos);
}

TEST_CASE("ddp: find_unused_parameters counts missing gradients as 0") {
  const Tensor images = randn({2, 1, 4, 4}, kDouble);
  const Net alone = make_net(1, kDouble);
  (alone(images).sum() / 2).backward();
  const auto kind = GENERATE(as<std::string>(), "shm", "coalescing");
  expect_ranks(kind, 2, [&](ProcessGroup& group) {
    const Net net = make_net(1, kDouble);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets().find_unused_parameters(true));
    for (int repeat = 0; repeat < 3; ++repeat) {
      net->zero_grad();
      if (group.rank() == 1) (net->conv(images).sum() * 0).backward();
      else net(images).sum().backward();
      require(net->out->weight.grad().allclose(alone->out->weight.grad(), 1e-12, 1e-14), "half of rank 0's");
      require(net->conv->weight.grad().allclose(alone->conv->weight.grad(), 1e-12, 1e-14), "half of rank 0's");
    }
  });
}

TEST_CASE("ddp: buffers follow rank 0, or only begin with its values without broadcast_buffers") {
  const bool broadcast = GENERATE(true, false);
  CAPTURE(broadcast);
  expect_ranks("shm", 2, [&](ProcessGroup& group) {
    nn::BatchNorm1d norm(3);
    norm->running_var.fill_(group.rank() + 1);
    DistributedDataParallel ddp(norm, {std::shared_ptr<void>(), &group},
                                DistributedDataParallelOptions().broadcast_buffers(broadcast));
    require(norm->running_var[0].item<float>() == 1, "begins with rank 0's");
    const Tensor x = full({4, 3}, group.rank() + 1.0) * Tensor(arange(4).reshape({4, 1}));
    for (int step = 0; step < 2; ++step) {
      norm(x).sum().backward();
      const Array all = Array::empty({6}, DType::f32);
      group.all_gather(norm->running_var.array(), all);
      require(Tensor(all.slice(0, 0, 3)).equal(Tensor(all.slice(0, 3, 6))) == broadcast, "running_var");
      require(norm->num_batches_tracked.item<int64_t>() == step + 1, "num_batches_tracked");
    }
  });
}

TEST_CASE("ddp: several buffers of one type get the values of rank 0, each its own") {
  struct Buffered : nn::Module {
    Tensor weight = register_parameter("weight", ones({2}));
    TensorList buffers;
    explicit Buffered(int rank) {
      for (const Shape& shape : {Shape{2}, Shape{3}, Shape{}, Shape{2, 2}, Shape{1}}) {
        const std::string name = "buffer_" + std::to_string(buffers.size());
        buffers.push_back(register_buffer(name, full(shape, 10.0 * static_cast<double>(buffers.size()) + rank)));
      }
    }
  };
  expect_ranks("local", 3, [](ProcessGroup& group) {
    Buffered net(group.rank());
    const DistributedDataParallel ddp(net, shared(group));
    for (size_t i = 0; i < net.buffers.size(); ++i)
      require(net.buffers[i].equal(full(net.buffers[i].sizes(), 10.0 * static_cast<double>(i))), "as on rank 0");
  });
}

TEST_CASE("ddp: an inf on one rank makes all scalers skip the same step") {
  expect_ranks("tcp", 3, [&](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets());
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
    amp::GradScaler scaler(amp::GradScalerOptions().init_scale(16));
    const Batch batch{ones({2, 1, 4, 4}), zeros({2}, kLong)};
    for (int step = 0; step < 3; ++step) {
      const std::vector<Tensor> before = numbers_of(*net);
      sgd.zero_grad();
      const Tensor loss = loss_of(net, batch);
      scaler.scale(step == 1 && group.rank() == 2 ? loss * INFINITY : loss).backward();
      scaler.step(sgd);
      scaler.update();
      const bool moved = difference_of(numbers_of(*net), before) > 0;
      require(moved == (step != 1), "step " + std::to_string(step));
    }
    require(scaler.get_scale() == 8, "one step back");
  });
}

TEST_CASE("ddp: norms and clipping use the global gradient") {
  const auto batches = make_batches(1, 8, kDouble);
  const Net alone = make_net(1, kDouble);
  loss_of(alone, batches[0]).backward();
  const double expected = nn::utils::clip_grad_norm_(alone->parameters(), 0.01);
  expect_ranks("local", 4, [&](ProcessGroup& group) {
    const Net net = make_net(1, kDouble);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group});
    loss_of(net, share(batches[0], group.rank(), 4)).backward();
    require(std::abs(nn::utils::clip_grad_norm_(net->parameters(), 0.01) / expected - 1) < 1e-12, "norm");
    require(net->out->weight.grad().allclose(alone->out->weight.grad(), 1e-12, 1e-14), "clipped");
  });
}

TEST_CASE("ddp: ranks with fewer batches take part in the others' steps") {
  // Rank r has r + 1 batches, so in step k rank k and the ranks after it have one.
  const auto batches = make_batches(3, 4, kDouble);
  const Net alone = make_net(1, kDouble);
  optim::Adam adam(alone->parameters(), optim::AdamOptions(0.01));
  for (int k = 0; k < 3; ++k) {
    adam.zero_grad();
    (loss_of(alone, batches[static_cast<size_t>(k)]) * (3 - k) / 3).backward();
    adam.step();
  }
  const std::vector<Tensor> expected = numbers_of(*alone);
  const auto kind = GENERATE(as<std::string>(), "shm", "coalescing");
  expect_ranks(kind, 3, [&](ProcessGroup& group) {
    const Net net = make_net(1, kDouble);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets());
    optim::Adam adam(net->parameters(), optim::AdamOptions(0.01));
    int steps = 0;
    {
      Join join(ddp);
      for (int k = 0; k <= group.rank(); ++k, ++steps) {
        adam.zero_grad();
        loss_of(net, batches[static_cast<size_t>(k)]).backward();
        adam.step();
      }
      join.finish([&] { adam.step(), ++steps; });
    }
    require(steps == 3, "all ranks make 3 steps");
    require(difference_of(numbers_of(*net), expected) < 1e-12, "the same steps");
    loss_of(net, batches[0]).backward();  // works without a Join too
  });
}

TEST_CASE("ddp: gradients in a half type differ by its rounding") {
  const DType type = GENERATE(kBFloat16, kHalf);
  const auto batches = make_batches(1, 8, kFloat);
  const Net alone = make_net(1, kFloat);
  loss_of(alone, batches[0]).backward();
  expect_ranks("tcp", 2, [&](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets().gradient_compression(type));
    loss_of(net, share(batches[0], group.rank(), 2)).backward();
    const Tensor &grad = net->out->weight.grad(), &expected = alone->out->weight.grad();
    const double error = (grad - expected).abs().max().item<double>() / expected.abs().max().item<double>();
    const double unit = type == kHalf ? 0x1p-11 : 0x1p-8;
    require(error > unit / 64 && error < 2 * unit, "error " + std::to_string(error));
    require(grad.dtype() == kFloat, "gradients stay float32");
  });
}

TEST_CASE("ddp: nets that differ are an error on every rank") {
  const auto results = run_ranks("tcp", 3, [&](ProcessGroup& group) {
    nn::Sequential net(nn::Linear(3, group.rank() == 2 ? 5 : 4), nn::Linear(4, 2));
    const DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group});
  });
  CHECK(results[2].error ==
        "[DistributedDataParallel] the nets differ: rank 0 has the parameter 0.weight of shape (4, 3), strides (3, 1), "
        "float32, rank 2 has in its place 0.weight of shape (5, 3), strides (3, 1), float32");
  for (const int rank : {0, 1})
    CHECK(results[static_cast<size_t>(rank)].error.find("rank 2 has other parameters") != std::string::npos);
}

TEST_CASE("ddp: errors about nets that differ describe both sides on every rank") {
  const auto errors_of = [](const std::function<void(nn::Sequential&)>& change_net_of_rank_1) {
    const auto results = run_ranks("local", 3, [&](ProcessGroup& group) {
      nn::Sequential net(nn::Linear(2, 2), nn::BatchNorm1d(2));
      if (group.rank() == 1) change_net_of_rank_1(net);
      const DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group});
    });
    const std::string prefix = "[DistributedDataParallel] the nets differ: ";
    CHECK(results[1].error.substr(0, prefix.size()) == prefix);
    const std::string difference = results[1].error.substr(std::min(prefix.size(), results[1].error.size()));
    for (const size_t rank : {size_t{0}, size_t{2}})
      CHECK(results[rank].error == prefix + "rank 1 has other parameters than rank 0: " + difference);
    return difference;
  };
  CHECK(errors_of([](nn::Sequential& net) { net->push_back(nn::Linear(2, 3)); }) ==
        "rank 0 has 4 parameters, rank 1 has 6; the first that differs is on rank 0 none, on rank 1 2.weight of shape "
        "(3, 2), strides (2, 1), float32");
  CHECK(errors_of([](nn::Sequential& net) { net = nn::Sequential(nn::Linear(2, 2)); }) ==
        "rank 0 has 4 parameters, rank 1 has 2; the first that differs is on rank 0 1.weight of shape (2,), strides "
        "(1,), float32, on rank 1 none");
  CHECK(errors_of([](nn::Sequential& net) { net->parameters()[1].requires_grad_(false); }) ==
        "rank 0 has the parameter 0.bias of shape (2,), strides (1,), float32, rank 1 has in its place 0.bias of shape "
        "(2,), strides (1,), float32, frozen");
  CHECK(errors_of([](nn::Sequential& net) { net->register_buffer("more", zeros({1})); }) ==
        "rank 0 has 3 buffers, rank 1 has 4; the first that differs is on rank 0 1.running_mean of shape (2,), strides "
        "(1,), float32, on rank 1 more of shape (1,), strides (1,), float32");
  const auto results = run_ranks("local", 2, [](ProcessGroup& group) {
    nn::Sequential net(nn::Linear(2, 2)), empty;
    empty->push_back(nn::ReLU());
    const DistributedDataParallel ddp(group.rank() == 1 ? empty : net, {std::shared_ptr<void>(), &group});
  });
  for (const RankResult& result : results) CHECK_THAT(result.error, contains("has no parameters on rank 1"));
}

TEST_CASE("ddp: an exception in one rank's backward pass reaches the others") {
  const auto results = run_ranks("shm", 3, [&](ProcessGroup& group) {
    const Net net = make_net(1, kFloat);
    DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets());
    if (group.rank() == 1)
      net->conv->weight.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("out of luck"); });
    net(ones({2, 1, 4, 4})).sum().backward();
  });
  CHECK(results[1].error == "out of luck");
  for (const size_t rank : {size_t{0}, size_t{2}})
    CHECK(results[rank].error.find("rank 1 ended the group: its backward pass ended by an exception") !=
          std::string::npos);
}

TEST_CASE("ddp: wrong options and nets are errors") {
  expect_ranks("local", 1, [&](ProcessGroup& group) {
    const std::shared_ptr<ProcessGroup> shared{std::shared_ptr<void>(), &group};
    nn::Linear net(2, 2);
    const auto error_of = [&](auto f) -> std::string {
      try {
        f();
      } catch (const Error& error) { return error.what(); }
      return "";
    };
    using Options = DistributedDataParallelOptions;
    const auto with = [&](const Options& options) {
      return error_of([&] { DistributedDataParallel(net, shared, options); });
    };
    for (const double size : {0.0, -1.0, 1e6, double{INFINITY}, std::nan("")}) {
      require(with(Options().bucket_cap_mb(size)).find("bucket_cap_mb must be a positive") != std::string::npos,
              "size");
      require(with(Options().first_bucket_mb(size)).find("first_bucket_mb must be a positive") != std::string::npos,
              "size of the first");
    }
    require(with(Options().first_bucket_mb(999'999).bucket_cap_mb(1e-9)).empty(), "sizes in range");
    require(with(Options().gradient_compression(kDouble)).find("kHalf or kBFloat16") != std::string::npos, "type");
    require(error_of([&] { DistributedDataParallel(net, nullptr); }).find("null") != std::string::npos, "group");
    nn::ReLU relu;
    require(error_of([&] { DistributedDataParallel(relu, shared); }).find("no parameter") != std::string::npos, "none");
  });
}

TEST_CASE("bucket plan: every parameter once, one dtype in each bucket, closed at its size") {
  const auto array = [](int64_t count, DType dtype) { return Array::empty({count}, dtype); };
  const std::vector<Array> parameters = {array(100, DType::f32), array(1000, DType::f32), array(10, DType::f64),
                                         array(300, DType::f32), array(10, DType::f32)};
  CHECK(plan_buckets(parameters, {4, 3, 2, 1, 0}, {1000, 4000}) == BucketPlan{{4, 3}, {1}, {2}, {0}});
  CHECK(plan_buckets(parameters, {0, 1, 2, 3, 4}, {1, 1 << 20}) == BucketPlan{{0}, {1, 3, 4}, {2}});
  CHECK(plan_buckets(parameters, {0, 1, 2, 3, 4}, {1 << 20, 1}) == BucketPlan{{0, 1, 3, 4}, {2}});
  CHECK(plan_buckets({}, {}, {1, 1}).empty());
}

TEST_CASE("all_reduce_coalesced: several arrays as one collective") {
  const auto kind = GENERATE(as<std::string>(), "local", "coalescing", "shm", "tcp");
  const bool strict = GENERATE(false, true);
  expect_ranks(kind, 3, [&](ProcessGroup& group) {
    const Array a = full({2, 3}, group.rank(), kFloat).array(), b = ones({1}).array(), none = zeros({0}).array();
    group.all_reduce_coalesced({a, none, b}, ReduceKind::sum, {.strict = strict});
    require(Tensor(a).equal(full({2, 3}, 3.0)) && Tensor(b).equal(full({1}, 3.0)), "sums");
    group.all_reduce_coalesced({b}, ReduceKind::prod, {.strict = strict});
    require(Tensor(b).equal(full({1}, 27.0)), "a single array");
    if (const auto* coalescing = dynamic_cast<CoalescingGroup*>(&group)) {
      const Array halves = zeros({5}, kHalf).array();
      group.all_reduce_coalesced({halves}, ReduceKind::avg, {.strict = strict});
      const Descriptor& call = coalescing->coalesced();
      require(call.str() == (strict ? "all_reduce #0 (strict avg of 5 float16)" : "all_reduce #0 (avg of 5 float16)"),
              call.str());
      group.all_reduce_coalesced({a, b, none});
      require(coalescing->coalesced().count == 7, "the elements of all arrays");
    }
    TensorList several;
    for (const int64_t size : {3, 1, 4, 2}) several.push_back(arange(size * 10, size * 11, kDouble) + group.rank());
    std::vector<Array> arrays;
    for (const Tensor& x : several) arrays.push_back(x.array());
    group.all_reduce_coalesced(arrays, ReduceKind::max, {.strict = strict});
    for (const Tensor& x : several)
      require(x.equal(arange(x.numel() * 10, x.numel() * 11, kDouble) + 2), "each array has its own maxima");
    const auto error_of = [&](const std::vector<Array>& arrays) -> std::string {
      try {
        group.all_reduce_coalesced(arrays);
      } catch (const Error& error) { return error.what(); }
      return "";
    };
    require(error_of({}).find("there are no arrays") != std::string::npos, "none");
    require(error_of({a, zeros({2}, kDouble).array()}).find("float64") != std::string::npos, "types");
  });
}
