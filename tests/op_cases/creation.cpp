// Creation of tensors, copies and conversions. The input determines the device.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_constants(CaseList& cases) {
  const auto add = [&](const char* name, Tensor (*run)(X), const char* torch) {
    cases.add(name, {{1}}, run, torch).differentiable(0);
  };
  add("zeros", [](X x) { return zeros({2, 3}, x[0].options()); }, "torch.zeros(2, 3, dtype=x[0].dtype)");
  add("ones", [](X x) { return ones({2, 3}, x[0].options()); }, "torch.ones(2, 3, dtype=x[0].dtype)");
  add("full", [](X x) { return full({2, 3}, 1.5, x[0].options()); }, "torch.full((2, 3), 1.5, dtype=x[0].dtype)");
  add("eye", [](X x) { return eye(4, x[0].options()); }, "torch.eye(4, dtype=x[0].dtype)");
  add("arange", [](X x) { return arange(5, x[0].options()); }, "torch.arange(5, dtype=x[0].dtype)");
  add("arange.step", [](X x) { return arange(1, -2, -0.5, x[0].options()); },
      "torch.arange(1, -2, -0.5, dtype=x[0].dtype)");
  add("linspace", [](X x) { return linspace(-1, 1, 5, x[0].options()); }, "torch.linspace(-1, 1, 5, dtype=x[0].dtype)");
  add("zeros_like", [](X x) { return zeros_like(x[0]); }, "torch.zeros_like(x[0])");
  add("ones_like", [](X x) { return ones_like(x[0]); }, "torch.ones_like(x[0])");
  add("full_like", [](X x) { return full_like(x[0], 2.5); }, "torch.full_like(x[0], 2.5)");
  add("eye.wide", [](X x) { return eye(2, 4, x[0].options()); }, "torch.eye(2, 4, dtype=x[0].dtype)");
  add("logspace", [](X x) { return logspace(-1, 2, 4, 10, x[0].options()); },
      "torch.logspace(-1, 2, 4, dtype=x[0].dtype)");
  add("logspace.base", [](X x) { return logspace(0, 3, 4, 2, x[0].options()); },
      "torch.logspace(0, 3, 4, base=2, dtype=x[0].dtype)");
  add("new_empty", [](X x) { return x[0].new_empty({2, 0}); }, "x[0].new_empty(2, 0)");
  add("new_zeros", [](X x) { return x[0].new_zeros({2, 3}); }, "x[0].new_zeros(2, 3)");
  add("new_ones", [](X x) { return x[0].new_ones({2}); }, "x[0].new_ones(2)");
  add("new_zeros.typed", [](X x) { return x[0].new_zeros({2, 3}, kLong); }, "x[0].new_zeros(2, 3, dtype=torch.int64)");
  add("new_full", [](X x) { return x[0].new_full({2}, 2.5); }, "x[0].new_full((2,), 2.5)");
  cases.add("zeros_like.typed", {{2, 3}}, [](X x) { return zeros_like(x[0], kLong); },
            "torch.zeros_like(x[0], dtype=torch.int64)").on(all_types).differentiable(0);
  cases.add("ones_like.typed", {{2, 3}}, [](X x) { return ones_like(x[0], kBool); },
            "torch.ones_like(x[0], dtype=torch.bool)").on(all_types).differentiable(0);
  cases.add("full_like.typed", {{2, 3}}, [](X x) { return full_like(x[0], 2.5, kDouble); },
            "torch.full_like(x[0], 2.5, dtype=torch.float64)").on(all_types).differentiable(0).gives(kDouble);
  cases.add("tril_indices", {{1}}, [](X x) { return tril_indices(3, 4, 1, x[0].device()); }, "torch.tril_indices(3, 4, 1)")
      .differentiable(0);
  cases.add("triu_indices", {{1}}, [](X x) { return triu_indices(4, 3, -1, x[0].device()); },
            "torch.triu_indices(4, 3, -1)").differentiable(0);

  cases.add("arange.integer", {{1}}, [](X x) { return arange(2, 11, 3, x[0].device()); }, "torch.arange(2, 11, 3)")
      .differentiable(0);
  cases.add("arange.beyond_doubles", {{1}},
            [](X x) { return arange((int64_t{1} << 53) + 1, (int64_t{1} << 53) + 8, 2, x[0].device()); },
            "torch.arange(2**53 + 1, 2**53 + 8, 2)").differentiable(0);
  cases.add("arange.downwards_from_the_largest", {{1}},
            [](X x) { return arange(INT64_MAX, INT64_MAX - 3, -1, x[0].device()); },
            "torch.arange(2**63 - 1, 2**63 - 4, -1)").differentiable(0);
  cases.add("arange.fractions_cut_off", {{1}},
            [](X x) { return arange(0.5, 4.5, 1.5, TensorOptions(kLong).device(x[0].device())); },
            "torch.arange(0.5, 4.5, 1.5, dtype=torch.int64)").differentiable(0);
  // Computed from the nearer end. The ends are truncated first.
  const auto add_whole = [&](const char* name, Tensor (*run)(X), const char* torch) {
    cases.add(name, {{1}}, run, torch).differentiable(0);
  };
  add_whole("linspace.whole", [](X x) { return linspace(-2, 2, 10, TensorOptions(kLong).device(x[0].device())); },
            "torch.linspace(-2, 2, 10, dtype=torch.int64)");
  add_whole("linspace.downwards", [](X x) { return linspace(5, -5, 7, TensorOptions(kInt).device(x[0].device())); },
            "torch.linspace(5, -5, 7, dtype=torch.int32)");
  add_whole("linspace.fractions", [](X x) { return linspace(0.9, 5.9, 6, TensorOptions(kLong).device(x[0].device())); },
            "torch.linspace(0.9, 5.9, 6, dtype=torch.int64)");
  add_whole("linspace.one", [](X x) { return linspace(2.5, 7, 1, TensorOptions(kInt).device(x[0].device())); },
            "torch.linspace(2.5, 7, 1, dtype=torch.int32)");
  add_whole("linspace.bytes", [](X x) { return linspace(255, 0, 6, TensorOptions(kByte).device(x[0].device())); },
            "torch.linspace(255, 0, 6, dtype=torch.uint8)");
  add_whole("logspace.whole", [](X x) { return logspace(0.5, 3, 4, 10, TensorOptions(kLong).device(x[0].device())); },
            "torch.logspace(0.5, 3, 4, dtype=torch.int64)");
  add_whole("logspace.fractions", [](X x) { return logspace(0, 4, 9, 2, TensorOptions(kInt).device(x[0].device())); },
            "torch.logspace(0, 4, 9, base=2, dtype=torch.int32)");
  add_whole("arange.whole_steps", [](X x) { return arange(0, 5, 1.5, TensorOptions(kInt).device(x[0].device())); },
            "torch.arange(0, 5, 1.5, dtype=torch.int32)");
  add_whole("full.fraction_cut_off", [](X x) { return full({2}, -2.7, TensorOptions(kLong).device(x[0].device())); },
            "torch.full((2,), -2.7, dtype=torch.int64)");
  add_whole("eye.bytes", [](X x) { return eye(2, 3, TensorOptions(kByte).device(x[0].device())); },
            "torch.eye(2, 3, dtype=torch.uint8)");
  cases.add("full.integer", {{1}}, [](X x) { return full({2}, 7, x[0].device()); }, "torch.full((2,), 7)")
      .differentiable(0);
  cases.add("tensor", {{1}}, [](X x) { return tensor({{1., 2., 3.}, {4., 5., 6.}}, x[0].device()); },
            "torch.tensor([[1., 2., 3.], [4., 5., 6.]])").differentiable(0).gives(kFloat);
}

