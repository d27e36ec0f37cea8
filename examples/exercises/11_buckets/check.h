inline void check_rank(int64_t bucket_elements, int expected_buckets) {
  namespace nn = gradus::nn;
  const auto group = gradus::dist::init_process_group({.timeout = gradus::dist::Milliseconds(10000)});
  gradus::manual_seed(11);
  nn::Sequential net(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 8), nn::Tanh(), nn::Linear(8, 2));
  const std::vector<Tensor> parameters = net->parameters();
  Buckets buckets(parameters, *group, bucket_elements);

  for (int step = 0; step < 3; ++step) {
    const Tensor batch = gradus::randn({12, 6});  // the same on all ranks, because the seed is the same
    const int64_t part = 12 / group->size();
    net->zero_grad();
    net->forward(batch.slice(0, part * group->rank(), part * (group->rank() + 1))).square().mean().backward();
    require(buckets.collectives == expected_buckets * (step + 1), "buckets of at least ", bucket_elements,
            " numbers, step ", step + 1, ": ", buckets.collectives,
            " averages have been started by the end of backward, right are ", expected_buckets * (step + 1));
    buckets.finish();
    std::vector<Tensor> got;
    for (const Tensor& parameter : parameters) got.push_back(parameter.grad().clone());

    const gradus::TensorList right = gradus::autograd::grad({net->forward(batch).square().mean()}, parameters);
    for (size_t i = 0; i < right.size(); ++i)
      require(got[i].allclose(right[i], 1e-4, 1e-6), "buckets of at least ", bucket_elements, " numbers, step ",
              step + 1, ", rank ", group->rank(), " of ", group->size(), ": the gradient of parameter ", i,
              " is not that of the whole batch");
  }
}

inline void check() {
  check_rank(1, 6);
  for (const int ranks : {2, 3}) {
    try {
      gradus::dist::spawn([](int) { check_rank(1, 6), check_rank(50, 2), check_rank(1000, 1); }, ranks);
    } catch (const gradus::CommError& error) { require(false, error.what()); }
  }
}
