// Operators with boolean results.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_comparisons(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) {
    cases.add(name, std::move(inputs), run, torch).on(all_types).differentiable(0);
  };
  add("eq", {ties({3, 5}), ties({3, 5})}, [](X x) { return x[0] == x[1]; }, "x[0] == x[1]");
  add("ne", {ties({3, 5}), ties({3, 5})}, [](X x) { return x[0] != x[1]; }, "x[0] != x[1]");
  add("lt", {ties({3, 5}), ties({3, 5})}, [](X x) { return x[0] < x[1]; }, "x[0] < x[1]");
  add("le", {ties({3, 5}), ties({3, 5})}, [](X x) { return x[0] <= x[1]; }, "x[0] <= x[1]");
  add("gt", {ties({3, 5}), ties({3, 5})}, [](X x) { return x[0] > x[1]; }, "x[0] > x[1]");
  add("ge", {ties({3, 5}), ties({3, 5})}, [](X x) { return x[0] >= x[1]; }, "x[0] >= x[1]");
  add("eq.broadcast", {ties({3, 1}), ties({4})}, [](X x) { return eq(x[0], x[1]); }, "x[0] == x[1]");
  add("ne.number", {ties({3, 5})}, [](X x) { return x[0] != 1; }, "x[0] != 1");
  add("lt.number", {{3, 5}}, [](X x) { return x[0] < 0.5; }, "x[0] < 0.5");
  add("ge.number_first", {{3, 5}}, [](X x) { return 1 >= x[0]; }, "1 >= x[0]");
  add("gt.empty", {{0, 2}, {2}}, [](X x) { return x[0] > x[1]; }, "x[0] > x[1]");
  add("logical_and", {ties({3, 5}), ties({3, 5})}, [](X x) { return logical_and(x[0], x[1]); },
      "torch.logical_and(x[0], x[1])");
  add("logical_or", {ties({3, 5}), ties({5})}, [](X x) { return logical_or(x[0], x[1]); },
      "torch.logical_or(x[0], x[1])");
  add("logical_xor", {ties({3, 5}), ties({5})}, [](X x) { return x[0].logical_xor(x[1]); },
      "torch.logical_xor(x[0], x[1])");
  add("logical_not", {ties({3, 5})}, [](X x) { return !x[0]; }, "torch.logical_not(x[0])");
  add("isfinite", {{3, 5}}, [](X x) { return isfinite(x[0]); }, "torch.isfinite(x[0])");

  add("isnan", {{3, 5}}, [](X x) { return isnan(x[0]); }, "torch.isnan(x[0])");
  add("isinf", {{3, 5}}, [](X x) { return isinf(x[0]); }, "torch.isinf(x[0])");

  const auto add_bits = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) {
    cases.add(name, std::move(inputs), run, torch).on(integers | booleans).differentiable(0);
  };
  add_bits("bitwise_and", {{3, 5}, {5}}, [](X x) { return x[0] & x[1]; }, "x[0] & x[1]");
  add_bits("bitwise_or", {{3, 5}, {3, 1}}, [](X x) { return x[0] | x[1]; }, "x[0] | x[1]");
  add_bits("bitwise_xor", {{3, 5}, {3, 5}}, [](X x) { return x[0] ^ x[1]; }, "x[0] ^ x[1]");
  add_bits("bitwise_not", {{3, 5}}, [](X x) { return ~x[0]; }, "~x[0]");
  cases.add("bitwise_and.number", {{3, 5}}, [](X x) { return x[0] & 3; }, "x[0] & 3").on(integers).differentiable(0);
  cases.add("bitwise_and.masks", {{3, 5}}, [](X x) { return ((x[0] > -1) & (x[0] < 1)) | ~(x[0] < 1.5); },
            "((x[0] > -1) & (x[0] < 1)) | ~(x[0] < 1.5)").differentiable(0);

  cases.add("isnan.special", {special({11})}, [](X x) { return isnan(x[0]); }, "torch.isnan(x[0])").differentiable(0);
  cases.add("isinf.special", {special({11})}, [](X x) { return isinf(x[0]); }, "torch.isinf(x[0])").differentiable(0);
  cases.add("eq.special", {special({11})}, [](X x) { return x[0] == x[0]; }, "x[0] == x[0]").differentiable(0);
  cases.add("isfinite.special", {special({11})}, [](X x) { return isfinite(x[0]); }, "torch.isfinite(x[0])")
      .differentiable(0);
}

}  // namespace gradus::op_cases
