// Operators that write into their first argument, which is a clone here, because writing into a leaf that requires
// gradients is an error.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_to_whole(CaseList& cases) {
  cases.add("add_", {{3, 5}, {3, 5}}, [](X x) { return x[0].clone().add_(x[1]); }, "x[0].clone().add_(x[1])")
      .on(all_types).keeps_layout();
  cases.add("add_.alpha", {{3, 5}, {5}}, [](X x) { return x[0].clone().add_(x[1], 3); },
            "x[0].clone().add_(x[1], alpha=3)").on(floats | integers);
  cases.add("add_.number", {{3, 5}}, [](X x) { return x[0].clone() += 2; }, "x[0].clone().add_(2)")
      .on(floats | integers);
  cases.add("sub_", {{3, 5}, {3, 1}}, [](X x) { return x[0].clone().sub_(x[1]); }, "x[0].clone().sub_(x[1])")
      .on(floats | integers).keeps_layout();
  cases.add("mul_", {{3, 5}, {3, 5}}, [](X x) { return x[0].clone().mul_(x[1]); }, "x[0].clone().mul_(x[1])")
      .on(all_types).keeps_layout();
  cases.add("mul_.itself", {{5}}, [](X x) {
    Tensor y = x[0].clone();
    return y.mul_(y);
  }, "(lambda y: y.mul_(y.clone()))(x[0].clone())");
  cases.add("mul_.of_result", {{5}, {5}}, [](X x) { return exp(x[0]).mul(1).mul_(x[1]); },
            "x[0].exp().mul(1).mul_(x[1])");
  cases.add("div_", {{3, 5}, nonzero({5})}, [](X x) { return x[0].clone().div_(x[1]); }, "x[0].clone().div_(x[1])")
      .keeps_layout();
  cases.add("div_.number", {{3, 5}}, [](X x) { return x[0].clone() /= 4; }, "x[0].clone().div_(4)");
  cases.add("zero_", {{3, 5}}, [](X x) { return (x[0] * 2).zero_(); }, "(x[0] * 2).zero_()").on(floats | integers)
      .differentiable(1);
  cases.add("fill_", {{3, 5}}, [](X x) { return x[0].clone().fill_(3); }, "x[0].clone().fill_(3)").on(all_types)
      .differentiable(1);
  cases.add("copy_", {{3, 5}, {3, 5}}, [](X x) { return x[0].clone().copy_(x[1]); }, "x[0].clone().copy_(x[1])")
      .on(all_types).keeps_layout();
  cases.add("copy_.broadcast", {{3, 5}, {3, 1}}, [](X x) { return x[0].clone().copy_(x[1]); },
            "x[0].clone().copy_(x[1])").on(all_types);
  cases.add("copy_.converting", {{3, 5}, {3, 5}}, [](X x) { return x[0].to(kFloat).clone().copy_(x[1]); },
            "x[0].to(torch.float32).clone().copy_(x[1])").gives(kFloat);
  cases.add("relu_", {{3, 5}}, [](X x) { return x[0].clone().relu_(); }, "x[0].clone().relu_()")
      .on(floats | integers).keeps_layout();
  cases.add("clamp_", {{3, 5}}, [](X x) { return x[0].clone().clamp_(1, 3); }, "x[0].clone().clamp_(1, 3)")
      .on(floats | integers).keeps_layout();
}

