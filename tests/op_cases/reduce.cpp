// Reductions.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_sums(CaseList& cases) {
  cases.add("sum", {{3, 4, 5}}, [](X x) { return sum(x[0]); }, "x[0].sum()").on(all_types);
  cases.add("sum.dim", {{3, 4, 5}}, [](X x) { return sum(x[0], {1}); }, "x[0].sum(1)").on(all_types);
  cases.add("sum.last_keep", {{3, 4, 5}}, [](X x) { return sum(x[0], {-1}, true); }, "x[0].sum(-1, keepdim=True)");
  cases.add("sum.dims", {{3, 4, 5}}, [](X x) { return sum(x[0], {0, -1}); }, "x[0].sum((0, -1))");
  cases.add("sum.dims_keep", {{3, 4, 5}}, [](X x) { return sum(x[0], {0, 1}, true); },
            "x[0].sum((0, 1), keepdim=True)");
  cases.add("sum.scalar", {{}}, [](X x) { return sum(x[0]); }, "x[0].sum()");
  cases.add("sum.empty", {{0, 3}}, [](X x) { return sum(x[0], {0}); }, "x[0].sum(0)");
  cases.add("sum.nothing", {{2, 0}}, [](X x) { return sum(x[0]); }, "x[0].sum()");
  cases.add("sum.to_double", {{3, 4}}, [](X x) { return sum(x[0], kDouble); }, "x[0].sum(dtype=torch.float64)")
      .on(all_types).gives(kDouble);
  cases.add("sum.image", {{2, 3, 2, 4}}, [](X x) { return sum(x[0], {0, 2, 3}); }, "x[0].sum((0, 2, 3))");
  cases.add("sum.large", {{53, 997}}, [](X x) { return TensorList{sum(x[0]), sum(x[0], {0}), sum(x[0], {1})}; });
  cases.add("mean", {{3, 4, 5}}, [](X x) { return mean(x[0]); }, "x[0].mean()");
  cases.add("mean.dims_keep", {{3, 4, 5}}, [](X x) { return mean(x[0], {0, 2}, true); },
            "x[0].mean((0, 2), keepdim=True)");
  cases.add("mean.to_double", {{3, 4}}, [](X x) { return mean(x[0], {0}, false, kDouble); },
            "x[0].mean(0, dtype=torch.float64)").on(all_types).gives(kDouble);
  cases.add("mean.empty", {{0, 3}}, [](X x) { return mean(x[0], {0}); }, "x[0].mean(0)").differentiable(1);
}

static void add_extremes(CaseList& cases) {
  cases.add("max", {{3, 4, 5}}, [](X x) { return max(x[0]); }, "x[0].max()").on(all_types);
  cases.add("max.ties", {ties({3, 4})}, [](X x) { return max(x[0]); }, "x[0].max()");
  cases.add("max.dim", {{3, 4, 5}}, [](X x) { return max(x[0], 1); }, "x[0].max(1)").on(floats | integers);
  cases.add("max.dim_keep", {{3, 4, 5}}, [](X x) { return max(x[0], -1, true); }, "x[0].max(-1, keepdim=True)");
  cases.add("max.dim_ties", {ties({5, 6})}, [](X x) { return max(x[0], 0); }, "x[0].max(0)");
  cases.add("max.special", {special({11})}, [](X x) { return max(x[0], 0); }, "x[0].max(0)").differentiable(0);
  cases.add("min", {{3, 4, 5}}, [](X x) { return min(x[0]); }, "x[0].min()").on(all_types);
  cases.add("min.dim", {{3, 4, 5}}, [](X x) { return min(x[0], 0); }, "x[0].min(0)").on(floats | integers);
  cases.add("min.dim_ties", {ties({5, 6})}, [](X x) { return min(x[0], 1, true); }, "x[0].min(1, keepdim=True)");
  cases.add("argmax", {{3, 4, 5}}, [](X x) { return argmax(x[0]); }, "x[0].argmax()").on(floats | integers)
      .differentiable(0);
  cases.add("argmax.dim", {{3, 4, 5}}, [](X x) { return argmax(x[0], 1); }, "x[0].argmax(1)").on(floats | integers)
      .differentiable(0);
  cases.add("argmax.keep", {{3, 4, 5}}, [](X x) { return argmax(x[0], -1, true); }, "x[0].argmax(-1, keepdim=True)")
      .differentiable(0);
  cases.add("argmax.ties", {ties({5, 6})}, [](X x) { return argmax(x[0], 1); }, "x[0].argmax(1)").differentiable(0);
  cases.add("argmin", {{3, 4, 5}}, [](X x) { return argmin(x[0], 0); }, "x[0].argmin(0)").on(floats | integers)
      .differentiable(0);
  cases.add("argmax.large", {{7, 4099}}, [](X x) { return argmax(x[0], 1); }).differentiable(0);
}

void add_reduce(CaseList& cases) {
  add_sums(cases);
  add_extremes(cases);
  cases.add("all", {ties({3, 4})}, [](X x) { return all(x[0] != 5); }, "(x[0] != 5).all()").on(all_types)
      .differentiable(0);
  cases.add("all.false", {mask({9})}, [](X x) { return all(x[0]); }, "x[0].all()").differentiable(0);
  cases.add("all.empty", {{0}}, [](X x) { return all(x[0] > 0); }, "(x[0] > 0).all()").differentiable(0);
  cases.add("any", {mask({9})}, [](X x) { return any(x[0]); }, "x[0].any()").differentiable(0);
  cases.add("any.empty", {{0}}, [](X x) { return any(x[0] > 0); }, "(x[0] > 0).any()").differentiable(0);
}

}  // namespace gradus::op_cases
