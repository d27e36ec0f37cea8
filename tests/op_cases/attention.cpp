// Embedding and attention.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_embedding(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch);
  };
  add("embedding", {{5, 3}, index({2, 4}, 5)}, [](X x) { return embedding(x[0], x[1]); }, "F.embedding(x[1], x[0])");
  add("embedding.vector", {{5, 3}, index({4}, 5)}, [](X x) { return embedding(x[0], x[1]); }, "F.embedding(x[1], x[0])");
  add("embedding.scalar", {{5, 3}, index({}, 5)}, [](X x) { return embedding(x[0], x[1]); }, "F.embedding(x[1], x[0])");
  cases.add("embedding.empty", {{5, 3}, index({2, 0}, 5)}, [](X x) { return embedding(x[0], x[1]); });
  // The gradient of the padding row is defined as 0, which finite differences cannot find; they skip inputs with ties.
  add("embedding.padding", {ties({3, 4}), index({3, 4}, 3)}, [](X x) { return embedding(x[0], x[1], 1); },
      "F.embedding(x[1], x[0], padding_idx=1)");
  // Finite differences do not include the division of a gradient by the number of look-ups either.
  add("embedding.scale_grad_by_freq", {ties({3, 4}), index({3, 4}, 3)},
      [](X x) { return embedding(x[0], x[1], 2, true); },
      "F.embedding(x[1], x[0], padding_idx=2, scale_grad_by_freq=True)").differentiable(1);
  cases.add("embedding.large", {{50, 96}, index({20, 40}, 50)}, [](X x) { return embedding(x[0], x[1]); });
  add("embedding_renorm_", {{5, 3}, index({2, 2}, 5)}, [](X x) {
    const NoGradGuard no_grad;
    return embedding_renorm_(x[0].clone(), x[1], 1.5);
  }, "(lambda w: (torch.embedding_renorm_(w, x[1].unique(), 1.5, 2), w)[1])(x[0].detach().clone())").differentiable(0);
}

// PyTorch 1.13 has no public function for this, so that the golden call is its formula.
static void add_attention_proper(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, Tensor (*run)(X), const char* torch) -> OpCase& {
    return cases.add(name, std::move(inputs), run, torch);
  };
  const char* op = "scaled_dot_product_attention";
  const auto called = [&](const char* variant) { return std::string(op) + variant; };
  const std::vector<Input> qkv = {{2, 3, 4}, {2, 5, 4}, {2, 5, 6}};
  add(called("").c_str(), qkv, [](X x) { return scaled_dot_product_attention(x[0], x[1], x[2]); },
      "((x[0] @ x[1].mT) / 2).softmax(-1) @ x[2]");
  add(called(".heads").c_str(), {{2, 2, 3, 4}, {2, 2, 3, 4}, {2, 2, 3, 4}},
      [](X x) { return scaled_dot_product_attention(x[0], x[1], x[2]); }, "((x[0] @ x[1].mT) / 2).softmax(-1) @ x[2]");
  add(called(".scale").c_str(), qkv,
      [](X x) { return scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, false, 0.25); },
      "((x[0] @ x[1].mT) / 4).softmax(-1) @ x[2]");
  add(called(".mask").c_str(), qkv, [](X x) {
    const Tensor seen = tensor({{true, false, true, true, false},
                                {true, true, true, true, true},
                                {false, false, false, false, true}}, x[0].device());
    return scaled_dot_product_attention(x[0], x[1], x[2], seen);
  }, "((x[0] @ x[1].mT) / 2 + torch.tensor([[0, -float('inf'), 0, 0, -float('inf')], [0, 0, 0, 0, 0], "
     "[-float('inf')] * 4 + [0]])).softmax(-1) @ x[2]");
  std::vector<Input> biased = qkv;
  biased.push_back({3, 5});
  add(called(".added_mask").c_str(), biased, [](X x) { return scaled_dot_product_attention(x[0], x[1], x[2], x[3]); },
      "((x[0] @ x[1].mT) / 2 + x[3]).softmax(-1) @ x[2]");
  add(called(".causal").c_str(), {{2, 4, 4}, {2, 4, 4}, {2, 4, 3}},
      [](X x) { return scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, true); },
      "((x[0] @ x[1].mT) / 2).masked_fill(torch.ones(4, 4).triu(1).bool(), -float('inf')).softmax(-1) @ x[2]");
  add(called(".one_head_for_all").c_str(), {{3, 2, 4}, {5, 4}, {5, 6}},
      [](X x) { return scaled_dot_product_attention(x[0], x[1], x[2]); }, "((x[0] @ x[1].mT) / 2).softmax(-1) @ x[2]");
}

void add_attention(CaseList& cases) {
  add_embedding(cases);
  add_attention_proper(cases);
}

}  // namespace gradus::op_cases
