// Operators that write into their first argument. They write into a clone: a leaf that wants a gradient is an error.
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

void add_in_place(CaseList& cases) {
  add_to_whole(cases);
  add_through_views(cases);
}

}  // namespace gradus::op_cases
