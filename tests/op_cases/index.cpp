// Indexing, gathering and scattering.
#include <cmath>

#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

// x.index({…}) with index tensors and masks.
static void add_reads(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch).on(all_types);
  };
  add("index.rows", {{5, 3}, index({4}, 5)}, [](X x) { return x[0].index({x[1]}); }, "x[0][x[1]]");
  add("index.rows_of_image", {{4, 3, 2, 2}, index({3}, 4)}, [](X x) { return x[0].index({x[1]}); }, "x[0][x[1]]");
  add("index.no_rows", {{5, 3}, index({0}, 5)}, [](X x) { return x[0].index({x[1]}); }, "x[0][x[1]]");
  add("index.columns", {{3, 5}, index({4}, 5)}, [](X x) { return x[0].index({Slice(), x[1]}); }, "x[0][:, x[1]]");
  add("index.matrix", {{5, 3}, index({2, 4}, 5)}, [](X x) { return x[0].index({x[1]}); }, "x[0][x[1]]");
  add("index.matrix_behind", {{2, 5}, index({2, 3}, 5)}, [](X x) { return x[0].index({Ellipsis, x[1]}); },
      "x[0][..., x[1]]");
  add("index.negative", {{5, 3}, index({4}, 5)}, [](X x) { return x[0].index({x[1] - 5}); }, "x[0][x[1] - 5]");
  add("index.int32", {{5, 3}, index({4}, 5)}, [](X x) { return x[0].index({x[1].to(kInt)}); }, "x[0][x[1]]");
  add("index.pairs", {{4, 5}, index({6}, 4), index({6}, 5)}, [](X x) { return x[0].index({x[1], x[2]}); },
      "x[0][x[1], x[2]]");
  add("index.pairs_broadcast", {{4, 5, 2}, index({3, 1}, 4), index({2}, 5)},
      [](X x) { return x[0].index({x[1], x[2]}); }, "x[0][x[1], x[2]]");
  add("index.pairs_inside", {{2, 4, 5, 3}, index({6}, 4), index({6}, 5)},
      [](X x) { return x[0].index({Slice(), x[1], x[2]}); }, "x[0][:, x[1], x[2]]");
  add("index.pairs_apart", {{4, 3, 5}, index({6}, 4), index({6}, 5)},
      [](X x) { return x[0].index({x[1], Slice(), x[2]}); }, "x[0][x[1], :, x[2]]");
  add("index.pairs_apart_inside", {{2, 4, 3, 5}, index({2, 3}, 4), index({3}, 5)},
      [](X x) { return x[0].index({Slice(), x[1], Slice(0, 2), x[2]}); }, "x[0][:, x[1], 0:2, x[2]]");
  add("index.with_all", {{4, 3, 6, 5}, index({3}, 4), index({3}, 5)},
      [](X x) { return x[0].index({x[1], 1, None, Slice({}, {}, 2), x[2]}); }, "x[0][x[1], 1, None, ::2, x[2]]");
  add("index.integer_before", {{4, 3, 5}, index({2}, 5)}, [](X x) { return x[0].index({1, Slice(), x[1]}); },
      "x[0][1, :, x[1]]");
  add("index.mask", {{3, 4}, mask({3, 4})}, [](X x) { return x[0].index({x[1]}); }, "x[0][x[1]]");
  add("index.mask_of_rows", {{6, 3}, mask({6})}, [](X x) { return x[0].index({x[1]}); }, "x[0][x[1]]");
  add("index.mask_behind", {{3, 2, 4}, mask({2, 4})}, [](X x) { return x[0].index({Slice(), x[1]}); }, "x[0][:, x[1]]");
  add("index.mask_false", {{3, 4}}, [](X x) { return x[0].index({zeros({3}, kBool)}); }, "x[0][torch.zeros(3).bool()]");
  add("index.mask_and_rows", {{4, 5}, index({1}, 5)}, [](X x) { return x[0].index({tensor({true, false, true, true}), x[1]}); },
      "x[0][torch.tensor([True, False, True, True]), x[1]]");
  add("index.mask_computed", {{3, 4}}, [](X x) { return x[0].index({x[0] > 0}); }, "x[0][x[0] > 0]").on(floats | integers);
  add("index.true", {{3}}, [](X x) { return x[0].index({true}); }, "x[0][True]");
  add("index.false", {{3}}, [](X x) { return x[0].index({false}); }, "x[0][False]");
  add("index.scalar_true", {{}}, [](X x) { return x[0].index({x[0] == x[0]}); }, "x[0][x[0] == x[0]]").on(floats);
  add("index.scalar_tensor", {{4, 3}}, [](X x) { return x[0].index({tensor(2), Slice(1)}); }, "x[0][torch.tensor(2), 1:]")
      .is_view();
  add("index.of_transposed", {{4, 3, 5}, index({6}, 4), index({6}, 5)},
      [](X x) { return x[0].transpose(0, 2).index({x[2], Ellipsis, x[1]}); }, "x[0].transpose(0, 2)[x[2], ..., x[1]]");
}

