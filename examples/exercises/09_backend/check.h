inline void check() {
  MyBackend mine;
  const std::vector<std::string> names = gradus::backend_names();
  require(std::find(names.begin(), names.end(), mine.name()) == names.end(), "the name '", mine.name(), "' is taken");

  // Compares the results of the naive backend with those of MyBackend.
  const auto compare = [&](const char* what, const gradus::Tensor& a, const gradus::Tensor& b, bool falls_back) {
    gradus::Tensor right, got;
    {
      const gradus::BackendGuard guard("naive");
      right = a.matmul(b);
    }
    mine.products_of_naive = 0;
    {
      const gradus::BackendGuard guard(mine);
      got = a.matmul(b);
    }
    require(got.allclose(right, 1e-5, 1e-5), what, ": the numbers differ from naive's");
    require(falls_back == (mine.products_of_naive > 0), what,
            falls_back ? ": leave this one to naive" : ": this one was left to naive");
  };
  gradus::manual_seed(9);
  const gradus::Tensor a = gradus::randn({5, 7}), b = gradus::randn({7, 3});
  compare("(5, 7) (7, 3)", a, b, false);
  compare("a transposed", gradus::randn({7, 5}).t(), b, false);
  compare("b transposed", a, gradus::randn({3, 7}).t(), false);
  compare("every second column of a", gradus::randn({5, 14}).slice(1, 0, 14, 2), b, false);
  compare("terms that cancel, 1e8 + 1 - 1e8: add up in double", gradus::tensor({1e8f, 1.0f, -1e8f}).reshape({1, 3}),
          gradus::ones({3, 1}), false);
  compare("no terms: (5, 0) (0, 3) is all zeros", gradus::empty({5, 0}), gradus::empty({0, 3}), false);
  compare("no results: (0, 7) (7, 3)", gradus::empty({0, 7}), b, false);
  compare("float64", a.to(gradus::kDouble), b.to(gradus::kDouble), true);
  compare("four products at once, (4, 5, 7) (4, 7, 3)", gradus::randn({4, 5, 7}), gradus::randn({4, 7, 3}), true);

  const gradus::Tensor y = gradus::ones({5, 3});
  mine.matmul(a.array(), b.array(), y.array(), /*accumulate=*/true);
  require(y.allclose(a.matmul(b) + 1, 1e-5, 1e-5), "with accumulate the product is added to what y holds");
}
