// Values and gradients at the corners of domains: zeros of both signs, ones, infinities, NaN and numbers far from 1,
// for operators with one argument and, in all pairs, with two. Also the results of losses, reductions and poolings
// without elements.
#include <cmath>

#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

namespace {

// "exp", "corners": "exp.corners"; "pow.0", "corners": "pow.0_corners"
std::string named(const std::string& call, const std::string& what) {
  return call + (call.find('.') == std::string::npos ? "." : "_") + what;
}

struct Corner {
  const char* name;
  Tensor (*run)(X);
  std::string torch;
};

Tensor without_nan(const Tensor& x) { return where(isnan(x), 0.0, x); }
std::string without_nan_in_python(int i) {
  const std::string x = "x[" + std::to_string(i) + "]";
  return "torch.where(" + x + ".isnan(), torch.zeros_like(" + x + "), " + x + ")";
}

void add_unary_corners(CaseList& cases) {
  const Corner corners[] = {
      {"abs", [](X x) { return abs(x[0]); }, "x[0].abs()"},
      {"square", [](X x) { return square(x[0]); }, "x[0].square()"},
      {"exp", [](X x) { return exp(x[0]); }, "x[0].exp()"},
      {"expm1", [](X x) { return expm1(x[0]); }, "x[0].expm1()"},
      {"log", [](X x) { return log(x[0]); }, "x[0].log()"},
      {"log1p", [](X x) { return log1p(x[0]); }, "x[0].log1p()"},
      {"log2", [](X x) { return log2(x[0]); }, "x[0].log2()"},
      {"log10", [](X x) { return log10(x[0]); }, "x[0].log10()"},
      {"sqrt", [](X x) { return sqrt(x[0]); }, "x[0].sqrt()"},
      {"rsqrt", [](X x) { return rsqrt(x[0]); }, "x[0].rsqrt()"},
      {"reciprocal", [](X x) { return reciprocal(x[0]); }, "x[0].reciprocal()"},
      {"sin", [](X x) { return sin(x[0]); }, "x[0].sin()"},
      {"cos", [](X x) { return cos(x[0]); }, "x[0].cos()"},
      {"erf", [](X x) { return erf(x[0]); }, "x[0].erf()"},
      {"relu", [](X x) { return relu(x[0]); }, "x[0].relu()"},
      {"sigmoid", [](X x) { return sigmoid(x[0]); }, "x[0].sigmoid()"},
      {"tanh", [](X x) { return tanh(x[0]); }, "x[0].tanh()"},
      {"sign", [](X x) { return sign(x[0]); }, "x[0].sign()"},
      {"floor", [](X x) { return floor(x[0]); }, "x[0].floor()"},
      {"round", [](X x) { return round(x[0]); }, "x[0].round()"},
      {"clamp", [](X x) { return clamp(x[0], -1, 1); }, "x[0].clamp(-1, 1)"},
      {"silu", [](X x) { return silu(x[0]); }, "F.silu(x[0])"},
      // Inputs are clamped where PyTorch's gradient is NaN although one exists, or where it has no gradient for NaN.
      {"mish", [](X x) { return mish(x[0].clamp_max(100)); }, "F.mish(x[0].clamp(max=100))"},
      {"gelu.tanh", [](X x) { return gelu(x[0].clamp(-100, 100), "tanh"); },
       "F.gelu(x[0].clamp(-100, 100), approximate='tanh')"},
      // An infinite gradient arrives at the flat part of the piecewise linear function.
      {"sqrt.of_relu", [](X x) { return sqrt(relu(x[0])); }, "x[0].relu().sqrt()"},
      {"sqrt.of_clamp", [](X x) { return sqrt(clamp(x[0], 0, 1)); }, "x[0].clamp(0, 1).sqrt()"},
      {"sqrt.of_clamp_min", [](X x) { return sqrt(clamp_min(x[0], 0)); }, "x[0].clamp(min=0).sqrt()"},
      {"sqrt.of_hardtanh", [](X x) { return sqrt(hardtanh(x[0], 0, 1)); }, "F.hardtanh(x[0], 0, 1).sqrt()"},
      {"sqrt.of_relu6", [](X x) { return sqrt(relu6(x[0])); }, "F.relu6(x[0]).sqrt()"},
      {"sqrt.of_threshold", [](X x) { return sqrt(threshold(x[0], 0, 0)); }, "F.threshold(x[0], 0, 0).sqrt()"},
      {"sqrt.of_softshrink", [](X x) { return sqrt(softshrink(without_nan(x[0]))); },
       "F.softshrink(" + without_nan_in_python(0) + ").sqrt()"},
      {"sqrt.of_where", [](X x) { return sqrt(where(x[0] > 0, x[0], 0)); },
       "torch.where(x[0] > 0, x[0], torch.zeros_like(x[0])).sqrt()"},
      {"sqrt.of_masked_fill", [](X x) { return sqrt(x[0].masked_fill(x[0] < 1, 0)); },
       "x[0].masked_fill(x[0] < 1, 0).sqrt()"},
      {"sqrt.of_square", [](X x) { return sqrt(square(x[0])); }, "x[0].square().sqrt()"},
      {"sqrt.of_abs", [](X x) { return sqrt(abs(x[0])); }, "x[0].abs().sqrt()"},
      {"log.of_relu", [](X x) { return log(relu(x[0])); }, "x[0].relu().log()"},
      {"gelu", [](X x) { return gelu(x[0]); }, "F.gelu(x[0])"},
      {"log_sigmoid", [](X x) { return log_sigmoid(x[0]); }, "F.logsigmoid(x[0])"},
      {"softplus", [](X x) { return softplus(x[0]); }, "F.softplus(x[0])"},
      {"softsign", [](X x) { return softsign(x[0]); }, "F.softsign(x[0])"},
      {"hardswish", [](X x) { return hardswish(x[0]); }, "F.hardswish(x[0])"},
      {"hardsigmoid", [](X x) { return hardsigmoid(x[0]); }, "F.hardsigmoid(x[0])"},
      {"hardtanh", [](X x) { return hardtanh(x[0]); }, "F.hardtanh(x[0])"},
      {"relu6", [](X x) { return relu6(x[0]); }, "F.relu6(x[0])"},
      {"leaky_relu", [](X x) { return leaky_relu(x[0], 0.25); }, "F.leaky_relu(x[0], 0.25)"},
      {"elu", [](X x) { return elu(x[0], 0.5); }, "F.elu(x[0], 0.5)"},
      {"celu", [](X x) { return celu(x[0], 0.5); }, "F.celu(x[0], 0.5)"},
      {"selu", [](X x) { return selu(x[0]); }, "F.selu(x[0])"},
      {"softshrink", [](X x) { return softshrink(without_nan(x[0])); }, "F.softshrink(" + without_nan_in_python(0) + ")"},
      {"hardshrink", [](X x) { return hardshrink(without_nan(x[0])); }, "F.hardshrink(" + without_nan_in_python(0) + ")"},
      {"tanhshrink", [](X x) { return tanhshrink(x[0]); }, "F.tanhshrink(x[0])"},
      {"threshold", [](X x) { return threshold(x[0], 0.5, 3); }, "F.threshold(x[0], 0.5, 3)"},
      {"nan_to_num", [](X x) { return nan_to_num(x[0], 1, 2, 3); }, "x[0].nan_to_num(1, 2, 3)"},
      {"pow.0", [](X x) { return x[0].pow(0); }, "x[0] ** 0"},
      {"pow.1", [](X x) { return x[0].pow(1); }, "x[0] ** 1"},
      {"pow.2", [](X x) { return x[0].pow(2); }, "x[0] ** 2"},
      {"pow.3", [](X x) { return x[0].pow(3); }, "x[0] ** 3"},
      {"pow.0.5", [](X x) { return x[0].abs().pow(0.5); }, "x[0].abs() ** 0.5"},
      {"pow.-1", [](X x) { return x[0].pow(-1); }, "x[0] ** -1"},
      {"pow.of_0", [](X x) { return pow(0, x[0]); }, "0 ** x[0]"},
      {"pow.of_1", [](X x) { return pow(1, x[0]); }, "1 ** x[0]"},
      {"pow.of_2", [](X x) { return pow(2, x[0]); }, "2 ** x[0]"},
      {"pow.of_0.5", [](X x) { return pow(0.5, x[0]); }, "0.5 ** x[0]"},
      {"div.of_2", [](X x) { return 2 / x[0]; }, "2 / x[0]"},
      {"fmod.number", [](X x) { return fmod(x[0], 0.375); }, "torch.fmod(x[0], 0.375)"},
      {"remainder.number", [](X x) { return remainder(x[0], 0.375); }, "torch.remainder(x[0], 0.375)"},
  };
  // PyTorch's hardsigmoid uses 1/6 with the precision of float32.
  for (const auto& [name, run, torch] : corners)
    cases.add(named(name, "corners"), {corner({11})}, run, torch).on(wide_floats).differentiable(1)
        .tolerance({.f64 = name == std::string("hardsigmoid") ? 1e-8 : 1e-12});

  // As close to 0 as the bound on the gradient's denominator allows; float32 cannot represent 1 - 1e-12.
  cases.add("binary_cross_entropy.ends", {{6}, unit({6})}, [](X x) {
    const Tensor ends = tensor({0.0, 1.0, 1e-12, 1e-13, 2e-12, 1e-7}, kDouble).to(x[0].device(), x[0].dtype());
    return binary_cross_entropy(x[0] - x[0].detach() + ends, x[1].detach(), {}, Reduction::none);
  }, "F.binary_cross_entropy(x[0] - x[0].detach() + torch.tensor([0.0, 1.0, 1e-12, 1e-13, 2e-12, 1e-7], "
     "dtype=torch.float64), x[1].detach(), reduction='none')").on(wide_floats).differentiable(1)
      .without_finite_differences();
}

void add_binary_corners(CaseList& cases) {
  const Corner corners[] = {
      {"add", [](X x) { return x[0] + x[1]; }, "x[0] + x[1]"},
      {"mul", [](X x) { return x[0] * x[1]; }, "x[0] * x[1]"},
      {"div", [](X x) { return x[0] / x[1]; }, "x[0] / x[1]"},
      {"pow", [](X x) { return pow(x[0], x[1]); }, "x[0] ** x[1]"},
      {"atan2", [](X x) { return atan2(x[0], x[1] + 0.25); }, "torch.atan2(x[0], x[1] + 0.25)"},
      {"maximum", [](X x) { return maximum(x[0], x[1]); }, "torch.maximum(x[0], x[1])"},
      {"minimum", [](X x) { return minimum(x[0], x[1]); }, "torch.minimum(x[0], x[1])"},
      {"fmod", [](X x) { return fmod(x[0], x[1]); }, "torch.fmod(x[0], x[1])"},
      {"remainder", [](X x) { return remainder(x[0], x[1]); }, "torch.remainder(x[0], x[1])"},
      {"logaddexp", [](X x) { return logaddexp(x[0].clamp(-100, 100), x[1]); },
       "torch.logaddexp(x[0].clamp(-100, 100), x[1])"},
      {"norm", [](X x) { return norm(stack(x), 2, {0}); }, "torch.stack(x).norm(2, 0)"},
      {"prod", [](X x) { return prod(stack(x), 0); }, "torch.stack(x).prod(0)"},
      {"cumprod", [](X x) { return cumprod(stack(x).clamp(-100, 100), 0); },
       "torch.stack(x).clamp(-100, 100).cumprod(0)"},
      {"logsumexp", [](X x) { return logsumexp(stack({x[0].clamp(-100, 100), x[1]}), {0}); },
       "torch.stack([x[0].clamp(-100, 100), x[1]]).logsumexp(0)"},
      {"clamp", [](X x) { return clamp(without_nan(x[0]), without_nan(x[1]), 2); },
       without_nan_in_python(0) + ".clamp(" + without_nan_in_python(1) + ", torch.full_like(x[0], 2))"},
      {"smooth_l1_loss", [](X x) { return smooth_l1_loss(x[0], x[1], Reduction::none); },
       "F.smooth_l1_loss(*x, reduction='none')"},
      {"huber_loss", [](X x) { return huber_loss(x[0], x[1], Reduction::none); }, "F.huber_loss(*x, reduction='none')"},
      {"mse_loss", [](X x) { return mse_loss(x[0], x[1], Reduction::none); }, "F.mse_loss(*x, reduction='none')"},
      {"l1_loss", [](X x) { return l1_loss(x[0], x[1], Reduction::none); }, "F.l1_loss(*x, reduction='none')"},
      {"lerp", [](X x) { return lerp(x[0], x[1], 0.25); }, "torch.lerp(x[0], x[1], 0.25)"},
  };
  for (const auto& [name, run, torch] : corners)
    cases.add(named(name, "corner_pairs"), {corner({121}), corner_rows({121})}, run, torch).on(wide_floats)
        .differentiable(1);
}

}  // namespace