static void add_writes(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch).on(all_types);
  };
  add("index_put_.rows", {{5, 3}, {3}}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({tensor({3, 0})}, x[1]);
    return y;
  }, "(lambda y: (y.__setitem__(torch.tensor([3, 0]), x[1]), y)[1])(x[0].clone())");
  add("index_put_.pairs", {{4, 5}, {3}}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({tensor({3, 0, -1}), tensor({1, 2, -1})}, x[1]);
    return y;
  }, "(lambda y: (y.__setitem__((torch.tensor([3, 0, -1]), torch.tensor([1, 2, -1])), x[1]), y)[1])(x[0].clone())");
  add("index_put_.pairs_apart", {{4, 3, 5}, {2, 3}}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({tensor({3, 0}), Slice(), tensor({1, 2})}, x[1]);
    return y;
  }, "(lambda y: (y.__setitem__((torch.tensor([3, 0]), slice(None), torch.tensor([1, 2])), x[1]), y)[1])(x[0].clone())");
  add("index_put_.columns_of_slice", {{4, 6}, {2, 1}}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({Slice(1, 3), tensor({5, 0})}, x[1]);
    return y;
  }, "(lambda y: (y.__setitem__((slice(1, 3), torch.tensor([5, 0])), x[1]), y)[1])(x[0].clone())");
  add("index_put_.mask", {{3, 4}, {3}}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({tensor({{true, false, false, true}, {false, false, false, false}, {false, true, false, false}})},
                 x[1]);
    return y;
  }, "(lambda y: (y.__setitem__(torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]).bool(), x[1]), y)[1])(x[0].clone())");
  add("index_put_.mask_number", {{3, 4, 2}, mask({3, 4})}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({x[1]}, 1);
    return y;
  }, "(lambda y: (y.__setitem__(x[1], 1), y)[1])(x[0].clone())");
  add("index_put_.mask_behind", {{3, 2, 4}, mask({4}), {}}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({Ellipsis, x[1]}, x[2]);
    return y;
  }, "(lambda y: (y.__setitem__((..., x[1]), x[2]), y)[1])(x[0].clone())");
  add("index_put_.nothing", {{3, 4}}, [](X x) {
    Tensor y = x[0].clone();
    y.index_put_({zeros({0}, kLong)}, 1);
    return y;
  }, "(lambda y: (y.__setitem__(torch.zeros(0).long(), 1), y)[1])(x[0].clone())");
  add("index_put_.through_view", {{3, 4, 2}, {2}}, [](X x) {
    Tensor y = x[0].clone();
    y.transpose(0, 1).index_put_({tensor({3, 1}), tensor({2, 0})}, x[1]);
    return y;
  }, "(lambda y: (y.transpose(0, 1).__setitem__((torch.tensor([3, 1]), torch.tensor([2, 0])), x[1]), y)[1])(x[0].clone())");
  add("index_put", {{5, 3}, {2, 1}}, [](X x) { return index_put(x[0], {tensor({3, 0})}, x[1]); },
      "(lambda y: (y.__setitem__(torch.tensor([3, 0]), x[1]), y)[1])(x[0].clone())");
}

