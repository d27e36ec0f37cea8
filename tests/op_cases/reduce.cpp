// Reductions.
#include <cmath>

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

static void add_more_extremes(CaseList& cases) {
  cases.add("amax", {{3, 4, 5}}, [](X x) { return amax(x[0], {0, 2}); }, "x[0].amax((0, 2))").on(all_types);
  cases.add("amax.all", {{3, 4}}, [](X x) { return x[0].amax(); }, "x[0].amax()").on(all_types);
  cases.add("amax.ties", {ties({5, 6})}, [](X x) { return amax(x[0], {1}, true); }, "x[0].amax(1, keepdim=True)");
  cases.add("amax.special", {special({11})}, [](X x) { return amax(x[0], {0}); }, "x[0].amax(0)").differentiable(0);
  cases.add("amin", {{3, 4, 5}}, [](X x) { return amin(x[0], {-1}); }, "x[0].amin(-1)").on(all_types);
  cases.add("amin.ties", {ties({5, 6})}, [](X x) { return x[0].amin({0, 1}); }, "x[0].amin((0, 1))");
  cases.add("argmin.all", {{3, 4, 5}}, [](X x) { return argmin(x[0]); }, "x[0].argmin()").on(floats | integers)
      .differentiable(0);
  cases.add("argmin.special", {special({11})}, [](X x) { return x[0].argmin(0, true); }, "x[0].argmin(0, keepdim=True)")
      .differentiable(0);
}

// The inputs contain zeros, where the gradients of a product must be correct, too.
static void add_products(CaseList& cases) {
  cases.add("prod", {{3, 4}}, [](X x) { return prod(x[0]); }, "x[0].prod()").on(all_types);
  cases.add("prod.dim", {{3, 4, 5}}, [](X x) { return prod(x[0], 1); }, "x[0].prod(1)").on(all_types);
  cases.add("prod.keep", {{3, 4, 5}}, [](X x) { return x[0].prod(-1, true); }, "x[0].prod(-1, keepdim=True)");
  cases.add("prod.zeros", {ties({4, 12})}, [](X x) { return prod(x[0], 0); }, "x[0].prod(0)");
  cases.add("prod.two_zeros", {{2, 4}}, [](X x) { return prod(x[0] * (x[0].detach() > -0.25).to(x[0].dtype()), 1); },
            "(x[0] * (x[0].detach() > -0.25).to(x[0].dtype)).prod(1)");
  cases.add("prod.scalar", {{}}, [](X x) { return TensorList{prod(x[0]), prod(x[0], 0)}; },
            "(x[0].prod(), x[0].prod(0))");
  cases.add("prod.empty", {{0, 3}}, [](X x) { return prod(x[0], 0); }, "x[0].prod(0)").differentiable(1);
  cases.add("prod.to_double", {{3, 4}}, [](X x) { return prod(x[0], kDouble); }, "x[0].prod(dtype=torch.float64)")
      .on(all_types).gives(kDouble);
  cases.add("cumsum", {{3, 4}}, [](X x) { return cumsum(x[0], 1); }, "x[0].cumsum(1)").on(all_types);
  cases.add("cumsum.first", {{3, 4, 5}}, [](X x) { return x[0].cumsum(0); }, "x[0].cumsum(0)").on(all_types);
  cases.add("cumsum.middle", {{3, 4, 5}}, [](X x) { return cumsum(x[0], -2); }, "x[0].cumsum(-2)");
  cases.add("cumsum.scalar", {{}}, [](X x) { return cumsum(x[0], 0); }, "x[0].cumsum(0)");
  cases.add("cumsum.empty", {{0, 3}}, [](X x) { return cumsum(x[0], 0); }, "x[0].cumsum(0)").differentiable(1);
  cases.add("cumsum.to_double", {{3, 4}}, [](X x) { return cumsum(x[0], 1, kDouble); },
            "x[0].cumsum(1, dtype=torch.float64)").on(all_types).gives(kDouble);
  cases.add("cumsum.large", {{53, 997}}, [](X x) { return TensorList{cumsum(x[0], 0), cumsum(x[0], 1)}; });
  cases.add("cumprod", {{3, 4}}, [](X x) { return cumprod(x[0], 1); }, "x[0].cumprod(1)").on(all_types);
  cases.add("cumprod.first", {{4, 3}}, [](X x) { return x[0].cumprod(0); }, "x[0].cumprod(0)");
  cases.add("cumprod.zeros", {ties({5, 9})}, [](X x) { return cumprod(x[0], 0); }, "x[0].cumprod(0)");
  cases.add("cumprod.scalar", {{}}, [](X x) { return cumprod(x[0], -1); }, "x[0].cumprod(-1)");
  cases.add("cumprod.empty", {{3, 0}}, [](X x) { return cumprod(x[0], 1); }, "x[0].cumprod(1)").differentiable(1);
}

