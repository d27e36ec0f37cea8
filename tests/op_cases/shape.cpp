// Views, joining, splitting and rearranging.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_views(CaseList& cases) {
  const auto view = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch).on(all_types).is_view();
  };
  view("view", {{2, 6}}, [](X x) { return x[0].view({3, -1}); }, "x[0].view(3, -1)").only_contiguous();
  view("view.empty", {{0, 6}}, [](X x) { return x[0].view({0, 2, 3}); }, "x[0].view(0, 2, 3)").only_contiguous();
  view("view.scalar", {{1, 1}}, [](X x) { return x[0].view({}); }, "x[0].view(())").only_contiguous();
  view("transpose", {{2, 3, 4}}, [](X x) { return x[0].transpose(0, -1); }, "x[0].transpose(0, -1)");
  view("t", {{2, 3}}, [](X x) { return x[0].t(); }, "x[0].t()");
  view("permute", {{2, 3, 4}}, [](X x) { return permute(x[0], {2, 0, 1}); }, "x[0].permute(2, 0, 1)");
  view("expand", {{3, 1}}, [](X x) { return x[0].expand({2, -1, 4}); }, "x[0].expand(2, -1, 4)");
  view("slice", {{5, 6}}, [](X x) { return x[0].slice(1, 1, 6, 2); }, "x[0][:, 1:6:2]");
  view("slice.negative", {{5, 6}}, [](X x) { return x[0].slice(0, -3, -1); }, "x[0][-3:-1]");
  view("slice.empty", {{5, 6}}, [](X x) { return x[0].slice(0, 4, 2); }, "x[0][4:2]");
  view("slice.beyond", {{5, 6}}, [](X x) { return x[0].slice(0, 2, 99); }, "x[0][2:99]");
  view("narrow", {{5, 6}}, [](X x) { return x[0].narrow(1, 2, 3); }, "x[0].narrow(1, 2, 3)");
  view("select", {{4, 3, 2}}, [](X x) { return x[0].select(1, -1); }, "x[0].select(1, -1)");
  view("index", {{4, 3, 2}}, [](X x) { return x[0].index({2, Slice(0, 2), 1}); }, "x[0][2, 0:2, 1]");
  view("index.ellipsis", {{4, 3, 2}}, [](X x) { return x[0].index({Ellipsis, None, Slice({}, {}, 2)}); },
       "x[0][..., None, ::2]");
  view("index.bracket", {{4, 3}}, [](X x) { return x[0][1][2]; }, "x[0][1][2]");
  view("squeeze", {{1, 3, 1}}, [](X x) { return x[0].squeeze(); }, "x[0].squeeze()");
  view("squeeze.dim", {{1, 3, 1}}, [](X x) { return squeeze(x[0], -1); }, "x[0].squeeze(-1)");
  view("squeeze.wide", {{1, 3, 1}}, [](X x) { return squeeze(x[0], 1); }, "x[0].squeeze(1)");
  view("unsqueeze", {{2, 3}}, [](X x) { return unsqueeze(x[0], -1); }, "x[0].unsqueeze(-1)");
  view("as_strided", {{3, 4}}, [](X x) { return x[0].as_strided({2, 3}, {5, 1}, 1); },
       "x[0].as_strided((2, 3), (5, 1), 1)").only_contiguous();
  view("as_strided.overlap", {{10}}, [](X x) { return x[0].as_strided({4, 3}, {2, 1}); },
       "x[0].as_strided((4, 3), (2, 1))").only_contiguous();
  view("as_strided.repeat", {{4}}, [](X x) { return x[0].as_strided({3, 4}, {0, 1}); },
       "x[0].as_strided((3, 4), (0, 1))").only_contiguous();
  view("movedim", {{2, 3, 4}}, [](X x) { return x[0].movedim(0, -1); }, "x[0].movedim(0, -1)");
  view("movedim.several", {{2, 3, 4}}, [](X x) { return movedim(x[0], {2, 0}, {0, 1}); },
       "x[0].movedim((2, 0), (0, 1))");
  view("unflatten", {{3, 8, 2}}, [](X x) { return x[0].unflatten(1, {2, -1}); }, "x[0].unflatten(1, (2, -1))")
      .only_contiguous();
  view("swapaxes", {{2, 3, 4}}, [](X x) { return swapaxes(x[0], 0, -1); }, "x[0].swapaxes(0, -1)");
  view("diagonal", {{3, 4}}, [](X x) { return x[0].diagonal(); }, "x[0].diagonal()");
  view("diagonal.above", {{3, 4, 5}}, [](X x) { return x[0].diagonal(2, -1, 0); }, "x[0].diagonal(2, -1, 0)");
  view("diagonal.below", {{4, 3}}, [](X x) { return diagonal(x[0], -2); }, "x[0].diagonal(-2)");
  view("diagonal.beyond", {{2, 3}}, [](X x) { return diagonal(x[0], 3); }, "x[0].diagonal(3)");
  view("unfold.dim", {{3, 8}}, [](X x) { return x[0].unfold(1, 3, 2); }, "x[0].unfold(1, 3, 2)");
  view("unfold.dim_first", {{5, 2, 3}}, [](X x) { return x[0].unfold(0, 4, 1); }, "x[0].unfold(0, 4, 1)");
  view("unfold.dim_gaps", {{9}}, [](X x) { return x[0].unfold(-1, 2, 5); }, "x[0].unfold(-1, 2, 5)");
  view("unfold.dim_nothing", {{3, 2}}, [](X x) { return x[0].unfold(0, 0, 1); }, "x[0].unfold(0, 0, 1)")
      .differentiable(1);
  view("unfold.dim_scalar", {{}}, [](X x) { return x[0].unfold(0, 1, 3); }, "x[0].unfold(0, 1, 3)");
  view("mT", {{2, 3, 4}}, [](X x) { return x[0].mT(); }, "x[0].mT");
  view("broadcast_to", {{3, 1}}, [](X x) { return broadcast_to(x[0], {2, 3, 4}); }, "x[0].broadcast_to(2, 3, 4)");
  view("atleast_3d", {{3, 4}}, [](X x) { return atleast_3d(x[0]); }, "torch.atleast_3d(x[0])").only_contiguous();
  view("atleast_3d.vector", {{3}}, [](X x) { return atleast_3d(x[0]); }, "torch.atleast_3d(x[0])");
  view("atleast_2d", {{3}}, [](X x) { return atleast_2d(x[0]); }, "torch.atleast_2d(x[0])");
  view("atleast_1d", {{}}, [](X x) { return atleast_1d(x[0]); }, "torch.atleast_1d(x[0])");
  view("flatten.view", {{2, 3, 2, 2}}, [](X x) { return flatten(x[0], 1); }, "x[0].flatten(1)").only_contiguous();
}

