// Views, joining and indexing.
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
  view("flatten.view", {{2, 3, 2, 2}}, [](X x) { return flatten(x[0], 1); }, "x[0].flatten(1)").only_contiguous();
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
  cases.add("cat.image", {{2, 3, 2, 4}, {2, 1, 2, 4}}, [](X x) { return cat(x, 1); }, "torch.cat(x, 1)").is_image();
  cases.add("stack", {{2, 3}, {2, 3}}, [](X x) { return stack(x, 1); }, "torch.stack(x, 1)").on(all_types);
  cases.add("stack.scalars", {{}, {}, {}}, [](X x) { return stack(x); }, "torch.stack(x)");
  cases.add("stack.last", {{2, 3}, {2, 3}}, [](X x) { return stack(x, -1); }, "torch.stack(x, -1)");
  cases.add("view.chain", {{2, 3, 4}}, [](X x) { return exp(x[0].transpose(1, 2)[1].slice(0, 0, 4, 3)).t(); },
            "x[0].transpose(1, 2)[1][0:4:3].exp().t()");
}

void add_shape(CaseList& cases) {
  add_views(cases);
  add_joins(cases);
}

}  // namespace gradus::op_cases
