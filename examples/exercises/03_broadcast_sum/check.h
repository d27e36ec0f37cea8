/// A product whose backward pass uses the functions of the exercise.
struct Product : gradus::autograd::Function<Product> {
  static gradus::Tensor forward(gradus::autograd::AutogradContext* context, const gradus::Tensor& a,
                                const gradus::Tensor& b) {
    context->save_for_backward({a, b});
    return a * b;
  }
  static gradus::TensorList backward(gradus::autograd::AutogradContext* context, const gradus::TensorList& dy) {
    const gradus::Tensor a = context->get_saved_variables()[0], b = context->get_saved_variables()[1];
    const auto shape = [](const gradus::Tensor& x) { return Numbers(x.sizes().begin(), x.sizes().end()); };
    return {sum_to_shape(dy[0] * b, shape(a)), sum_to_shape(dy[0] * a, shape(b))};
  }
};

inline void check() {
  using gradus::Tensor;
  const auto shape_is = [](const Numbers& a, const Numbers& b, const std::optional<Numbers>& right) {
    const std::optional<Numbers> got = broadcast_shape(a, b);
    const auto text = [](const std::optional<Numbers>& shape) { return shape ? listed(*shape) : "do not fit"; };
    require(got == right, "shapes ", listed(a), " and ", listed(b), ": got ", text(got), ", right is ", text(right));
  };
  shape_is({2, 3}, {2, 3}, Numbers{2, 3});
  shape_is({64, 3, 32, 32}, {3, 1, 1}, Numbers{64, 3, 32, 32});
  shape_is({3, 1}, {5, 1, 4}, Numbers{5, 3, 4});
  shape_is({64, 10}, {64}, std::nullopt);
  shape_is({2, 3}, {3, 3}, std::nullopt);
  shape_is({}, {4}, Numbers{4});
  shape_is({0, 3}, {1, 3}, Numbers{0, 3});
  shape_is({0}, {2}, std::nullopt);

  const auto sum_is = [](const char* what, const Tensor& dy, const Numbers& shape, const Tensor& right) {
    const Tensor got = sum_to_shape(dy, shape);
    const Numbers sizes(got.sizes().begin(), got.sizes().end());
    require(sizes == shape, what, ": the gradient has shape ", listed(sizes), ", but the operand ", listed(shape));
    require(got.allclose(right), what, ": the numbers are wrong");
  };
  const Tensor dy = gradus::arange(24).to(gradus::kFloat).reshape({2, 3, 4});
  sum_is("nothing was repeated", dy, {2, 3, 4}, dy);
  sum_is("(4) became (2, 3, 4)", dy, {4}, dy.sum({0, 1}));
  sum_is("(3, 1) became (2, 3, 4)", dy, {3, 1}, dy.sum({0, 2}).reshape({3, 1}));
  sum_is("(2, 1, 4) became (2, 3, 4)", dy, {2, 1, 4}, dy.sum(1, true));
  sum_is("() became (2, 3, 4)", dy, {}, dy.sum());
  sum_is("(1, 3, 1) became (1, 3, 4)", dy.slice(0, 0, 1), {1, 3, 1}, dy.slice(0, 0, 1).sum(2, true));

  const auto product = [](const gradus::TensorList& in) { return gradus::TensorList{Product::apply(in[0], in[1])}; };
  const Tensor a = gradus::rand({2, 1, 3}, gradus::kDouble).requires_grad_();
  const Tensor b = gradus::rand({4, 1}, gradus::kDouble).requires_grad_();
  gradus::autograd::gradcheck(product, {a, b});
}