// Operators that return several views.
static void add_parts(CaseList& cases) {
  const auto parts = [&](const char* name, std::vector<Input> inputs, TensorList (*run)(X),
                         const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), Run(run), torch).on(all_types).is_view();
  };
  parts("split", {{5, 3}}, [](X x) { return x[0].split(2); }, "x[0].split(2)");
  parts("split.sizes", {{2, 6}}, [](X x) { return x[0].split({1, 3, 2}, -1); }, "x[0].split((1, 3, 2), -1)");
  parts("split.many", {{13, 2}}, [](X x) { return x[0].split({1, 1, 0, 2, 1, 1, 3, 1, 1, 2}); },
        "x[0].split((1, 1, 0, 2, 1, 1, 3, 1, 1, 2))");
  parts("split.with_sizes", {{2, 5}}, [](X x) { return x[0].split_with_sizes({2, 3}, 1); },
        "x[0].split_with_sizes((2, 3), 1)");
  parts("split.empty", {{0, 3}}, [](X x) { return split(x[0], 2); }, "x[0].split(2)");
  parts("split.used_in_part", {{6, 2}}, [](X x) {
    const TensorList rows = x[0].split(2);
    return TensorList{rows[0], rows[2]};
  }, "x[0].split(2)[::2]");
  parts("chunk", {{7, 2}}, [](X x) { return x[0].chunk(3); }, "x[0].chunk(3)");
  parts("chunk.fewer", {{2, 5}}, [](X x) { return chunk(x[0], 4, 1); }, "x[0].chunk(4, 1)");
  parts("unbind", {{2, 3, 2}}, [](X x) { return x[0].unbind(1); }, "x[0].unbind(1)");
  parts("unbind.vector", {{3}}, [](X x) { return unbind(x[0]); }, "x[0].unbind()");
  parts("broadcast_tensors", {{2, 1}, {3}}, [](X x) { return TensorList{broadcast_tensors(x)[0]}; },
        "torch.broadcast_tensors(*x)[0]").differentiable(2);
  parts("meshgrid", {{2}, {3}}, [](X x) { return TensorList{meshgrid(x)[0]}; }, "torch.meshgrid(*x, indexing='ij')[0]");
  cases.add("meshgrid.xy", {{2}, {3}, {4}}, Run([](X x) { return meshgrid(x, "xy"); }),
            "torch.meshgrid(*x, indexing='xy')").on(all_types);
  cases.add("split.product", {{2, 6}}, [](X x) {
    const TensorList gates = x[0].chunk(3, 1);
    return gates[0] * gates[1] * gates[2];
  }, "(lambda g: g[0] * g[1] * g[2])(x[0].chunk(3, 1))");
}