static void add_statistics(CaseList& cases) {
  cases.add("var", {{3, 4, 5}}, [](X x) { return var(x[0]); }, "x[0].var()");
  cases.add("var.dim", {{3, 4, 5}}, [](X x) { return var(x[0], {0}); }, "x[0].var(0)");
  cases.add("var.dims_keep", {{3, 4, 5}}, [](X x) { return x[0].var({0, -1}, false, true); },
            "x[0].var((0, -1), unbiased=False, keepdim=True)");
  cases.add("var.biased", {{3, 4}}, [](X x) { return var(x[0], false); }, "x[0].var(unbiased=False)");
  cases.add("var.image", {{2, 3, 2, 4}}, [](X x) { return var(x[0], {0, 2, 3}); }, "x[0].var((0, 2, 3))");
  cases.add("var.number", {{3, 4}}, [](X x) { return var(x[0], 0); }, "x[0].var(0)");
  cases.add("var.correction", {{3, 4, 5}}, [](X x) { return var(x[0], {0, 1}, 2, true); },
            "x[0].var(dim=(0, 1), correction=2, keepdim=True)");
  cases.add("var.correction_all", {{3, 4}}, [](X x) { return x[0].var(std::nullopt, 3); },
            "x[0].var(dim=(0, 1), correction=3)");
  cases.add("std.correction", {{3, 4}}, [](X x) { return x[0].std(1, 0); }, "x[0].std(dim=1, correction=0)");
  cases.add("var_mean.correction", {{3, 4}}, [](X x) { return var_mean(x[0], {1}, 2, true); },
            "torch.var_mean(x[0], dim=1, correction=2, keepdim=True)");
  cases.add("std_mean.correction", {{3, 4}}, [](X x) { return std_mean(x[0], {0}, 0); },
            "torch.std_mean(x[0], dim=0, correction=0)");
  cases.add("var.offset", {{40}}, [](X x) { return var(x[0] + 1000); }, "(x[0] + 1000).var()").on(wide_floats)
      .tolerance({.f32 = 4e-5});
  cases.add("var.large", {{53, 997}}, [](X x) { return TensorList{var(x[0]), var(x[0], {0}), var(x[0], {1})}; });
  cases.add("std", {{3, 4, 5}}, [](X x) { return gradus::std(x[0]); }, "x[0].std()");
  cases.add("std.dims", {{3, 4, 5}}, [](X x) { return x[0].std({1, 2}, true); }, "x[0].std((1, 2))");
  cases.add("std.biased", {{3, 4}}, [](X x) { return gradus::std(x[0], {0}, false, true); },
            "x[0].std(0, unbiased=False, keepdim=True)");
  cases.add("std.constant", {ties({1, 4})}, [](X x) { return gradus::std(x[0].expand({3, 4}), {0}); },
            "x[0].expand(3, 4).std(0)").differentiable(1);
  cases.add("var_mean", {{3, 4, 5}}, [](X x) { return var_mean(x[0], {1}); }, "torch.var_mean(x[0], 1)");
  cases.add("std_mean", {{3, 4}}, [](X x) { return std_mean(x[0]); }, "torch.std_mean(x[0], unbiased=True)");
  cases.add("norm", {{3, 4, 5}}, [](X x) { return norm(x[0]); }, "x[0].norm()");
  cases.add("norm.dim", {{3, 4, 5}}, [](X x) { return norm(x[0], 2, {1}); }, "x[0].norm(2, 1)");
  cases.add("norm.dims_keep", {{3, 4, 5}}, [](X x) { return x[0].norm(2, {0, 2}, true); },
            "x[0].norm(2, (0, 2), keepdim=True)");
  cases.add("norm.0", {ties({5, 6})}, [](X x) { return norm(x[0], 0, {1}); }, "x[0].norm(0, 1)").differentiable(1);
  cases.add("norm.1", {{3, 4}}, [](X x) { return norm(x[0], 1); }, "x[0].norm(1)");
  cases.add("norm.3", {{3, 4}}, [](X x) { return norm(x[0], 3, {0}); }, "x[0].norm(3, 0)");
  cases.add("norm.half", {nonzero({3, 4})}, [](X x) { return norm(x[0], 0.5, {0}); }, "x[0].norm(0.5, 0)");
  cases.add("norm.negative", {nonzero({3, 4})}, [](X x) { return norm(x[0], -1.5, {1}); }, "x[0].norm(-1.5, 1)");
  cases.add("norm.inf", {{3, 4}}, [](X x) { return norm(x[0], INFINITY, {1}); }, "x[0].norm(float('inf'), 1)");
  cases.add("norm.minus_inf", {{3, 4}}, [](X x) { return norm(x[0], -INFINITY, {1}); }, "x[0].norm(-float('inf'), 1)");
  cases.add("norm.zeros", {{3, 4}}, [](X x) {
    const Tensor zeros = x[0] * 0;
    return TensorList{norm(zeros), norm(zeros, 1), norm(zeros, 1.5), norm(zeros, 3), norm(zeros, INFINITY)};
  }, "[(x[0] * 0).norm(p) for p in (2, 1, 1.5, 3, float('inf'))]").differentiable(1);
  cases.add("norm.wide", {{3, 4}}, [](X x) { return norm(x[0] * 1e4) / 1e4; }, "(x[0] * 1e4).norm() / 1e4")
      .differentiable(0);
  cases.add("norm.to_double", {{3, 4}}, [](X x) { return norm(x[0], {}, {1}, true, kDouble); },
            "x[0].norm(2, 1, True, dtype=torch.float64)").gives(kDouble);
  cases.add("norm.all_to_double", {{3, 4}}, [](X x) { return x[0].norm(3, kDouble); },
            "x[0].norm(3, dtype=torch.float64)").gives(kDouble);
  cases.add("norm.scalar", {{}}, [](X x) { return norm(x[0]); }, "x[0].norm()");
  cases.add("norm.empty", {{0, 3}}, [](X x) { return norm(x[0], 2, {0}); }, "x[0].norm(2, 0)").differentiable(1);
  cases.add("logsumexp", {{3, 4, 5}}, [](X x) { return logsumexp(x[0], {1}); }, "x[0].logsumexp(1)");
  cases.add("logsumexp.dims_keep", {{3, 4, 5}}, [](X x) { return x[0].logsumexp({0, 2}, true); },
            "x[0].logsumexp((0, 2), keepdim=True)");
  cases.add("logsumexp.large", {{3, 4}}, [](X x) { return logsumexp(x[0] * 1000, {1}); },
            "(x[0] * 1000).logsumexp(1)").differentiable(1);
  cases.add("logsumexp.special", {special({4, 11})}, [](X x) { return logsumexp(x[0], {0}); }, "x[0].logsumexp(0)")
      .differentiable(0);
  cases.add("logsumexp.nothing", {{2, 0}}, [](X x) { return logsumexp(x[0], {1}); }, "x[0].logsumexp(1)")
      .differentiable(1);
  cases.add("logsumexp.scalar", {{}}, [](X x) { return logsumexp(x[0], {0}); }, "x[0].logsumexp(0)");
}

