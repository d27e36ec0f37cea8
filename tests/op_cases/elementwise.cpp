// Element-wise arithmetic: one argument, then two, then where.
#include <cmath>

#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_unary(CaseList& cases) {
  cases.add("neg", {{3, 5}}, [](X x) { return -x[0]; }, "-x[0]").on(floats | integers).keeps_layout();
  cases.add("abs", {{3, 5}}, [](X x) { return abs(x[0]); }, "x[0].abs()").on(floats | integers).keeps_layout();
  cases.add("abs.at_zero", {ties({12})}, [](X x) { return abs(x[0]); }, "x[0].abs()");
  cases.add("exp", {{3, 5}}, [](X x) { return exp(x[0]); }, "x[0].exp()").on(all_types).keeps_layout();
  cases.add("exp.scalar", {{}}, [](X x) { return exp(x[0]); }, "x[0].exp()");
  cases.add("exp.empty", {{0, 3}}, [](X x) { return exp(x[0]); }, "x[0].exp()");
  cases.add("exp.image", {{2, 3, 4, 5}}, [](X x) { return exp(x[0]); }, "x[0].exp()").keeps_layout();
  cases.add("log", {positive({3, 5})}, [](X x) { return log(x[0]); }, "x[0].log()").on(floats | integers).keeps_layout();
  cases.add("sqrt", {positive({3, 5})}, [](X x) { return sqrt(x[0]); }, "x[0].sqrt()").on(floats | integers)
      .keeps_layout();
  cases.add("reciprocal", {nonzero({3, 5})}, [](X x) { return reciprocal(x[0]); }, "x[0].reciprocal()")
      .on(floats | integers).keeps_layout();
  cases.add("relu", {{3, 5}}, [](X x) { return relu(x[0]); }, "x[0].relu()").on(floats | integers).keeps_layout();
  cases.add("relu.at_zero", {ties({12})}, [](X x) { return relu(x[0]); }, "x[0].relu()");
  cases.add("sigmoid", {{3, 5}}, [](X x) { return sigmoid(x[0]); }, "x[0].sigmoid()").on(all_types).keeps_layout();
  cases.add("tanh", {{3, 5}}, [](X x) { return tanh(x[0]); }, "x[0].tanh()").on(all_types).keeps_layout();
  cases.add("clamp", {{3, 5}}, [](X x) { return clamp(x[0], -1, 1); }, "x[0].clamp(-1, 1)").keeps_layout();
  cases.add("clamp.integer", {{3, 5}}, [](X x) { return clamp(x[0], 1, 3); }, "x[0].clamp(1, 3)").on(integers);
  cases.add("clamp.min", {{3, 5}}, [](X x) { return clamp(x[0], 0.5); }, "x[0].clamp(min=0.5)");
  cases.add("clamp.max", {{3, 5}}, [](X x) { return clamp(x[0], {}, 0.5); }, "x[0].clamp(max=0.5)");
  cases.add("clamp.at_bounds", {ties({12})}, [](X x) { return clamp(x[0], 0, 1); }, "x[0].clamp(0, 1)");
  cases.add("clamp.crossed", {{3, 5}}, [](X x) { return clamp(x[0], 2, 1); }, "x[0].clamp(2, 1)").on(floats | integers);
  cases.add("clamp.real_bound", {{3, 5}}, [](X x) { return clamp(x[0], 0.25, 1.5); }, "x[0].clamp(0.25, 1.5)")
      .on(floats | integers);
  cases.add("clamp.tensors", {{3, 5}, {5}, {3, 1}}, [](X x) { return clamp(x[0], x[1], x[2]); },
            "torch.clamp(x[0], x[1], x[2])").on(floats | integers);
  cases.add("clamp.least_tensor", {{5}, {3, 5}}, [](X x) { return clamp(x[0], x[1]); }, "torch.clamp(x[0], min=x[1])");
  cases.add("clamp.at_tensors", {ties({12}), ties({12})}, [](X x) { return clamp(x[0], x[1], x[1] + 0.5); },
            "torch.clamp(x[0], x[1], x[1] + 0.5)");
  cases.add("clamp_min.tensor", {{3, 5}, {3, 1}}, [](X x) { return clamp_min(x[0], x[1]); },
            "torch.clamp_min(x[0], x[1])").on(floats | integers);
  cases.add("clamp_max.tensor", {{3, 5}, {}}, [](X x) { return x[0].clamp_max(x[1]); }, "x[0].clamp_max(x[1])");
  // Sizes with a remainder for every width of vector register.
  cases.add("sigmoid.tail", {{2, 3, 11}}, [](X x) { return sigmoid(x[0]); }, "x[0].sigmoid()");
  cases.add("tanh.large", {{37, 1021}}, [](X x) { return tanh(x[0]); });
  cases.add("exp.large", {{37, 1021}}, [](X x) { return exp(x[0]); });

  for (auto [name, run, torch] : std::initializer_list<std::tuple<const char*, Tensor (*)(X), const char*>>{
           {"relu.special", [](X x) { return relu(x[0]); }, "x[0].relu()"},
           {"clamp.special", [](X x) { return clamp(x[0], -1, 1); }, "x[0].clamp(-1, 1)"},
           {"clamp.nan_bound", [](X x) { return clamp(x[0], NAN, 1); }, "x[0].clamp(float('nan'), 1)"},
           {"clamp.special_tensor", [](X x) { return clamp(ones_like(x[0]), x[0]); },
            "torch.clamp(torch.ones_like(x[0]), x[0])"},
           {"sigmoid.special", [](X x) { return sigmoid(x[0]); }, "x[0].sigmoid()"},
           {"tanh.special", [](X x) { return tanh(x[0]); }, "x[0].tanh()"},
           {"log.special", [](X x) { return log(x[0]); }, "x[0].log()"},
           {"abs.special", [](X x) { return abs(x[0]); }, "x[0].abs()"}})
    cases.add(name, {special({11})}, run, torch).differentiable(0);
}