static void add_rearrangements(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch).on(all_types);
  };
  add("repeat", {{2, 3}}, [](X x) { return x[0].repeat({2, 1, 3}); }, "x[0].repeat(2, 1, 3)");
  add("repeat.once", {{2, 3}}, [](X x) { return x[0].repeat({1, 1}); }, "x[0].repeat(1, 1)");
  add("repeat.scalar", {{}}, [](X x) { return x[0].repeat({3}); }, "x[0].repeat(3)");
  add("repeat.none", {{2, 3}}, [](X x) { return x[0].repeat({0, 2}); }, "x[0].repeat(0, 2)");
  add("tile", {{2, 3}}, [](X x) { return tile(x[0], {2}); }, "x[0].tile(2)");
  add("tile.more", {{3}}, [](X x) { return tile(x[0], {2, 2}); }, "x[0].tile(2, 2)");
  add("repeat_interleave", {{2, 3}}, [](X x) { return x[0].repeat_interleave(2, 0); }, "x[0].repeat_interleave(2, 0)");
  add("repeat_interleave.flat", {{2, 3}}, [](X x) { return repeat_interleave(x[0], 3); }, "x[0].repeat_interleave(3)");
  add("flip", {{2, 3, 4}}, [](X x) { return x[0].flip({0, -1}); }, "x[0].flip(0, -1)");
  add("flip.rows", {{5, 3}}, [](X x) { return flipud(x[0]); }, "x[0].flipud()");
  add("flip.columns", {{5, 3}}, [](X x) { return fliplr(x[0]); }, "x[0].fliplr()");
  add("flip.none", {{2, 3}}, [](X x) { return x[0].flip({}); }, "x[0].flip(())");
  add("flip.empty", {{0, 3}}, [](X x) { return x[0].flip({0, 1}); }, "x[0].flip(0, 1)");
  add("roll", {{3, 5}}, [](X x) { return x[0].roll({2}, {1}); }, "x[0].roll(2, 1)");
  add("roll.negative", {{3, 5}}, [](X x) { return x[0].roll({-1, 7}, {0, 1}); }, "x[0].roll((-1, 7), (0, 1))");
  add("roll.flat", {{3, 4}}, [](X x) { return roll(x[0], {5}); }, "x[0].roll(5)");
  add("roll.empty", {{0, 4}}, [](X x) { return roll(x[0], {5}, {0}); }, "x[0].roll(5, 0)");
  add("tril", {{4, 4}}, [](X x) { return x[0].tril(); }, "x[0].tril()");
  add("tril.above", {{2, 3, 5}}, [](X x) { return tril(x[0], 1); }, "x[0].tril(1)");
  add("triu", {{4, 4}}, [](X x) { return x[0].triu(); }, "x[0].triu()");
  add("triu.below", {{5, 3}}, [](X x) { return triu(x[0], -2); }, "x[0].triu(-2)");
  add("triu.special", {special({4, 4})}, [](X x) { return triu(x[0], 1); }, "x[0].triu(1)").on(floats);
  add("diag", {{4}}, [](X x) { return x[0].diag(); }, "x[0].diag()");
  add("diag.above", {{3}}, [](X x) { return diag(x[0], 2); }, "x[0].diag(2)");
  add("diag.below", {{3}}, [](X x) { return diag(x[0], -1); }, "x[0].diag(-1)");
  add("diag.of_matrix", {{3, 4}}, [](X x) { return diag(x[0], 1); }, "x[0].diag(1)");
  add("hstack", {{2, 1}, {2, 3}}, [](X x) { return hstack(x); }, "torch.hstack(x)");
  add("hstack.vectors", {{2}, {3}, {}}, [](X x) { return hstack(x); }, "torch.hstack(x)");
  add("vstack", {{3}, {2, 3}}, [](X x) { return vstack(x); }, "torch.vstack(x)");
  add("dstack", {{2, 3}, {2, 3, 2}}, [](X x) { return dstack(x); }, "torch.dstack(x)");
  add("cat.nothing", {{0}, {2, 3}}, [](X x) { return cat(x, 1); }, "torch.cat(x, 1)");
  add("cat.nothing_between", {{2, 3}, {0}, {1, 3}}, [](X x) { return cat(x); }, "torch.cat(x)");
  add("cat.nothing_at_all", {{0}, {0}}, [](X x) { return cat(x, 1); }, "torch.cat(x, 1)").without_finite_differences();
}

