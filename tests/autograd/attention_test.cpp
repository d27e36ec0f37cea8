// Fused attention compared with the composition of operators that it replaces.
#include <cmath>
#include <optional>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

constexpr int64_t kImages = 2, kHeads = 3, kQueries = 4, kKeys = 5, kSize = 2;

Tensor random(IntArrayRef size) { return (randn(size, kDouble) * 0.7).detach().set_requires_grad(true); }

Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& added) {
  const Tensor scores = matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
  return matmul((added.defined() ? scores + added : scores).softmax(-1), v);
}

// The queries, keys and values in a packed tensor (N, L, 3 H E).
TensorList parts_of(const Tensor& packed, int64_t heads) {
  TensorList parts;
  for (const Tensor& part : chunk(packed, 3, -1))
    parts.push_back(part.unflatten(2, {heads, part.size(2) / heads}).transpose(1, 2));
  return parts;
}

// First and second derivatives of a loss in which every element has a different weight.
TensorList derivatives(const Tensor& y, const TensorList& inputs) {
  const Tensor weights = arange(1, 1 + y.numel(), 1, TensorOptions(kDouble)).view(y.sizes()).cos();
  const Tensor loss = (y * weights).sum();
  TensorList all = autograd::grad({loss}, inputs, {}, /*retain_graph=*/true);
  const TensorList first = autograd::grad({loss}, inputs, {}, true, /*create_graph=*/true);
  Tensor sum = zeros({}, kDouble);
  for (const Tensor& gradient : first) sum = sum + gradient.square().sum();
  all.insert(all.end(), first.begin(), first.end());
  for (const Tensor& gradient : autograd::grad({sum}, inputs)) all.push_back(gradient);
  return all;
}

void check_same(const TensorList& ours, const TensorList& wanted) {
  REQUIRE(ours.size() == wanted.size());
  for (size_t i = 0; i < ours.size(); ++i) CHECK(ours[i].allclose(wanted[i], 1e-9, 1e-11));
}

}  // namespace

TEST_CASE("fused attention has the values and derivatives of its composition") {
  manual_seed(4);
  const Tensor q = random({kImages, kHeads, kQueries, kSize}), k = random({kImages, kHeads, kKeys, kSize});
  const Tensor v = random({kImages, kHeads, kKeys, 3});
  for (const Tensor& mask : {Tensor(), randn({kQueries, kKeys}, kDouble)}) {
    const Tensor ours = scaled_dot_product_attention(q, k, v, mask), wanted = composed(q, k, v, mask);
    CHECK(ours.allclose(wanted, 1e-12, 1e-12));
    check_same(derivatives(ours, {q, k, v}), derivatives(wanted, {q, k, v}));
  }
  const Tensor x = random({kImages, kHeads, kQueries, kSize});  // the same tensor as query, key and value
  check_same(derivatives(scaled_dot_product_attention(x, x, x), {x}), derivatives(composed(x, x, x, {}), {x}));
  const Tensor frozen = k.detach();  // no gradient is wanted for the keys
  check_same(derivatives(scaled_dot_product_attention(q, frozen, v), {q, v}),
             derivatives(composed(q, frozen, v, {}), {q, v}));
}

TEST_CASE("attention of any leading dimensions, masks and scales follows its formula") {
  manual_seed(14);
  constexpr int64_t L = 4, S = 7, E = 3, Ev = 2;
  for (const Shape& lead : {Shape{}, Shape{6}, Shape{5, 6}, Shape{2, 5, 6}})
    for (const bool shares_keys : {false, true})
      for (const std::optional<double> scale : {std::optional<double>(), std::optional<double>(0.3)}) {
        const auto operand = [&](const Shape& before, int64_t rows, int64_t columns) {
          Shape shape = before;
          shape.push_back(rows), shape.push_back(columns);
          return random(shape);
        };
        const Shape of_keys = shares_keys ? Shape{} : lead;
        const Tensor q = operand(lead, L, E), k = operand(of_keys, S, E), v = operand(of_keys, S, Ev);
        Tensor sees = rand({L, S}) > 0.4, sees_key = rand({S}) > 0.4;
        sees.select(1, 2).fill_(true), sees_key[3].fill_(true);  // every query sees a key
        const Tensor causal = ones({L, S}, kBool).tril(), bias = random({L, S}), frozen = bias.detach();
        struct Case {
          const char* name;
          Tensor mask, added;
          bool is_causal = false;
        };
        const auto addend = [](const Tensor& sees) { return where(sees, 0.0, full({}, -INFINITY, kDouble)); };
        for (const Case& one : {Case{"no mask", {}, zeros({L, S}, kDouble)},
                                {"a boolean mask", sees, addend(sees)},
                                {"a mask of keys", sees_key, addend(sees_key)},
                                {"a mask of rows", sees.slice(1, 2, 3), zeros({L, S}, kDouble)},
                                {"an added mask", frozen, frozen},
                                {"an added mask with a gradient", bias, bias},
                                {"an added mask of keys", frozen[0], frozen[0]},
                                {"a causal mask", {}, addend(causal), true}}) {
          INFO(one.name << ", " << to_string(lead) << (shares_keys ? ", one set of keys" : ""));
          const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(E)));
          const Tensor wanted = matmul((matmul(q, k.transpose(-2, -1)) * factor + one.added).softmax(-1), v);
          const Tensor ours = scaled_dot_product_attention(q, k, v, one.mask, 0, one.is_causal, scale);
          REQUIRE(ours.sizes() == wanted.sizes());
          CHECK(ours.allclose(wanted, 1e-10, 1e-11));
          TensorList inputs = {q, k, v};
          if (one.mask.defined() && one.mask.requires_grad()) inputs.push_back(one.mask);
          check_same(derivatives(ours, inputs), derivatives(wanted, inputs));
        }
      }
}