static void add_more_unary(CaseList& cases) {
  const auto add = [&](const char* name, const Input& input, Tensor (*run)(X), const char* torch, int types = floats) {
    cases.add(name, {input}, run, torch).on(types).keeps_layout();
  };
  const int numbers = floats | integers;
  add("rsqrt", positive({3, 5}), [](X x) { return rsqrt(x[0]); }, "x[0].rsqrt()", numbers);
  add("square", {3, 5}, [](X x) { return square(x[0]); }, "x[0].square()", numbers);
  add("sin", {3, 5}, [](X x) { return sin(x[0]); }, "x[0].sin()", all_types);
  add("cos", {3, 5}, [](X x) { return cos(x[0]); }, "x[0].cos()", all_types);
  add("tan", unit({3, 5}), [](X x) { return tan(x[0]); }, "x[0].tan()");
  add("erf", {3, 5}, [](X x) { return erf(x[0]); }, "x[0].erf()", numbers);
  add("log1p", positive({3, 5}), [](X x) { return log1p(x[0]); }, "x[0].log1p()", numbers);
  add("expm1", {3, 5}, [](X x) { return expm1(x[0]); }, "x[0].expm1()", numbers);
  add("log2", positive({3, 5}), [](X x) { return log2(x[0]); }, "x[0].log2()", numbers);
  add("log10", positive({3, 5}), [](X x) { return log10(x[0]); }, "x[0].log10()", numbers);
  add("clamp_min", {3, 5}, [](X x) { return clamp_min(x[0], 1); }, "x[0].clamp_min(1)", numbers);
  add("clamp_max", {3, 5}, [](X x) { return clamp_max(x[0], 1); }, "x[0].clamp_max(1)", numbers);
  // The derivative is 0. PyTorch has no second derivative.
  const auto add_step = [&](const char* name, Tensor (*run)(X), const char* torch) {
    cases.add(name, {{3, 5}}, run, torch).on(numbers).differentiable(1).keeps_layout();
  };
  add_step("sign", [](X x) { return sign(x[0]); }, "x[0].sign()");
  add_step("floor", [](X x) { return floor(x[0]); }, "x[0].floor()");
  add_step("ceil", [](X x) { return ceil(x[0]); }, "x[0].ceil()");
  add_step("round", [](X x) { return round(x[0]); }, "x[0].round()");
  add_step("trunc", [](X x) { return trunc(x[0]); }, "x[0].trunc()");
  cases.add("round.halves", {ties({12})}, [](X x) { return round(x[0] * 2.5 + x[0] * x[0]); },
            "(x[0] * 2.5 + x[0] * x[0]).round()").differentiable(1);
  cases.add("square.method", {{}}, [](X x) { return x[0].square(); }, "x[0].square()");

  for (auto [name, run, torch] : std::initializer_list<std::tuple<const char*, Tensor (*)(X), const char*>>{
           {"rsqrt.special", [](X x) { return rsqrt(x[0]); }, "x[0].rsqrt()"},
           {"reciprocal.special", [](X x) { return reciprocal(x[0]); }, "x[0].reciprocal()"},
           {"square.special", [](X x) { return square(clamp(x[0], -200, 200)); }, "x[0].clamp(-200, 200).square()"},
           {"sign.special", [](X x) { return sign(x[0]); }, "x[0].sign()"},
           {"floor.special", [](X x) { return floor(x[0]); }, "x[0].floor()"},
           {"ceil.special", [](X x) { return ceil(x[0]); }, "x[0].ceil()"},
           {"round.special", [](X x) { return round(x[0]); }, "x[0].round()"},
           {"trunc.special", [](X x) { return trunc(x[0]); }, "x[0].trunc()"},
           {"erf.special", [](X x) { return erf(x[0]); }, "x[0].erf()"},
           {"log1p.special", [](X x) { return log1p(x[0]); }, "x[0].log1p()"},
           {"expm1.special", [](X x) { return expm1(clamp_max(x[0], 9)); }, "x[0].clamp(max=9).expm1()"},
           {"log2.special", [](X x) { return log2(x[0]); }, "x[0].log2()"},
           {"log10.special", [](X x) { return log10(x[0]); }, "x[0].log10()"}})
    cases.add(name, {special({11})}, run, torch).differentiable(0);
}

