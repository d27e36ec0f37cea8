/// Measures operations per second, the best of three runs.
inline double speed(int64_t n, const std::function<void()>& run) {
  double best = 1e30;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2.0 * static_cast<double>(n * n * n) / best;
}

inline void check() {
  gradus::manual_seed(6);
  for (const int64_t n : {1, 2, 5, 16, 31, 64, 97}) {
    const gradus::Tensor a = gradus::randn({n, n}), b = gradus::randn({n, n}),
                         right = a.to(gradus::kDouble).matmul(b.to(gradus::kDouble));
    std::vector<float> c(static_cast<size_t>(n * n), std::nanf(""));
    product(n, a.data_ptr<float>(), b.data_ptr<float>(), c.data());
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const float got = c[static_cast<size_t>(i * n + j)];
        const double expected = right[i][j].item<double>();
        require(std::abs(got - expected) <= 1e-4 * std::sqrt(static_cast<double>(n)), "C[", i, "][", j, "] of ", n, "x",
                n, ": got ", got, ", right is ", expected);
      }
  }

  const int64_t n = 384;
  const gradus::Tensor a = gradus::randn({n, n}), b = gradus::randn({n, n}), c = gradus::empty({n, n});
  gradus::set_num_threads(1);
  const double ours = speed(n, [&] { product(n, a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>()); });
  const double best = speed(n, [&] { gradus::matmul(a, b); });
  std::cout << "384 x 384 on one thread: yours " << ours / 1e9 << " GFLOP/s, gradus " << best / 1e9 << ", so "
            << 100 * ours / best << " % of it\n";
}
