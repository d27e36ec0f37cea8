// Autograd in LibTorch's words: gradients of gradients, functions of one's own, modes.
#include <gradus/torch.h>

#include <gradus/tests/catch.h>

#include <sstream>

using namespace torch::autograd;

namespace {

class Affine : public Function<Affine> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor input, torch::Tensor weight,
                               torch::Tensor bias = torch::Tensor()) {
    ctx->save_for_backward({input, weight, bias});
    auto output = input.mm(weight.t());
    if (bias.defined()) output += bias.unsqueeze(0).expand_as(output);
    return output;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    auto saved = ctx->get_saved_variables();
    auto grad = grad_outputs[0];
    torch::Tensor grad_bias;
    if (saved[2].defined()) grad_bias = grad.sum(0);
    return {grad.mm(saved[1]), grad.t().mm(saved[0]), grad_bias};
  }
};

class Times : public Function<Times> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor tensor, double factor) {
    ctx->saved_data["factor"] = factor;
    return tensor * factor;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    return {grad_outputs[0] * ctx->saved_data["factor"].toDouble(), torch::Tensor()};
  }
};

}  // namespace

TEST_CASE("gradients, their history and modes") {
  auto x = torch::ones({2, 2}, torch::requires_grad());
  auto z = (x + 2) * (x + 2) * 3;
  auto out = z.mean();
  out.backward();
  CHECK(x.grad().equal(torch::full({2, 2}, 4.5)));
  std::ostringstream text;
  text << z.grad_fn()->name() << " " << z.grad_fn() << "\n" << x.grad() << x.sizes() << x.dtype() << x.device();
  CHECK_FALSE(text.str().empty());

  x = torch::randn(3, torch::requires_grad());
  auto y = x * 2;
  while (y.norm().item<double>() < 1000) y = y * 2;
  auto v = torch::tensor({0.1, 1.0, 0.0001}, torch::kFloat);
  y.backward(v);
  CHECK(x.grad().allclose(v * (y / x).detach()));
  {
    torch::NoGradGuard no_grad;
    CHECK_FALSE(x.pow(2).requires_grad());
  }
  torch::InferenceMode guard;
  CHECK_FALSE((x * 2).requires_grad());
}

TEST_CASE("a gradient penalty") {
  torch::manual_seed(1);
  auto model = torch::nn::Linear(4, 3);
  auto input = torch::randn({3, 4}).requires_grad_(true);
  auto output = model(input);
  auto loss = torch::nn::MSELoss()(output, torch::randn({3, 3}));
  auto gradient = torch::autograd::grad({output}, {input}, /*grad_outputs=*/{torch::ones_like(output)},
                                        /*retain_graph=*/true, /*create_graph=*/true)[0];
  auto penalty = torch::pow((gradient.norm(2, /*dim=*/1) - 1), 2).mean();
  (loss + penalty).backward();
  CHECK(input.grad().defined());
  CHECK(model->weight.grad().abs().sum().item<float>() > 0);
}

TEST_CASE("functions of one's own, with defaults and numbers") {
  auto x = torch::randn({2, 3}).requires_grad_();
  auto weight = torch::randn({4, 3}).requires_grad_();
  Affine::apply(x, weight).sum().backward();
  CHECK(x.grad().allclose(torch::ones({2, 4}).mm(weight)));
  auto bias = torch::randn({4}).requires_grad_();
  Affine::apply(x, weight, bias).sum().backward();
  CHECK(bias.grad().equal(torch::full({4}, 2.0)));
  auto y = torch::randn({2}).requires_grad_();
  Times::apply(y, 5.5).sum().backward();
  CHECK(y.grad().equal(torch::full({2}, 5.5)));
}