static void add_binary(CaseList& cases) {
  cases.add("add", {{3, 5}, {3, 5}}, [](X x) { return x[0] + x[1]; }, "x[0] + x[1]").on(all_types).keeps_layout();
  cases.add("add.alpha", {{3, 5}, {3, 5}}, [](X x) { return add(x[0], x[1], 3); }, "torch.add(x[0], x[1], alpha=3)")
      .on(floats | integers);
  cases.add("add.broadcast", {{2, 1, 3}, {4, 1}}, [](X x) { return x[0] + x[1]; }, "x[0] + x[1]").on(all_types);
  cases.add("add.scalar_tensor", {{2, 3}, {}}, [](X x) { return x[0] + x[1]; }, "x[0] + x[1]");
  cases.add("add.number", {{2, 3}}, [](X x) { return x[0] + 2; }, "x[0] + 2").on(all_types).keeps_layout();
  cases.add("add.real_number", {{2, 3}}, [](X x) { return x[0] + 0.5; }, "x[0] + 0.5").on(all_types);
  cases.add("add.empty", {{0, 3}, {1, 3}}, [](X x) { return x[0] + x[1]; }, "x[0] + x[1]");
  cases.add("add.itself", {{5}}, [](X x) { return x[0] + x[0]; }, "x[0] + x[0]");
  cases.add("add.bias_image", {{2, 3, 2, 4}, {1, 3, 1, 1}}, [](X x) { return x[0] + x[1]; }, "x[0] + x[1]")
      .keeps_layout();
  cases.add("add.large", {{37, 1021}, {1021}}, [](X x) { return x[0] + x[1]; });
  cases.add("sub", {{3, 5}, {3, 5}}, [](X x) { return x[0] - x[1]; }, "x[0] - x[1]").on(floats | integers)
      .keeps_layout();
  cases.add("sub.alpha", {{3, 5}, {5}}, [](X x) { return sub(x[0], x[1], 2); }, "torch.sub(x[0], x[1], alpha=2)");
  cases.add("sub.number_first", {{2, 3}}, [](X x) { return 2 - x[0]; }, "2 - x[0]").on(floats | integers);
  cases.add("mul", {{3, 5}, {3, 5}}, [](X x) { return x[0] * x[1]; }, "x[0] * x[1]").on(all_types).keeps_layout();
  cases.add("mul.broadcast", {{3, 1}, {2, 1, 4}}, [](X x) { return x[0] * x[1]; }, "x[0] * x[1]");
  cases.add("mul.itself", {{5}}, [](X x) { return x[0] * x[0]; }, "x[0] * x[0]");
  cases.add("mul.transposed", {{4, 4}}, [](X x) { return x[0] * x[0].t(); }, "x[0] * x[0].t()");
  cases.add("mul.number", {{2, 3}}, [](X x) { return 3 * x[0]; }, "3 * x[0]").on(all_types);
  cases.add("div", {{3, 5}, nonzero({3, 5})}, [](X x) { return x[0] / x[1]; }, "x[0] / x[1]").on(floats | integers)
      .keeps_layout();
  cases.add("div.broadcast", {{2, 1, 3}, nonzero({4, 1})}, [](X x) { return x[0] / x[1]; }, "x[0] / x[1]");
  cases.add("div.number", {{2, 3}}, [](X x) { return x[0] / 4; }, "x[0] / 4").on(floats | integers);
  cases.add("div.number_first", {nonzero({2, 3})}, [](X x) { return 1 / x[0]; }, "1 / x[0]").on(floats | integers);
  for (auto [name, run, torch] : std::initializer_list<std::tuple<const char*, Tensor (*)(X), const char*>>{
           {"div.floor", [](X x) { return div(x[0], x[1], "floor"); }, "torch.div(x[0], x[1], rounding_mode='floor')"},
           {"div.trunc", [](X x) { return x[0].div(x[1], "trunc"); }, "x[0].div(x[1], rounding_mode='trunc')"},
           {"floor_divide", [](X x) { return floor_divide(x[0], x[1]); }, "torch.div(x[0], x[1], rounding_mode='floor')"}})
    cases.add(name, {{3, 5}, nonzero({5})}, run, torch).on(floats | integers).differentiable(1)
        .without_finite_differences();
  cases.add("div.floor_number", {{3, 5}}, [](X x) { return x[0].div(2, "floor"); }, "x[0].div(2, rounding_mode='floor')")
      .on(floats | integers).differentiable(1).without_finite_differences();
  cases.add("div.floor_special", {special({11})}, [](X x) { return div(3, x[0], "floor"); },
            "torch.div(torch.full_like(x[0], 3), x[0], rounding_mode='floor')").differentiable(0);
  cases.add("div.trunc_special", {special({11})}, [](X x) { return div(x[0], 3, "trunc"); },
            "torch.div(x[0], 3, rounding_mode='trunc')").differentiable(0);
  cases.add("pow", {positive({3, 5}), {3, 5}}, [](X x) { return pow(x[0], x[1]); }, "x[0] ** x[1]").keeps_layout();
  cases.add("pow.integer", {{3, 5}, positive({5})}, [](X x) { return pow(x[0], x[1]); }, "x[0] ** x[1]").on(integers);
  cases.add("pow.square", {{3, 5}}, [](X x) { return x[0].pow(2); }, "x[0] ** 2").on(floats | integers);
  cases.add("pow.cube", {{3, 5}}, [](X x) { return x[0].pow(3); }, "x[0] ** 3").on(floats | integers);
  cases.add("pow.root", {positive({3, 5})}, [](X x) { return x[0].pow(0.5); }, "x[0] ** 0.5");
  cases.add("pow.inverse", {nonzero({3, 5})}, [](X x) { return x[0].pow(-1.0); }, "x[0] ** -1.0");
  cases.add("pow.zeroth", {{3, 5}}, [](X x) { return x[0].pow(0); }, "x[0] ** 0").differentiable(1);
  cases.add("pow.number_first", {{3, 5}}, [](X x) { return pow(2, x[0]); }, "2 ** x[0]");
  cases.add("pow.at_zero", {ties({12})}, [](X x) { return x[0].pow(2); }, "x[0] ** 2");
  cases.add("maximum", {{3, 5}, {5}}, [](X x) { return maximum(x[0], x[1]); }, "torch.maximum(x[0], x[1])")
      .on(floats | integers).keeps_layout();
  cases.add("maximum.ties", {ties({12}), ties({12})}, [](X x) { return maximum(x[0], x[1]); },
            "torch.maximum(x[0], x[1])");
  cases.add("maximum.special", {special({11}), {11}}, [](X x) { return maximum(x[0], x[1]); },
            "torch.maximum(x[0], x[1])").differentiable(0);
  cases.add("minimum", {{3, 5}, {3, 1}}, [](X x) { return minimum(x[0], x[1]); }, "torch.minimum(x[0], x[1])")
      .on(floats | integers).keeps_layout();
  cases.add("minimum.ties", {ties({12}), ties({12})}, [](X x) { return minimum(x[0], x[1]); },
            "torch.minimum(x[0], x[1])");
}

