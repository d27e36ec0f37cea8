// Fused attention compared with the composition of operators that it replaces.
#include <cmath>

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

TEST_CASE("self_attention of a packed tensor equals attention of its parts") {
  manual_seed(5);
  const Tensor packed = random({kQueries, kImages, 3 * kHeads * kSize});
  for (const Tensor& p : {packed.transpose(0, 1), packed}) {
    const TensorList parts = parts_of(p, kHeads);
    const Tensor ours = self_attention(p, kHeads);
    const Tensor wanted = composed(parts[0], parts[1], parts[2], {}).transpose(1, 2).flatten(2);
    CHECK(ours.allclose(wanted, 1e-12, 1e-12));
    check_same(derivatives(ours, {packed}), derivatives(wanted, {packed}));
  }
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
  CHECK(self_attention(packed, kHeads, {}, 1).equal(zeros({kImages, kQueries, kHeads * kSize}, kDouble)));
}