// No golden values: every backend must draw exactly the numbers that naive draws.
static void add_random(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X)) {
    cases.add(name, std::move(inputs), run).differentiable(0);
  };
  add("rand", {{1}}, [](X x) { return rand({3, 7}, x[0].options()); });
  add("randn", {{1}}, [](X x) { return randn({3, 7}, x[0].options()); });
  add("rand_like", {{3, 5}}, [](X x) { return rand_like(x[0]); });
  add("randn_like", {{3, 5}}, [](X x) { return randn_like(x[0]); });
  add("rand_like.typed", {{3, 5}}, [](X x) { return rand_like(x[0], kDouble); });
  add("randn_like.typed", {{3, 5}}, [](X x) { return randn_like(x[0], kDouble); });
  add("randint_like", {{3, 5}}, [](X x) { return randint_like(x[0], 2, 9); });
  add("randint_like.typed", {{3, 5}}, [](X x) { return randint_like(x[0], 9, kLong); });
  add("normal", {{1}}, [](X x) { return normal(1, 0.5, {3, 7}, x[0].options()); });
  add("randint", {{1}}, [](X x) { return randint(-5, 9, {4, 5}, x[0].device()); });
  add("randperm", {{1}}, [](X x) { return randperm(50, x[0].device()); });
  add("bernoulli", {unit({4, 5})}, [](X x) { return bernoulli(x[0]); });
  add("uniform_", {{4, 5}}, [](X x) { return x[0].clone().uniform_(-2, 3); });
  add("normal_", {{4, 5}}, [](X x) { return x[0].clone().normal_(1, 0.5); });
  add("bernoulli_", {{4, 5}}, [](X x) { return x[0].clone().bernoulli_(0.3); });
}