static void add_accumulating_writes(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) {
    cases.add(name, std::move(inputs), run, torch).on(floats | integers);
  };
  add("index_put_.accumulate", {{4, 3}, index({7}, 4), {7, 3}},
      [](X x) { return x[0].clone().index_put_({x[1]}, x[2], true); },
      "x[0].clone().index_put_((x[1],), x[2], accumulate=True)");
  add("index_put_.accumulate_number", {{4, 3}, index({5}, 4), index({5}, 3)},
      [](X x) { return x[0].clone().index_put_({x[1], x[2]}, 2, true); },
      "x[0].clone().index_put_((x[1], x[2]), torch.tensor(2, dtype=x[0].dtype), accumulate=True)");
  add("index_put_.accumulate_apart", {{4, 2, 3}, index({5}, 4), index({5}, 3), {5, 1}},
      [](X x) { return x[0].clone().index_put_({x[1], Slice(), x[2]}, x[3], true); },
      "torch.ops.aten.index_put(x[0], [x[1], None, x[2]], x[3], True)");
  add("index_put_.accumulate_mask", {{3, 4}, mask({3, 4}), {}},
      [](X x) { return x[0].clone().index_put_({x[1]}, x[2], true); },
      "x[0].clone().index_put_((x[1],), x[2], accumulate=True)");
  add("index_put_.accumulate_slice", {{3, 6}, {2}}, [](X x) {
    return x[0].clone().index_put_({Slice(1), 2}, x[1], true);
  }, "(lambda y: (y[1:, 2].add_(x[1]), y)[1])(x[0].clone())");
  add("index_put_.accumulate_through_view", {{3, 4, 2}, {3}}, [](X x) {
    Tensor y = x[0].clone();
    const Tensor rows = tensor({3, 1, 3}, y.device()), columns = tensor({2, 0, 2}, y.device());
    y.transpose(0, 1).index_put_({rows, columns}, x[1].unsqueeze(1), true);
    return y;
  }, "(lambda y: (y.transpose(0, 1).index_put_((torch.tensor([3, 1, 3]), torch.tensor([2, 0, 2])), x[1].unsqueeze(1),"
     " accumulate=True), y)[1])(x[0].clone())");
  add("index_put.accumulate", {{5, 3}, {2, 1}}, [](X x) { return index_put(x[0], {tensor({3, 3}, x[0].device())}, x[1], true); },
      "x[0].index_put((torch.tensor([3, 3]),), x[1], accumulate=True)");
}

static void add_along_one_dimension(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch).on(all_types);
  };
  add("index_select", {{5, 3}, index({7}, 5)}, [](X x) { return x[0].index_select(0, x[1]); }, "x[0].index_select(0, x[1])");
  add("index_select.last", {{2, 3, 5}, index({4}, 5)}, [](X x) { return index_select(x[0], -1, x[1]); },
      "x[0].index_select(-1, x[1])");
  add("index_select.middle", {{2, 5, 3}, index({4}, 5)}, [](X x) { return index_select(x[0], 1, x[1]); },
      "x[0].index_select(1, x[1])");
  add("index_select.scalar", {{5, 3}, index({}, 5)}, [](X x) { return index_select(x[0], 0, x[1]); },
      "x[0].index_select(0, x[1])");
  add("index_select.of_scalar", {{}, index({1}, 1)}, [](X x) { return index_select(x[0], 0, x[1]); },
      "x[0].index_select(0, x[1])");
  add("index_select.empty", {{5, 0}, index({7}, 5)}, [](X x) { return index_select(x[0], 0, x[1]); },
      "x[0].index_select(0, x[1])");
  cases.add("index_select.large", {{300, 70}, index({500}, 300)}, [](X x) { return index_select(x[0], 0, x[1]); });
  cases.add("index_select.large_columns", {{70, 300}, index({500}, 300)}, [](X x) { return index_select(x[0], 1, x[1]); });

  add("index_add", {{5, 3}, index({7}, 5), {7, 3}}, [](X x) { return x[0].index_add(0, x[1], x[2]); },
      "x[0].index_add(0, x[1], x[2])");
  add("index_add.alpha", {{2, 5}, index({3}, 5), {2, 3}}, [](X x) { return index_add(x[0], 1, x[1], x[2], -2); },
      "x[0].index_add(1, x[1], x[2], alpha=-2)").on(floats);
  add("index_add.scalar", {{}, index({1}, 1), {}}, [](X x) { return index_add(x[0], 0, x[1], x[2]); },
      "x[0].index_add(0, x[1], x[2])");
  add("index_copy", {{5, 3}, {2, 3}}, [](X x) { return index_copy(x[0], 0, tensor({4, 1}, x[0].device()), x[1]); },
      "x[0].index_copy(0, torch.tensor([4, 1]), x[1])");
  add("index_fill", {{3, 5}, index({2}, 5)}, [](X x) { return x[0].index_fill(1, x[1], 1); }, "x[0].index_fill(1, x[1], 1)");
  add("index_add_", {{5, 3}, index({7}, 5), {7, 3}}, [](X x) { return x[0].clone().index_add_(0, x[1], x[2]); },
      "x[0].clone().index_add_(0, x[1], x[2])");
  add("index_fill_", {{3, 5}, index({2}, 5)}, [](X x) { return x[0].clone().index_fill_(1, x[1], 1); },
      "x[0].clone().index_fill_(1, x[1], 1)");
}

