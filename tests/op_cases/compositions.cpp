// Element-wise functions composed of others, and counting.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_compositions(CaseList& cases) {
  const auto add = [&](const char* name, const Input& input, Tensor (*run)(X), const char* torch, int types) {
    cases.add(name, {input}, run, torch).on(types);
  };
  const int numbers = floats | integers;
  add("sinh", {3, 5}, [](X x) { return sinh(x[0]); }, "x[0].sinh()", numbers);
  add("cosh", {3, 5}, [](X x) { return cosh(x[0]); }, "x[0].cosh()", numbers);
  add("asin", unit({3, 5}), [](X x) { return asin(x[0] * 2 - 1); }, "(x[0] * 2 - 1).asin()", floats);
  add("acos", unit({3, 5}), [](X x) { return acos(x[0] * 2 - 1); }, "(x[0] * 2 - 1).acos()", floats);
  add("atan", {3, 5}, [](X x) { return atan(x[0]); }, "x[0].atan()", numbers);
  add("asinh", {3, 5}, [](X x) { return asinh(x[0]); }, "x[0].asinh()", numbers);
  add("acosh", positive({3, 5}), [](X x) { return acosh(x[0] + 1); }, "(x[0] + 1).acosh()", numbers);
  add("atanh", unit({3, 5}), [](X x) { return atanh(x[0] * 2 - 1); }, "(x[0] * 2 - 1).atanh()", floats);
  cases.add("asinh.at_zero", {ties({12})}, [](X x) { return x[0].asinh(); }, "x[0].asinh()").differentiable(1);
  cases.add("atanh.at_bounds", {ties({12})}, [](X x) { return atanh(x[0]); }, "x[0].atanh()").differentiable(0);
  cases.add("sinh.near_zero", {{12}}, [](X x) { return x[0].mul(1e-4).sinh(); }, "x[0].mul(1e-4).sinh()")
      .differentiable(1);
  cases.add("atan.method", {{}}, [](X x) { return x[0].atan(); }, "x[0].atan()");
  cases.add("logaddexp", {{3, 5}, {5}}, [](X x) { return logaddexp(x[0], x[1]); }, "torch.logaddexp(x[0], x[1])");
  cases.add("logaddexp.large", {{3, 5}, {3, 5}}, [](X x) { return logaddexp(x[0] * 1000, x[1] * 1000); },
            "torch.logaddexp(x[0] * 1000, x[1] * 1000)").on(wide_floats).differentiable(1).without_finite_differences();
  cases.add("logaddexp.special", {special({11}), special({11})}, [](X x) { return logaddexp(x[0], x[1]); },
            "torch.logaddexp(x[0], x[1])").on(wide_floats).differentiable(0);
  cases.add("nan_to_num", {special({11})}, [](X x) { return nan_to_num(x[0]).clamp(-9, 9); },
            "x[0].nan_to_num().clamp(-9, 9)").differentiable(0);  // the largest number depends on the type
  cases.add("nan_to_num.given", {special({11})}, [](X x) { return nan_to_num(x[0], 1, 2, -3); },
            "x[0].nan_to_num(1, 2, -3)").differentiable(0);
  cases.add("nan_to_num.integers", {{6}}, [](X x) { return nan_to_num(x[0]); }, "x[0].nan_to_num()").on(numbers);
  cases.add("isclose", {ties({12}), ties({12})}, [](X x) { return isclose(x[0], x[1]); }, "torch.isclose(x[0], x[1])")
      .on(numbers).differentiable(0).gives(kBool);
  cases.add("isclose.tolerances", {{3, 5}, {3, 1}}, [](X x) { return isclose(x[0], x[1], 0.25, 0.5); },
            "torch.isclose(x[0], x[1], 0.25, 0.5)").differentiable(0).gives(kBool);
  cases.add("isclose.special", {special({11}), special({11})},
            [](X x) { return isclose(x[0], x[1], 1e-5, 1e-8, true); },
            "torch.isclose(x[0], x[1], equal_nan=True)").differentiable(0).gives(kBool);
  cases.add("bincount", {index({12}, 5)}, [](X x) { return bincount(x[0]); }, "torch.bincount(x[0])").differentiable(0)
      .gives(kLong);
  cases.add("bincount.minlength", {index({5}, 3)}, [](X x) { return bincount(x[0], {}, 7); },
            "torch.bincount(x[0], minlength=7)").differentiable(0).gives(kLong);
  cases.add("bincount.weights", {index({12}, 5), {12}}, [](X x) { return bincount(x[0], x[1].detach()); },
            "torch.bincount(x[0], x[1].detach())").on(wide_floats).differentiable(0);

  for (auto [name, run, torch] : std::initializer_list<std::tuple<const char*, Tensor (*)(X), const char*>>{
           {"sinh.special", [](X x) { return sinh(x[0]); }, "x[0].sinh()"},
           {"cosh.special", [](X x) { return cosh(x[0]); }, "x[0].cosh()"},
           {"asin.special", [](X x) { return asin(x[0]); }, "x[0].asin()"},
           {"acos.special", [](X x) { return acos(x[0]); }, "x[0].acos()"},
           {"atan.special", [](X x) { return atan(x[0]); }, "x[0].atan()"},
           {"asinh.special", [](X x) { return asinh(x[0]); }, "x[0].asinh()"},
           {"acosh.special", [](X x) { return acosh(x[0]); }, "x[0].acosh()"}})
    cases.add(name, {special({11})}, run, torch).differentiable(0);
}

}  // namespace gradus::op_cases