// Losses without rows or without classes. PyTorch's means of these are NaN.
static void add_nothing(CaseList& cases) {
  struct Loss {
    const char* name;
    Tensor (*run)(X, Reduction);
    const char* torch;
  };
  const Loss losses[] = {
      {"mse_loss", [](X x, Reduction r) { return mse_loss(x[0], x[1], r); }, "F.mse_loss(*x, "},
      {"l1_loss", [](X x, Reduction r) { return l1_loss(x[0], x[1], r); }, "F.l1_loss(*x, "},
      {"smooth_l1_loss", [](X x, Reduction r) { return smooth_l1_loss(x[0], x[1], r); }, "F.smooth_l1_loss(*x, "},
      {"huber_loss", [](X x, Reduction r) { return huber_loss(x[0], x[1], r); }, "F.huber_loss(*x, "},
      {"kl_div", [](X x, Reduction r) { return kl_div(x[0], x[1], r); }, "F.kl_div(*x, "},
      {"binary_cross_entropy", [](X x, Reduction r) { return binary_cross_entropy(x[0], x[1], {}, r); }, "F.binary_cross_entropy(*x, "},
      {"binary_cross_entropy_with_logits", [](X x, Reduction r) { return binary_cross_entropy_with_logits(x[0], x[1], {}, {}, r); },
       "F.binary_cross_entropy_with_logits(*x, "},
      {"soft_margin_loss", [](X x, Reduction r) { return soft_margin_loss(x[0], x[1].detach(), r); },
       "F.soft_margin_loss(x[0], x[1].detach(), "},
      {"multilabel_soft_margin_loss", [](X x, Reduction r) { return multilabel_soft_margin_loss(x[0], x[1], {}, r); },
       "F.multilabel_soft_margin_loss(*x, "},
      {"poisson_nll_loss", [](X x, Reduction r) { return poisson_nll_loss(x[0], x[1], true, false, 1e-8, r); },
       "F.poisson_nll_loss(*x, "},
      {"hinge_embedding_loss", [](X x, Reduction r) { return hinge_embedding_loss(x[0], x[1].detach(), 1, r); },
       "F.hinge_embedding_loss(x[0], x[1].detach(), "},
      {"gaussian_nll_loss", [](X x, Reduction r) { return gaussian_nll_loss(x[0], x[1], ones_like(x[0]), false, 1e-6, r); },
       "F.gaussian_nll_loss(*x, torch.ones_like(x[0]), "},
      {"triplet_margin_loss", [](X x, Reduction r) { return triplet_margin_loss(x[0], x[1], x[1], 1, 2, 1e-6, false, r); },
       "F.triplet_margin_loss(x[0], x[1], x[1], "},
      {"cosine_embedding_loss", [](X x, Reduction r) {
         return cosine_embedding_loss(x[0], x[1], ones({x[0].size(0)}, x[0].options()), 0, r);
       }, "F.cosine_embedding_loss(*x, torch.ones(x[0].shape[0]), "},
      {"cross_entropy.probabilities", [](X x, Reduction r) { return cross_entropy(x[0], x[1], {}, r); }, "F.cross_entropy(*x, "},
      {"cross_entropy.weighed", [](X x, Reduction r) {
         return cross_entropy(x[0], x[1], ones({x[0].size(1)}, x[0].options()), r);
       }, "F.cross_entropy(*x, torch.ones(x[0].shape[1], dtype=x[0].dtype), "},
      {"cross_entropy.smoothed", [](X x, Reduction r) { return cross_entropy(x[0], x[1], {}, r, -100, 0.1); },
       "F.cross_entropy(*x, label_smoothing=0.1, "},
  };
  struct How {
    const char* name;
    Reduction reduction;
  };
  for (const Loss& loss : losses)
    for (const auto& [how, reduction] : {How{"mean", Reduction::mean}, How{"sum", Reduction::sum}, How{"none", Reduction::none}})
      for (const Shape& shape : {Shape{0, 3}, Shape{2, 0}}) {
        const Run run = [f = loss.run, how = reduction](X x) { return TensorList{f(x, how)}; };
        const std::string what = std::string(shape[0] == 0 ? "no_rows_" : "no_classes_") + how;
        cases.add(named(loss.name, what), {{shape, Fill::any}, {shape, Fill::any}}, run,
                  std::string(loss.torch) + "reduction='" + how + "')").differentiable(1);
      }
}