TEST_CASE("self_attention of a packed tensor equals attention of its parts") {
  manual_seed(5);
  const Tensor packed = random({kQueries, kImages, 3 * kHeads * kSize});
  for (const Tensor& p : {packed.transpose(0, 1), packed}) {
    const TensorList parts = parts_of(p, kHeads);
    for (const bool causal : {false, true}) {
      const Tensor later = causal ? full({p.size(1), p.size(1)}, -INFINITY, kDouble).triu(1) : Tensor();
      const Tensor ours = self_attention(p, kHeads, {}, 0, causal);
      const Tensor wanted = composed(parts[0], parts[1], parts[2], later).transpose(1, 2).flatten(2);
      CHECK(ours.allclose(wanted, 1e-12, 1e-12));
      check_same(derivatives(ours, {packed}), derivatives(wanted, {packed}));
    }
  }
  const Tensor all = ones({kQueries, kQueries}, kBool);
  CHECK_THROWS_WITH(self_attention(packed.transpose(0, 1), kHeads, all, 0, true),
                    test::contains("[scaled_dot_product_attention] is_causal already is a mask"));
  CHECK_THROWS_AS(self_attention(packed, 4), ShapeError);
  CHECK_THROWS_AS(self_attention(packed[0], kHeads), ShapeError);
}

TEST_CASE("attention of no sequences, whose products would be large, does nothing") {
  for (const bool with_gradients : {false, true}) {
    const Tensor q = zeros({0, 8, 128, 64}).set_requires_grad(with_gradients);
    const Tensor y = scaled_dot_product_attention(q, q, q);
    CHECK(y.sizes() == Shape({0, 8, 128, 64}));
    if (!with_gradients) continue;
    y.sum().backward();
    CHECK(q.grad().sizes() == q.sizes());
  }
}

TEST_CASE("a query that sees no key has the result 0, and its derivatives are 0") {
  manual_seed(8);
  const Tensor q = random({kImages, kHeads, kQueries, kSize}), k = random({kImages, kHeads, kKeys, kSize});
  const Tensor v = random({kImages, kHeads, kKeys, 3});
  Tensor seen = ones({kQueries, kKeys}, kBool);
  seen[1].zero_();
  const Tensor never = zeros({kQueries, kKeys}, kDouble).masked_fill(~seen, -INFINITY);
  const auto others = [](const Tensor& x) { return cat({x.slice(2, 0, 1), x.slice(2, 2)}, 2); };
  for (const Tensor& mask : {seen, never}) {
    const Tensor y = scaled_dot_product_attention(q, k, v, mask);
    CHECK(y.select(2, 1).equal(zeros({kImages, kHeads, 3}, kDouble)));
    CHECK(others(y).allclose(composed(others(q), k, v, {}), 1e-12, 1e-12));
    check_same(derivatives(others(y), {q, k, v}), derivatives(composed(others(q), k, v, {}), {q, k, v}));
    CHECK(autograd::grad({y.sum()}, {q})[0].select(2, 1).equal(zeros({kImages, kHeads, kSize}, kDouble)));
  }
}

TEST_CASE("under autocast the mask has the type of the scores, as the kernels need it") {
  const Tensor q = randn({kImages, kHeads, kQueries, kSize}).set_requires_grad(true),
               mask = randn({kQueries, kQueries});
  const amp::Autocast autocast(DeviceType::cpu, kBFloat16);
  const Tensor y = scaled_dot_product_attention(q, q, q, mask);
  CHECK(y.dtype() == kBFloat16);
  CHECK(std::string(y.grad_fn()->name()) == "Attention");
  const Tensor half = q.detach().to(kBFloat16);
  CHECK(y.equal(scaled_dot_product_attention(half, half, half, mask.to(kBFloat16))));
}

TEST_CASE("masks that require gradients get them") {
  manual_seed(6);
  const Tensor packed = random({kImages, kQueries, 3 * kHeads * kSize}), mask = random({kQueries, kQueries});
  const TensorList parts = parts_of(packed, kHeads);
  const Tensor wanted = composed(parts[0], parts[1], parts[2], mask).transpose(1, 2).flatten(2);
  check_same(derivatives(self_attention(packed, kHeads, mask), {packed, mask}), derivatives(wanted, {packed, mask}));
}

TEST_CASE("first and second derivatives of attention with dropout use the drawn mask") {
  const Tensor packed = random({kImages, kQueries, 3 * kHeads * kSize});
  const auto loss = [](const TensorList& in) {
    manual_seed(7);
    return TensorList{self_attention(in[0], kHeads, {}, 0.4).square().sum()};
  };
  CHECK(autograd::gradcheck(loss, {packed}));
  CHECK(autograd::gradgradcheck(loss, {packed}));
  manual_seed(7);
  const Tensor once = self_attention(packed, kHeads, {}, 0.4);
  CHECK_FALSE(once.equal(self_attention(packed, kHeads, {}, 0.4)));
  const auto gradient = [&](bool create_graph) {
    return autograd::grad({once.square().sum()}, {packed}, {}, /*retain_graph=*/true, create_graph)[0].detach();
  };
  CHECK(gradient(true).allclose(gradient(false), 1e-12, 1e-14));
  CHECK(self_attention(packed, kHeads, {}, 1).equal(zeros({kImages, kQueries, kHeads * kSize}, kDouble)));
}
