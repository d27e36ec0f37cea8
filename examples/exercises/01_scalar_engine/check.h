inline void expect(const char* what, double got, double right) {
  require(std::abs(got - right) <= 1e-9 * (1 + std::abs(right)), what, ": got ", got, ", right is ", right);
}

inline void check() {
  {
    const Number a(2), b(3), y = a * b;
    expect("2 * 3", y.value(), 6);
    y.backward();
    expect("the derivative of a product by its first factor is the other one: a factor", a.gradient(), 3);
    expect("the derivative of a product by its second factor is the first: a factor", b.gradient(), 2);
  }
  {
    const Number x(0.5), y = tanh(x);
    y.backward();
    expect("tanh(0.5)", y.value(), std::tanh(0.5));
    expect("the derivative of tanh at 0.5", x.gradient(), 1 - std::tanh(0.5) * std::tanh(0.5));
  }
  {
    const Number x(3), y = x * x + x;
    y.backward();
    expect("a number that is used twice or more gets the sum of what comes back; x² + x at 3, used twice", x.gradient(),
           7);
    y.backward();
    expect("a second backward gives the same again", x.gradient(), 7);
  }
  {
    // s is used by p and by y. p is made later than s, so s must wait for it.
    const Number x(2), s = x * x, p = s * s, y = s + p;
    y.backward();
    expect("y = s + s², s = x² at 2: s handed its gradient on before all that use it had delivered theirs",
           x.gradient(), 2 * 2 * (1 + 2 * 4));
    const Number q(2), r = q * q, t = r * r, z = t + r;
    z.backward();
    expect("z = r² + r, r = q² at 2: r handed its gradient on before all that use it had delivered theirs",
           q.gradient(), 2 * 2 * (1 + 2 * 4));
  }

  // Compares a random expression with gradus.
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<Number> ours;
    std::vector<gradus::Tensor> theirs;
    for (double value : {0.3, -0.7, 1.1}) {
      ours.emplace_back(value);
      theirs.push_back(gradus::full({}, value, gradus::kDouble).requires_grad_());
    }
    for (int i = 0; i < 12; ++i) {
      const size_t a = random() % ours.size(), b = random() % ours.size(), kind = random() % 3;
      ours.push_back(kind == 0 ? ours[a] + ours[b] : kind == 1 ? ours[a] * ours[b] : tanh(ours[a]));
      theirs.push_back(kind == 0 ? theirs[a] + theirs[b] : kind == 1 ? theirs[a] * theirs[b] : theirs[a].tanh());
    }
    if (!theirs.back().grad_fn()) continue;
    ours.back().backward();
    theirs.back().backward();
    for (size_t i = 0; i < 3; ++i) {
      const double right = theirs[i].grad().defined() ? theirs[i].grad().item<double>() : 0;
      expect("in a random expression of sums, products and tanh, compared with gradus: a gradient", ours[i].gradient(),
             right);
    }
  }
}