// All rows are ignored, or all classes have weight 0.
static void add_no_targets(CaseList& cases) {
  const auto add = [&](const std::string& name, Run run, const std::string& torch) {
    cases.add(name, {{3, 4}}, std::move(run), torch).differentiable(1).without_finite_differences();
  };
  for (const bool mean : {true, false}) {
    const Reduction reduction = mean ? Reduction::mean : Reduction::sum;
    const std::string how = mean ? "mean" : "sum", ignored = "(x[0], torch.full((3,), -100), ",
                      end = "reduction='" + how + "')", weight = "weight=torch.ones(4, dtype=x[0].dtype), ";
    const auto targets = [](X x) { return full({3}, -100, TensorOptions(kLong).device(x[0].device())); };
    const auto weights = [](X x) { return ones({4}, x[0].options()); };
    add("nll_loss.ignored_" + how, [=](X x) { return TensorList{nll_loss(x[0], targets(x), {}, reduction)}; },
        "F.nll_loss" + ignored + end);
    add("nll_loss.ignored_weighed_" + how, [=](X x) { return TensorList{nll_loss(x[0], targets(x), weights(x), reduction)}; },
        "F.nll_loss" + ignored + weight + end);
    add("cross_entropy.ignored_" + how, [=](X x) { return TensorList{cross_entropy(x[0], targets(x), {}, reduction)}; },
        "F.cross_entropy" + ignored + end);
    add("cross_entropy.ignored_weighed_" + how,
        [=](X x) { return TensorList{cross_entropy(x[0], targets(x), weights(x), reduction)}; },
        "F.cross_entropy" + ignored + weight + end);
    add("cross_entropy.ignored_smoothed_" + how,
        [=](X x) { return TensorList{cross_entropy(x[0], targets(x), weights(x), reduction, -100, 0.1)}; },
        "F.cross_entropy" + ignored + weight + "label_smoothing=0.1, " + end);
  }
}