static void add_gathers(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch).on(all_types);
  };
  add("gather", {{4, 5}, index({4, 3}, 5)}, [](X x) { return x[0].gather(1, x[1]); }, "x[0].gather(1, x[1])");
  add("gather.rows", {{4, 5}, index({6, 5}, 4)}, [](X x) { return gather(x[0], 0, x[1]); }, "x[0].gather(0, x[1])");
  add("gather.part", {{4, 5, 3}, index({2, 6, 1}, 5)}, [](X x) { return gather(x[0], 1, x[1]); }, "x[0].gather(1, x[1])");
  add("gather.scalar", {{}, index({}, 1)}, [](X x) { return gather(x[0], 0, x[1]); }, "x[0].gather(0, x[1])");
  add("gather.empty", {{4, 5}, index({4, 0}, 5)}, [](X x) { return gather(x[0], 1, x[1]); }, "x[0].gather(1, x[1])");
  add("take_along_dim", {{4, 1}, index({3, 5}, 4)}, [](X x) { return take_along_dim(x[0], x[1], 0); },
      "x[0].take_along_dim(x[1], 0)");
  add("take_along_dim.flat", {{4, 2}, index({3}, 8)}, [](X x) { return take_along_dim(x[0], x[1]); },
      "x[0].take_along_dim(x[1])");

  // Indices are distinct, because PyTorch does not define which source wins for equal ones.
  add("scatter", {{3, 5}, {2, 3}}, [](X x) { return x[0].scatter(1, tensor({{0, 2, 4}, {3, 1, 0}}, x[0].device()), x[1]); },
      "x[0].scatter(1, torch.tensor([[0, 2, 4], [3, 1, 0]]), x[1])");
  add("scatter.rows", {{4, 3}, {2, 3}}, [](X x) { return scatter(x[0], 0, tensor({{0, 2, 3}, {3, 1, 0}}, x[0].device()), x[1]); },
      "x[0].scatter(0, torch.tensor([[0, 2, 3], [3, 1, 0]]), x[1])");
  cases.add("scatter.larger_source", {{3, 5}, {3, 4}}, [](X x) { return scatter(x[0], 1, tensor({{0, 2}, {3, 1}}, x[0].device()), x[1]); },
            "x[0].scatter(1, torch.tensor([[0, 2], [3, 1]]), x[1][:2, :2])");
  add("scatter.number", {{3, 5}, index({3, 2}, 5)}, [](X x) { return scatter(x[0], 1, x[1], 1); }, "x[0].scatter(1, x[1], 1)");
  add("scatter.reduce_add", {{3, 5}, index({3, 7}, 5), {3, 7}}, [](X x) { return scatter(x[0], 1, x[1], x[2], "add"); },
      "x[0].scatter_add(1, x[1], x[2])");
  add("scatter_add", {{3, 5}, index({3, 7}, 5), {3, 7}}, [](X x) { return x[0].scatter_add(1, x[1], x[2]); },
      "x[0].scatter_add(1, x[1], x[2])");
  add("scatter_add.rows", {{4, 3}, index({6, 3}, 4), {6, 3}}, [](X x) { return scatter_add(x[0], 0, x[1], x[2]); },
      "x[0].scatter_add(0, x[1], x[2])");
  add("scatter_add.vector", {{4}, index({9}, 4), {9}}, [](X x) { return scatter_add(x[0], 0, x[1], x[2]); },
      "x[0].scatter_add(0, x[1], x[2])");
  add("scatter_", {{3, 5}, {2, 3}}, [](X x) { return x[0].clone().scatter_(1, tensor({{0, 2, 4}, {3, 1, 0}}, x[0].device()), x[1]); },
      "x[0].clone().scatter_(1, torch.tensor([[0, 2, 4], [3, 1, 0]]), x[1])");
  add("scatter_.number", {{3, 5}, index({3, 2}, 5)}, [](X x) { return x[0].clone().scatter_(1, x[1], 1); },
      "x[0].clone().scatter_(1, x[1], 1)");
  add("scatter_add_", {{3, 5}, index({3, 7}, 5), {3, 7}}, [](X x) { return x[0].clone().scatter_add_(1, x[1], x[2]); },
      "x[0].clone().scatter_add_(1, x[1], x[2])");
  // More indices than a thread processes at once, most of which occur several times.
  cases.add("scatter_add.large", {{5, 60}, index({200, 60}, 5), {200, 60}},
            [](X x) { return scatter_add(x[0], 0, x[1], x[2]); });
}