static void add_counts(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) {
    cases.add(name, std::move(inputs), run, torch).on(floats | integers | booleans).differentiable(0);
  };
  add("all.dim", {ties({5, 6})}, [](X x) { return all(x[0] != 1, 1); }, "(x[0] != 1).all(1)");
  add("all.keep", {ties({5, 2})}, [](X x) { return (x[0] != 1).all(-1, true); }, "(x[0] != 1).all(-1, keepdim=True)");
  add("any.dim", {ties({5, 3})}, [](X x) { return any(x[0] == 1, 0); }, "(x[0] == 1).any(0)");
  add("count_nonzero", {ties({5, 6})}, [](X x) { return count_nonzero(x[0]); }, "torch.count_nonzero(x[0])");
  add("count_nonzero.dim", {ties({5, 6})}, [](X x) { return x[0].count_nonzero(1); }, "torch.count_nonzero(x[0], 1)");
  add("count_nonzero.dims", {ties({2, 3, 4})}, [](X x) { return count_nonzero(x[0], {0, 2}); },
      "torch.count_nonzero(x[0], (0, 2))");
}

void add_reduce(CaseList& cases) {
  add_sums(cases);
  add_extremes(cases);
  add_more_extremes(cases);
  add_products(cases);
  add_statistics(cases);
  add_counts(cases);
  cases.add("all", {ties({3, 4})}, [](X x) { return all(x[0] != 5); }, "(x[0] != 5).all()").on(all_types)
      .differentiable(0);
  cases.add("all.false", {mask({9})}, [](X x) { return all(x[0]); }, "x[0].all()").differentiable(0);
  cases.add("all.empty", {{0}}, [](X x) { return all(x[0] > 0); }, "(x[0] > 0).all()").differentiable(0);
  cases.add("any", {mask({9})}, [](X x) { return any(x[0]); }, "x[0].any()").differentiable(0);
  cases.add("any.empty", {{0}}, [](X x) { return any(x[0] > 0); }, "(x[0] > 0).any()").differentiable(0);
}

}  // namespace gradus::op_cases