static void add_joins(CaseList& cases) {
  cases.add("reshape", {{2, 6}}, [](X x) { return reshape(x[0], {4, 3}); }, "x[0].reshape(4, 3)").on(all_types);
  cases.add("reshape.of_transposed", {{4, 6}}, [](X x) { return x[0].t().reshape({3, -1}); }, "x[0].t().reshape(3, -1)");
  cases.add("reshape.empty", {{2, 0, 3}}, [](X x) { return reshape(x[0], {0, 5}); }, "x[0].reshape(0, 5)");
  cases.add("flatten", {{2, 3, 2, 2}}, [](X x) { return flatten(x[0], 1, 2); }, "x[0].flatten(1, 2)").on(all_types);
  cases.add("flatten.scalar", {{}}, [](X x) { return flatten(x[0]); }, "x[0].flatten()");
  cases.add("cat", {{2, 3}, {1, 3}, {3, 3}}, [](X x) { return cat(x); }, "torch.cat(x)").on(all_types);
  cases.add("cat.last", {{2, 3, 1}, {2, 3, 4}}, [](X x) { return cat(x, -1); }, "torch.cat(x, -1)");
  cases.add("cat.empty", {{2, 3}, {2, 0}}, [](X x) { return cat(x, 1); }, "torch.cat(x, 1)");
  cases.add("cat.one", {{2, 3}}, [](X x) { return cat(x, 0); }, "torch.cat(x, 0)");
  cases.add("cat.promoting", {{2, 3}, mask({2, 3})}, [](X x) { return cat(x, 0); }, "torch.cat(x, 0)")
      .on(floats | integers);
  cases.add("cat.promoting_nothing", {{2, 3}, index({0}, 1)}, [](X x) { return cat(x, 1); }, "torch.cat(x, 1)")
      .on(all_types);
  cases.add("cat.image", {{2, 3, 2, 4}, {2, 1, 2, 4}}, [](X x) { return cat(x, 1); }, "torch.cat(x, 1)").is_image();
  cases.add("stack", {{2, 3}, {2, 3}}, [](X x) { return stack(x, 1); }, "torch.stack(x, 1)").on(all_types);
  cases.add("stack.scalars", {{}, {}, {}}, [](X x) { return stack(x); }, "torch.stack(x)");
  cases.add("stack.last", {{2, 3}, {2, 3}}, [](X x) { return stack(x, -1); }, "torch.stack(x, -1)");
  cases.add("view.chain", {{2, 3, 4}}, [](X x) { return exp(x[0].transpose(1, 2)[1].slice(0, 0, 4, 3)).t(); },
            "x[0].transpose(1, 2)[1][0:4:3].exp().t()");
}

void add_shape(CaseList& cases) {
  add_views(cases);
  add_parts(cases);
  add_rearrangements(cases);
  add_joins(cases);
}

}  // namespace gradus::op_cases