static void add_unary_to_whole(CaseList& cases) {
  const auto add = [&](const char* name, const Input& input, Tensor (*run)(X), const char* torch,
                       int types = floats) -> OpCase& {
    return cases.add(name, {input}, run, torch).on(types).keeps_layout();
  };
  add("neg_", {3, 5}, [](X x) { return x[0].clone().neg_(); }, "x[0].clone().neg_()", floats | integers);
  add("abs_", {3, 5}, [](X x) { return x[0].clone().abs_(); }, "x[0].clone().abs_()", floats | integers);
  add("exp_", {3, 5}, [](X x) { return x[0].clone().exp_(); }, "x[0].clone().exp_()");
  add("log_", positive({3, 5}), [](X x) { return x[0].clone().log_(); }, "x[0].clone().log_()");
  add("sqrt_", positive({3, 5}), [](X x) { return x[0].clone().sqrt_(); }, "x[0].clone().sqrt_()");
  add("rsqrt_", positive({3, 5}), [](X x) { return x[0].clone().rsqrt_(); }, "x[0].clone().rsqrt_()");
  add("reciprocal_", nonzero({3, 5}), [](X x) { return x[0].clone().reciprocal_(); }, "x[0].clone().reciprocal_()");
  add("square_", {3, 5}, [](X x) { return x[0].clone().square_(); }, "x[0].clone().square_()", floats | integers);
  add("sin_", {3, 5}, [](X x) { return x[0].clone().sin_(); }, "x[0].clone().sin_()");
  add("cos_", {3, 5}, [](X x) { return x[0].clone().cos_(); }, "x[0].clone().cos_()");
  add("erf_", {3, 5}, [](X x) { return x[0].clone().erf_(); }, "x[0].clone().erf_()");
  add("log1p_", positive({3, 5}), [](X x) { return x[0].clone().log1p_(); }, "x[0].clone().log1p_()");
  add("expm1_", {3, 5}, [](X x) { return x[0].clone().expm1_(); }, "x[0].clone().expm1_()");
  add("sigmoid_", {3, 5}, [](X x) { return x[0].clone().sigmoid_(); }, "x[0].clone().sigmoid_()");
  add("tanh_", {3, 5}, [](X x) { return x[0].clone().tanh_(); }, "x[0].clone().tanh_()");
  add("sign_", {3, 5}, [](X x) { return x[0].clone().sign_(); }, "x[0].clone().sign_()").differentiable(1);
  add("floor_", {3, 5}, [](X x) { return x[0].clone().floor_(); }, "x[0].clone().floor_()").differentiable(1);
  add("ceil_", {3, 5}, [](X x) { return x[0].clone().ceil_(); }, "x[0].clone().ceil_()").differentiable(1);
  add("round_", {3, 5}, [](X x) { return x[0].clone().round_(); }, "x[0].clone().round_()").differentiable(1);
  add("trunc_", {3, 5}, [](X x) { return x[0].clone().trunc_(); }, "x[0].clone().trunc_()").differentiable(1);
  add("leaky_relu_", {3, 5}, [](X x) { return leaky_relu_(x[0].clone(), 0.2); }, "F.leaky_relu_(x[0].clone(), 0.2)");
  add("elu_", {3, 5}, [](X x) { return elu_(x[0].clone(), 1.5); }, "F.elu_(x[0].clone(), 1.5)");
  add("elu_.scales", {3, 5}, [](X x) { return elu_(x[0].clone(), 0.5, 1.5, 2); },
      "torch.ops.aten.elu_(x[0].clone(), 0.5, 1.5, 2)");
  add("selu_", {3, 5}, [](X x) { return selu_(x[0].clone()); }, "F.selu_(x[0].clone())");
  add("celu_", {3, 5}, [](X x) { return celu_(x[0].clone(), 1.5); }, "F.celu_(x[0].clone(), 1.5)");
  add("silu_", {3, 5}, [](X x) { return silu_(x[0].clone()); }, "F.silu(x[0].clone(), inplace=True)");
  add("mish_", {3, 5}, [](X x) { return mish_(x[0].clone()); }, "F.mish(x[0].clone(), inplace=True)");
  add("hardtanh_", {3, 5}, [](X x) { return hardtanh_(x[0].clone(), -1.5, 0.5); },
      "F.hardtanh_(x[0].clone(), -1.5, 0.5)");
  add("relu6_", {3, 5}, [](X x) { return relu6_(x[0].clone()); }, "F.relu6(x[0].clone(), inplace=True)");
  add("hardsigmoid_", {3, 5}, [](X x) { return hardsigmoid_(x[0].clone()); },
      "F.relu6(x[0] + 3) / 6");  // PyTorch's derivative uses 1 / 6 as a float
  add("hardswish_", {3, 5}, [](X x) { return hardswish_(x[0].clone()); }, "F.hardswish(x[0].clone(), inplace=True)");
  add("threshold_", {3, 5}, [](X x) { return threshold_(x[0].clone(), 0.25, -3); },
      "F.threshold_(x[0].clone(), 0.25, -3)");
  add("rrelu_", {3, 5}, [](X x) { return rrelu_(x[0].clone()); }, "F.rrelu_(x[0].clone())");
  // An input that is a result and is needed for its own backward: the data before the write must be kept.
  cases.add("tanh_.of_result", {{5}}, [](X x) { return exp(x[0]).mul(1).sin_().tanh_(); },
            "x[0].exp().mul(1).sin_().tanh_()");
}