static void add_more_binary(CaseList& cases) {
  cases.add("maximum.max", {{3, 5}, {5}}, [](X x) { return max(x[0], x[1]) - x[0].max(x[1] * 2); },
            "torch.max(x[0], x[1]) - x[0].max(x[1] * 2)").on(floats | integers);
  cases.add("minimum.min", {{3, 5}, {5}}, [](X x) { return min(x[0], x[1]) - x[0].min(x[1] * 2); },
            "torch.min(x[0], x[1]) - x[0].min(x[1] * 2)").on(floats | integers);
  cases.add("maximum.number", {{3, 5}}, [](X x) { return maximum(x[0], 0.3); },
            "torch.maximum(x[0], torch.tensor(0.3, dtype=x[0].dtype))");
  cases.add("minimum.special", {special({11}), {11}}, [](X x) { return minimum(x[0], x[1]); },
            "torch.minimum(x[0], x[1])").differentiable(0);
  cases.add("maximum.large", {{37, 1021}, {1021}}, [](X x) { return maximum(x[0], x[1]) - minimum(x[0], x[1]); });
  cases.add("fmod", {{3, 5}, nonzero({5})}, [](X x) { return fmod(x[0], x[1]); }, "torch.fmod(x[0], x[1])")
      .on(floats | integers).keeps_layout();
  cases.add("fmod.number", {{3, 5}}, [](X x) { return fmod(x[0], 0.375); }, "torch.fmod(x[0], 0.375)");
  cases.add("fmod.integer", {{3, 5}}, [](X x) { return x[0].fmod(3); }, "torch.fmod(x[0], 3)").on(floats | integers);
  cases.add("fmod.special", {special({11})}, [](X x) { return TensorList{fmod(x[0], 1.5), fmod(1.5, x[0])}; },
            "(torch.fmod(x[0], 1.5), torch.fmod(torch.full_like(x[0], 1.5), x[0]))").differentiable(0);
  cases.add("remainder", {{3, 5}, nonzero({5})}, [](X x) { return remainder(x[0], x[1]); },
            "torch.remainder(x[0], x[1])").on(floats | integers).keeps_layout();
  cases.add("remainder.number", {{3, 5}}, [](X x) { return remainder(x[0], -0.375); }, "torch.remainder(x[0], -0.375)");
  cases.add("remainder.number_first", {nonzero({3, 5})}, [](X x) { return remainder(1.75, x[0]); },
            "torch.remainder(torch.full_like(x[0], 1.75), x[0])");
  cases.add("remainder.integer", {{3, 5}}, [](X x) { return x[0].remainder(3); }, "torch.remainder(x[0], 3)")
      .on(floats | integers);
  cases.add("remainder.special", {special({11})},
            [](X x) { return TensorList{remainder(x[0], -1.5), remainder(1.5, x[0])}; },
            "(torch.remainder(x[0], -1.5), torch.remainder(torch.full_like(x[0], 1.5), x[0]))").differentiable(0);
  cases.add("atan2", {{3, 5}, {5}}, [](X x) { return atan2(x[0], x[1]); }, "torch.atan2(x[0], x[1])")
      .on(floats | integers).keeps_layout();
  cases.add("atan2.axes", {ties({12}), ties({12})}, [](X x) { return atan2(x[0], x[1]); }, "torch.atan2(x[0], x[1])")
      .differentiable(1);
  cases.add("lerp", {{3, 5}, {3, 5}}, [](X x) { return lerp(x[0], x[1], 0.25); }, "torch.lerp(x[0], x[1], 0.25)")
      .keeps_layout();
  cases.add("lerp.far", {{3, 5}, {3, 1}}, [](X x) { return x[0].lerp(x[1], 0.75); }, "torch.lerp(x[0], x[1], 0.75)");
  cases.add("lerp.tensor", {{3, 5}, {3, 5}, {5}}, [](X x) { return lerp(x[0], x[1], x[2]); },
            "torch.lerp(x[0], x[1], x[2])");
  cases.add("addcmul", {{3, 5}, {3, 1}, {5}}, [](X x) { return addcmul(x[0], x[1], x[2], 3); },
            "torch.addcmul(x[0], x[1], x[2], value=3)").on(floats | integers).keeps_layout();
  cases.add("addcmul.plain", {{3, 5}, {3, 5}, {3, 5}}, [](X x) { return x[0].addcmul(x[1], x[2]); },
            "torch.addcmul(x[0], x[1], x[2])");
  cases.add("addcdiv", {{3, 5}, {3, 1}, nonzero({5})}, [](X x) { return addcdiv(x[0], x[1], x[2], 0.5); },
            "torch.addcdiv(x[0], x[1], x[2], value=0.5)").keeps_layout();
}

static void add_where(CaseList& cases) {
  cases.add("where", {mask({3, 5}), {3, 5}, {3, 5}}, [](X x) { return where(x[0], x[1], x[2]); },
            "torch.where(x[0], x[1], x[2])").on(all_types);
  cases.add("where.broadcast", {mask({3, 1}), {5}, {2, 1, 1}}, [](X x) { return where(x[0], x[1], x[2]); },
            "torch.where(x[0], x[1], x[2])");
  cases.add("where.number", {mask({3, 5}), {3, 5}}, [](X x) { return where(x[0], x[1], 0.5); },
            "torch.where(x[0], x[1], torch.tensor(0.5, dtype=x[1].dtype))");
  cases.add("where.compared", {{3, 5}}, [](X x) { return where(x[0] > 0, x[0], 0.25 * x[0]); },
            "torch.where(x[0] > 0, x[0], 0.25 * x[0])");
}

void add_elementwise(CaseList& cases) {
  add_unary(cases);
  add_more_unary(cases);
  add_binary(cases);
  add_more_binary(cases);
  add_where(cases);
}

}  // namespace gradus::op_cases
