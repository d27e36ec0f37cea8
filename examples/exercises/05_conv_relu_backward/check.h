inline void compare(const Sizes& s, const char* what, const Numbers& got, const gradus::Tensor& right) {
  const gradus::Tensor flat = right.contiguous().reshape(-1);
  require(static_cast<int64_t>(got.size()) == flat.numel(), what, " has ", got.size(), " numbers, right are ",
          flat.numel());
  for (size_t i = 0; i < got.size(); ++i) {
    const double expected = flat[static_cast<int64_t>(i)].item<double>();
    require(std::abs(got[i] - expected) <= 1e-9 * (1 + std::abs(expected)), what, "[", i, "], image ", s.H, "x", s.W,
            ", filters ", s.R, "x", s.S, ": got ", got[i], ", right is ", expected);
  }
}

inline void check() {
  gradus::manual_seed(5);
  const auto numbers = [](const gradus::Tensor& x) {
    const double* data = x.array().data<double>();
    return Numbers(data, data + x.numel());
  };
  for (const Sizes& s : {Sizes{1, 1, 3, 3, 1, 1, 1}, Sizes{1, 1, 4, 4, 1, 3, 3}, Sizes{2, 3, 4, 5, 4, 3, 3},
                         Sizes{2, 2, 5, 4, 3, 2, 3}}) {
    const auto random = [](const gradus::Shape& shape) {
      return gradus::randn(shape, gradus::kDouble).requires_grad_();
    };
    const gradus::Tensor x = random({s.N, s.C, s.H, s.W}), w = random({s.K, s.C, s.R, s.S}), bias = random({s.K});
    const gradus::Tensor y = gradus::conv2d(x, w, bias, 1, 1).relu();
    compare(s, "y (forward was right; leave it)", forward(s, numbers(x), numbers(w), numbers(bias)), y.detach());
    const gradus::Tensor dy = gradus::randn(y.sizes(), gradus::kDouble);
    const gradus::TensorList right = gradus::autograd::grad({y}, {x, w, bias}, {dy});
    const Gradients g = backward(s, numbers(x), numbers(w), numbers(y.detach()), numbers(dy));
    compare(s, "dbias", g.dbias, right[2]);
    compare(s, "dw", g.dw, right[1]);
    compare(s, "dx", g.dx, right[0]);
  }
}
