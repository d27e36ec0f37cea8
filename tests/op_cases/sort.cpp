// Sorting and operators based on it. Sorts are stable here, so golden calls use stable=True if elements may be equal.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_sorts(CaseList& cases) {
  cases.add("sort", {{3, 7}}, [](X x) { return sort(x[0]); }, "torch.sort(x[0], stable=True)").on(all_types);
  cases.add("sort.first", {{7, 3}}, [](X x) { return x[0].sort(0, true); },
            "torch.sort(x[0], dim=0, descending=True, stable=True)").on(floats | integers);
  cases.add("sort.middle", {{2, 5, 3}}, [](X x) { return sort(x[0], 1); }, "torch.sort(x[0], dim=1, stable=True)");
  cases.add("sort.ties", {ties({4, 9})}, [](X x) { return sort(x[0], 1, true); },
            "torch.sort(x[0], dim=1, descending=True, stable=True)");
  cases.add("sort.stable", {ties({4, 9})}, [](X x) { return sort(x[0], true, 0, true); },
            "torch.sort(x[0], stable=True, dim=0, descending=True)").on(floats | integers);
  cases.add("sort.special", {special({11})}, [](X x) { return sort(x[0]); }, "torch.sort(x[0], stable=True)")
      .differentiable(0);
  cases.add("sort.special_descending", {special({11})}, [](X x) { return sort(x[0], 0, true); },
            "torch.sort(x[0], descending=True, stable=True)").differentiable(0);
  cases.add("sort.scalar", {{}}, [](X x) { return sort(x[0]); }, "torch.sort(x[0])");
  cases.add("sort.empty", {{3, 0}}, [](X x) { return sort(x[0]); }, "torch.sort(x[0])").differentiable(1);
  cases.add("sort.weighted", {{3, 5}}, [](X x) { return std::get<0>(sort(x[0])) * x[0]; },
            "torch.sort(x[0])[0] * x[0]");
  cases.add("sort.large", {{3, 20000}}, [](X x) { return sort(x[0]); });
  cases.add("argsort", {{3, 7}}, [](X x) { return argsort(x[0]); }, "torch.argsort(x[0], stable=True, dim=-1)")
      .on(all_types).differentiable(0);
  cases.add("argsort.stable", {ties({4, 9})}, [](X x) { return x[0].argsort(true); },
            "torch.argsort(x[0], stable=True, dim=-1)").on(floats | integers).differentiable(0);
  cases.add("argsort.descending", {ties({7, 3})}, [](X x) { return x[0].argsort(0, true); },
            "torch.argsort(x[0], stable=True, dim=0, descending=True)").on(floats | integers).differentiable(0);
}

static void add_selections(CaseList& cases) {
  cases.add("topk", {{3, 7}}, [](X x) { return topk(x[0], 3); }, "torch.topk(x[0], 3)");
  cases.add("topk.smallest", {{7, 3}}, [](X x) { return x[0].topk(2, 0, false); },
            "torch.topk(x[0], 2, dim=0, largest=False)");
  cases.add("topk.values", {{3, 7}}, [](X x) { return std::get<0>(topk(x[0], 4)); }, "torch.topk(x[0], 4)[0]")
      .on(floats | integers);
  cases.add("topk.none", {{3, 4}}, [](X x) { return topk(x[0], 0); }, "torch.topk(x[0], 0)").differentiable(1);
  cases.add("topk.scalar", {{}}, [](X x) { return topk(x[0], 1); }, "torch.topk(x[0], 1)");
  cases.add("kthvalue", {{3, 7}}, [](X x) { return kthvalue(x[0], 3); }, "torch.kthvalue(x[0], 3)");
  cases.add("kthvalue.keep", {{7, 3}}, [](X x) { return x[0].kthvalue(1, 0, true); },
            "torch.kthvalue(x[0], 1, 0, keepdim=True)");
  cases.add("median", {{3, 5}}, [](X x) { return median(x[0]); }, "x[0].median()").on(floats | integers);
  cases.add("median.even", {{4, 6}}, [](X x) { return median(x[0]); }, "x[0].median()");
  cases.add("median.ties", {ties({12})}, [](X x) { return median(x[0]); }, "x[0].median()");
  cases.add("median.special", {special({11})}, [](X x) { return median(x[0]); }, "x[0].median()").differentiable(0);
  cases.add("median.dim", {{3, 6}}, [](X x) { return median(x[0], 1); }, "x[0].median(1)");
  cases.add("median.keep", {{5, 3}}, [](X x) { return x[0].median(0, true); }, "x[0].median(0, keepdim=True)");
  cases.add("median.values", {{5, 3}}, [](X x) { return std::get<0>(median(x[0], 0)); }, "x[0].median(0)[0]")
      .on(floats | integers);
  cases.add("median.dim_special", {special({11, 1})}, [](X x) { return median(x[0], 0); }, "x[0].median(0)")
      .differentiable(0);
}

static void add_sets(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Run run, const char* torch, int types = all_types) {
    cases.add(name, std::move(inputs), std::move(run), torch).on(types).differentiable(0);
  };
  const auto list = [](std::tuple<Tensor, Tensor, Tensor> found) {
    auto [values, inverse, counts] = found;
    return TensorList{values, inverse, counts};
  };
  add("unique", {ties({4, 5})}, [list](X x) { return list(_unique2(x[0], true, true, true)); },
      "torch.unique(x[0], return_inverse=True, return_counts=True)");
  add("unique.values", {ties({9})}, [](X x) { return TensorList{std::get<0>(_unique(x[0]))}; }, "torch.unique(x[0])");
  add("unique.counts", {ties({9})}, [](X x) {
    auto [values, inverse, counts] = _unique2(x[0], true, false, true);
    return TensorList{values, counts};
  }, "torch.unique(x[0], return_counts=True)");
  add("unique.empty", {{0, 3}}, [list](X x) { return list(_unique2(x[0], true, true, true)); },
      "torch.unique(x[0], return_inverse=True, return_counts=True)");
  add("unique_dim", {ties({9, 2})}, [list](X x) { return list(unique_dim(x[0], 0, true, true, true)); },
      "torch.unique(x[0], dim=0, return_inverse=True, return_counts=True)");
  add("unique_dim.columns", {ties({2, 1, 12})}, [](X x) { return TensorList{std::get<0>(unique_dim(x[0], -1))}; },
      "torch.unique(x[0], dim=-1)");
  add("unique_dim.vector", {ties({7})}, [list](X x) { return list(unique_dim(x[0], 0, true, true, true)); },
      "torch.unique(x[0], dim=0, return_inverse=True, return_counts=True)");
  add("unique_consecutive", {ties({4, 5})}, [list](X x) { return list(unique_consecutive(x[0], true, true)); },
      "torch.unique_consecutive(x[0], return_inverse=True, return_counts=True)");
}

void add_sort(CaseList& cases) {
  add_sorts(cases);
  add_selections(cases);
  add_sets(cases);
  // No golden values: every backend must draw the same numbers as naive.
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X)) {
    cases.add(name, std::move(inputs), run).differentiable(0);
  };
  add("multinomial", {positive({4, 6})}, [](X x) { return multinomial(x[0], 3); });
  add("multinomial.all", {positive({6})}, [](X x) { return x[0].multinomial(6); });
  add("multinomial.replacement", {positive({4, 6})}, [](X x) { return multinomial(x[0], 50, true); });
}

}  // namespace gradus::op_cases