static void add_binary_to_whole(CaseList& cases) {
  cases.add("pow_", {positive({3, 5})}, [](X x) { return x[0].clone().pow_(3); }, "x[0].clone().pow_(3)")
      .on(floats | integers).keeps_layout();
  cases.add("pow_.tensor", {positive({3, 5}), {5}}, [](X x) { return x[0].clone().pow_(x[1]); },
            "x[0].clone().pow_(x[1])");
  cases.add("fmod_", {{3, 5}, nonzero({5})}, [](X x) { return x[0].clone().fmod_(x[1]); }, "x[0].clone().fmod_(x[1])")
      .on(floats | integers).keeps_layout();
  cases.add("fmod_.number", {{3, 5}}, [](X x) { return x[0].clone().fmod_(0.75); }, "x[0].clone().fmod_(0.75)");
  cases.add("remainder_", {{3, 5}, nonzero({5})}, [](X x) { return x[0].clone().remainder_(x[1]); },
            "x[0].clone().remainder_(x[1])").on(floats | integers).keeps_layout();
  cases.add("remainder_.number", {{3, 5}}, [](X x) { return x[0].clone().remainder_(0.75); },
            "x[0].clone().remainder_(0.75)");
  cases.add("lerp_", {{3, 5}, {3, 1}}, [](X x) { return x[0].clone().lerp_(x[1], 0.3); },
            "x[0].clone().lerp_(x[1], 0.3)").keeps_layout();
  cases.add("lerp_.tensor", {{3, 5}, {3, 5}, {3, 5}}, [](X x) { return x[0].clone().lerp_(x[1], x[2]); },
            "x[0].clone().lerp_(x[1], x[2])");
  cases.add("addcmul_", {{3, 5}, {3, 5}, {5}}, [](X x) { return x[0].clone().addcmul_(x[1], x[2], 2); },
            "x[0].clone().addcmul_(x[1], x[2], value=2)").on(floats | integers).keeps_layout();
  cases.add("addcdiv_", {{3, 5}, {3, 5}, nonzero({5})}, [](X x) { return x[0].clone().addcdiv_(x[1], x[2], -0.5); },
            "x[0].clone().addcdiv_(x[1], x[2], value=-0.5)").keeps_layout();
  cases.add("clamp_.tensors", {{3, 5}, {5}, {3, 1}}, [](X x) { return x[0].clone().clamp_(x[1], x[2]); },
            "x[0].clone().clamp_(x[1], x[2])").on(floats | integers);
  cases.add("clamp_.crossed", {{3, 5}}, [](X x) { return x[0].clone().clamp_(2, 1); }, "x[0].clone().clamp_(2, 1)")
      .on(floats | integers);
  cases.add("div_.floor", {{3, 5}, nonzero({5})}, [](X x) { return x[0].clone().div_(x[1], "floor"); },
            "x[0].clone().div_(x[1], rounding_mode='floor')").on(floats | integers).differentiable(1)
      .without_finite_differences();
  cases.add("clamp_min_", {{3, 5}}, [](X x) { return x[0].clone().clamp_min_(1); }, "x[0].clone().clamp_min_(1)")
      .on(floats | integers);
  cases.add("clamp_max_", {{3, 5}}, [](X x) { return x[0].clone().clamp_max_(1); }, "x[0].clone().clamp_max_(1)")
      .on(floats | integers);
}