static void add_masks(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch).on(all_types);
  };
  add("masked_fill", {{3, 4}, mask({3, 4})}, [](X x) { return x[0].masked_fill(x[1], 1); }, "x[0].masked_fill(x[1], 1)");
  add("masked_fill.broadcast", {{3, 4}, mask({2, 1, 4})}, [](X x) { return masked_fill(x[0], x[1], 1); },
      "x[0].masked_fill(x[1], 1)");
  add("masked_fill.infinity", {ties({3, 4}), mask({3, 4})}, [](X x) { return masked_fill(x[0], x[1], -INFINITY); },
      "x[0].masked_fill(x[1], -float('inf'))").on(floats);
  add("masked_fill.tensor", {{3, 4}, mask({3, 4}), {}}, [](X x) { return masked_fill(x[0], x[1], x[2]); },
      "x[0].masked_fill(x[1], x[2])");
  add("masked_fill_", {{3, 4}, mask({4})}, [](X x) { return x[0].clone().masked_fill_(x[1], 1); },
      "x[0].clone().masked_fill_(x[1], 1)");
  add("masked_select", {{3, 4}, mask({3, 4})}, [](X x) { return x[0].masked_select(x[1]); }, "x[0].masked_select(x[1])");
  add("masked_select.broadcast", {{3, 1}, mask({4})}, [](X x) { return masked_select(x[0], x[1]); },
      "x[0].masked_select(x[1])");
  add("nonzero", {ties({3, 2, 4})}, [](X x) { return x[0].nonzero(); }, "x[0].nonzero()").differentiable(0);
  add("nonzero.special", {special({12})}, [](X x) { return nonzero(x[0]); }, "x[0].nonzero()").on(floats).differentiable(0);
  add("nonzero.scalar", {{}}, [](X x) { return nonzero(x[0]); }, "x[0].nonzero()").differentiable(0).on(floats);
  add("nonzero.empty", {{0, 3}}, [](X x) { return nonzero(x[0]); }, "x[0].nonzero()").differentiable(0);
  cases.add("nonzero.large", {ties({150, 300})}, [](X x) { return nonzero(x[0]); }).differentiable(0);
  cases.add("where.indices", {ties({3, 4})}, Run([](X x) { return gradus::where(x[0] > 0); }), "torch.where(x[0] > 0)")
      .differentiable(0).on(floats | integers);
  cases.add("nonzero_numpy", {ties({7})}, Run([](X x) { return nonzero_numpy(x[0]); }), "x[0].nonzero(as_tuple=True)")
      .differentiable(0).on(all_types);

  cases.add("one_hot", {index({2, 3}, 5)}, [](X x) { return one_hot(x[0], 6); }, "F.one_hot(x[0], 6)").differentiable(0);
  cases.add("one_hot.counted", {index({7}, 5)}, [](X x) { return one_hot(x[0]); }, "F.one_hot(x[0])").differentiable(0);
  cases.add("one_hot.empty", {index({0}, 5)}, [](X x) { return one_hot(x[0], 3); }, "F.one_hot(x[0], 3)").differentiable(0);
}

void add_index(CaseList& cases) {
  add_reads(cases);
  add_writes(cases);
  add_accumulating_writes(cases);
  add_along_one_dimension(cases);
  add_gathers(cases);
  add_masks(cases);
}

}  // namespace gradus::op_cases