static void add_conversions(CaseList& cases) {
  cases.add("clone", {{3, 5}}, [](X x) { return x[0].clone(); }, "x[0].clone()").on(all_types).keeps_layout();
  cases.add("contiguous", {{3, 5}}, [](X x) { return x[0].contiguous(); }, "x[0].contiguous()").on(all_types);
  cases.add("contiguous.channels_last", {{2, 3, 2, 4}},
            [](X x) { return x[0].contiguous(MemoryFormat::channels_last); }, "x[0].clone()").on(all_types);
  cases.add("to.float", {{3, 5}}, [](X x) { return x[0].to(kFloat); }, "x[0].to(torch.float32)").on(all_types)
      .gives(kFloat);
  cases.add("to.double", {{3, 5}}, [](X x) { return x[0].to(kDouble); }, "x[0].to(torch.float64)").on(all_types)
      .gives(kDouble);
  cases.add("to.half", {{3, 5}}, [](X x) { return x[0].to(kHalf).to(kFloat); }, "x[0].to(torch.float32)")
      .on(all_types).gives(kFloat);
  cases.add("to.bfloat16", {{3, 5}}, [](X x) { return x[0].to(kBFloat16).to(kFloat); }, "x[0].to(torch.float32)")
      .on(all_types).gives(kFloat);
  cases.add("to.long", {{3, 5}}, [](X x) { return x[0].to(kLong); }, "x[0].to(torch.int64)").on(all_types)
      .differentiable(0);
  cases.add("to.int", {{3, 5}}, [](X x) { return x[0].to(kInt); }, "x[0].to(torch.int32)").on(all_types)
      .differentiable(0);
  cases.add("to.byte", {positive({3, 5})}, [](X x) { return x[0].to(kByte); }, "x[0].to(torch.uint8)").on(all_types)
      .differentiable(0);
  cases.add("to.bool", {ties({3, 5})}, [](X x) { return x[0].to(kBool); }, "x[0].to(torch.bool)").on(all_types)
      .differentiable(0);
  cases.add("to.rounding", {{3, 5}}, [](X x) { return (x[0].to(kDouble) / 3).to(kFloat).to(kDouble); },
            "(x[0].double() / 3).float().double()").differentiable(0).gives(kDouble);
}

void add_creation(CaseList& cases) {
  add_constants(cases);
  add_random(cases);
  add_conversions(cases);
}

}  // namespace gradus::op_cases