static void add_no_elements(CaseList& cases) {
  const auto add = [&](const char* name, const Shape& shape, Tensor (*run)(X), const char* torch) {
    cases.add(name, {Input(shape, Fill::any)}, run, torch).differentiable(1).without_finite_differences();
  };
  add("mean.nothing", {0}, [](X x) { return x[0].mean(); }, "x[0].mean()");
  add("mean.of_empty_rows", {2, 0}, [](X x) { return x[0].mean({1}); }, "x[0].mean(1)");
  add("mean.of_empty_columns", {0, 2}, [](X x) { return x[0].mean({0}, true); }, "x[0].mean(0, True)");
  add("mean.of_no_rows", {0, 2}, [](X x) { return x[0].mean({1}); }, "x[0].mean(1)");
  add("var.nothing", {2, 0}, [](X x) { return var(x[0], {1}); }, "x[0].var(1)");
  add("var.nothing_at_all", {0, 2}, [](X x) { return var(x[0]); }, "x[0].var()");
  add("std.nothing", {2, 0}, [](X x) { return gradus::std(x[0], {1}, false); }, "x[0].std(1, unbiased=False)");
  add("std.of_one", {2, 1}, [](X x) { return gradus::std(x[0], {1}); }, "x[0].std(1)");
  add("var.of_one", {2, 1}, [](X x) { return var(x[0], {1}); }, "x[0].var(1)");
  add("prod.nothing", {2, 0}, [](X x) { return prod(x[0], 1); }, "x[0].prod(1)");
  add("norm.nothing", {2, 0}, [](X x) { return norm(x[0], 2, {1}); }, "x[0].norm(2, 1)");
  add("logsumexp.empty_columns", {0, 2}, [](X x) { return logsumexp(x[0], {0}); }, "x[0].logsumexp(0)");
  add("adaptive_avg_pool2d.no_pixels", {2, 3, 0, 0}, [](X x) { return adaptive_avg_pool2d(x[0], 1); }, "F.adaptive_avg_pool2d(x[0], 1)");
  add("adaptive_avg_pool2d.no_rows", {2, 0, 4}, [](X x) { return adaptive_avg_pool2d(x[0], 1); }, "F.adaptive_avg_pool2d(x[0], 1)");
  add("adaptive_avg_pool2d.no_columns", {1, 2, 3, 0}, [](X x) { return adaptive_avg_pool2d(x[0], {1, 1}); },
      "F.adaptive_avg_pool2d(x[0], (1, 1))");
  add("adaptive_avg_pool1d.no_steps", {2, 3, 0}, [](X x) { return adaptive_avg_pool1d(x[0], 1); }, "F.adaptive_avg_pool1d(x[0], 1)");
  add("adaptive_avg_pool2d.no_channels", {1, 0, 3, 3}, [](X x) { return adaptive_avg_pool2d(x[0], 1); }, "F.adaptive_avg_pool2d(x[0], 1)");
  add("layer_norm.no_pixels", {2, 3, 0, 2}, [](X x) { return layer_norm(x[0], {3, 0, 2}); },
      "F.layer_norm(x[0], (3, 0, 2))");
  add("group_norm.no_pixels", {2, 4, 0, 2}, [](X x) { return group_norm(x[0], 2); }, "F.group_norm(x[0], 2)");
}

void add_corners(CaseList& cases) {
  add_unary_corners(cases);
  add_binary_corners(cases);
  add_nothing(cases);
  add_no_targets(cases);
  add_no_elements(cases);
}

}  // namespace gradus::op_cases
