inline void hold_against_differences(const char* name, const std::function<TensorList(const TensorList&)>& f,
                                     const TensorList& inputs) {
  try {
    gradus::autograd::gradcheck(f, inputs);
  } catch (const gradus::Error& error) { require(false, name, ", first derivatives: ", error.what()); }
  try {
    gradus::autograd::gradgradcheck(f, inputs);
  } catch (const gradus::Error& error) { require(false, name, ", second derivatives: ", error.what()); }
}

inline void check() {
  gradus::manual_seed(4);
  const auto random = [](const gradus::Shape& shape) { return gradus::randn(shape, gradus::kDouble).requires_grad_(); };
  hold_against_differences("softplus", [](const TensorList& in) { return TensorList{Softplus::apply(in[0])}; },
                           {random({3, 4})});
  hold_against_differences("layer norm", [](const TensorList& in) { return TensorList{LayerNorm::apply(in[0])}; },
                           {random({3, 5})});
  hold_against_differences("conv1d", [](const TensorList& in) { return TensorList{Conv1d::apply(in[0], in[1])}; },
                           {random({2, 3, 6}), random({4, 3, 3})});

  const Tensor x = random({2, 3, 6}), w = random({4, 3, 3}), dy = gradus::randn({2, 4, 4}, gradus::kDouble);
  const TensorList ours = gradus::autograd::grad({Conv1d::apply(x, w)}, {x, w}, {dy});
  const TensorList theirs = gradus::autograd::grad({gradus::conv1d(x, w)}, {x, w}, {dy});
  require(ours[0].allclose(theirs[0]) && ours[1].allclose(theirs[1]),
          "conv1d: gradients differ from those of gradus::conv1d");
}