// The result is the whole tensor, changed through a view of it.
static void add_through_views(CaseList& cases) {
  cases.add("mul_.row", {{3, 4}, {4}}, [](X x) {
    Tensor y = x[0].clone();
    y[1].mul_(x[1]);
    return y;
  }, "(lambda y: (y[1].mul_(x[1]), y)[1])(x[0].clone())");
  cases.add("add_.slice", {{3, 6}, {3, 2}}, [](X x) {
    Tensor y = x[0].clone();
    y.slice(1, 1, 5, 2).add_(x[1]);
    return y;
  }, "(lambda y: (y[:, 1:5:2].add_(x[1]), y)[1])(x[0].clone())");
  cases.add("mul_.view_of_view", {{2, 3, 4}, {3}}, [](X x) {
    Tensor y = x[0].clone();
    y.transpose(0, 2)[1].mul_(x[1].unsqueeze(1));
    return y * y;
  }, "(lambda y: (y.transpose(0, 2)[1].mul_(x[1].unsqueeze(1)), y * y)[1])(x[0].clone())");
  cases.add("copy_.column", {{3, 4}, {3}}, [](X x) {
    Tensor y = exp(x[0]).add(1);
    y.select(1, 2).copy_(x[1]);
    return y;
  }, "(lambda y: (y.select(1, 2).copy_(x[1]), y)[1])(x[0].exp().add(1))");
  cases.add("zero_.view", {{3, 4}}, [](X x) {
    Tensor y = x[0] * x[0];
    y[0].zero_();
    return y;
  }, "(lambda y: (y[0].zero_(), y)[1])(x[0] * x[0])");
  cases.add("index_put_", {{3, 6}, {2}}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({Slice(1), 2}, x[1]);
    return y;
  }, "(lambda y: (y[1:, 2].copy_(x[1]), y)[1])(x[0].clone())");
  cases.add("index_put_.number", {{3, 6}}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({Ellipsis, Slice({}, {}, 3)}, 2);
    return y;
  }, "(lambda y: (y[..., ::3].fill_(2), y)[1])(x[0].clone())");
  cases.add("add_.view_and_base", {{2, 3}, {3}}, [](X x) {
    Tensor y = x[0].clone();
    Tensor row = y[0];
    row.add_(x[1]);
    y.mul_(2);
    return TensorList{y, row * row};
  }, "(lambda y: (lambda r: (r.add_(x[1]), y.mul_(2), (y, y[0] * y[0]))[2])(y[0]))(x[0].clone())");
}

// Operators that replace a tensor by a view of itself.
static void add_views_of_itself(CaseList& cases) {
  const auto add = [&](const char* name, const Input& input, Tensor (*run)(X), const char* torch) {
    cases.add(name, {input}, run, torch).on(all_types);
  };
  add("unsqueeze_", {2, 3}, [](X x) { return x[0].clone().unsqueeze_(1); }, "x[0].clone().unsqueeze_(1)");
  add("squeeze_", {1, 3, 1}, [](X x) { return x[0].clone().squeeze_(); }, "x[0].clone().squeeze_()");
  add("squeeze_.dim", {1, 3, 1}, [](X x) { return x[0].clone().squeeze_(-1); }, "x[0].clone().squeeze_(-1)");
  add("transpose_", {2, 3, 4}, [](X x) { return x[0].clone().transpose_(0, -1); }, "x[0].clone().transpose_(0, -1)");
  add("t_", {2, 3}, [](X x) { return x[0].clone().t_(); }, "x[0].clone().t_()");
  cases.add("unsqueeze_.view", {{3, 4}, {4}}, [](X x) {  // writes into the view afterwards
    Tensor y = x[0].clone(), row = y.select(0, 1);
    row.unsqueeze_(0);
    row.mul_(x[1]);
    return TensorList{y, row * row};
  }, "(lambda y: (lambda r: (r.unsqueeze_(0), r.mul_(x[1]), (y, r * r))[2])(y.select(0, 1)))(x[0].clone())");
  cases.add("t_.base", {{3, 4}, {4}}, [](X x) {  // writes into the base afterwards
    Tensor y = x[0].clone(), row = y.select(0, 1);
    y.t_();
    row.mul_(x[1]);
    return TensorList{y * y, row};
  }, "(lambda y: (lambda r: (y.t_(), r.mul_(x[1]), (y * y, r))[2])(y.select(0, 1)))(x[0].clone())");
}

void add_in_place(CaseList& cases) {
  add_views_of_itself(cases);
  add_to_whole(cases);
  add_unary_to_whole(cases);
  add_binary_to_whole(cases);
  add_through_views(cases);
}

}  // namespace gradus::op_cases
