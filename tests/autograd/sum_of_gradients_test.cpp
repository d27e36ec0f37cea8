// A backward that takes the gradient of its output as two summands (BackwardOfSum) gets both of them unless something
// else needs their sum. Backends of GPUs have such a kernel; here, a backend of the CPU claims to have it.
#include <string_view>

#include <gradus/autograd/autograd.h>
#include <gradus/core/backend_interceptor.h>
#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>

namespace sum_of_gradients_test {

using namespace gradus;

class SummingBackend final : public BackendInterceptor<SummingBackend> {
 public:
  std::string_view name() const override { return "summing"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
  bool can(Fusion fusion) const override { return fusion == Fusion::sum_of_gradients; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    if (std::string_view(name) == "normalize_backward") {
      (count(arguments), ...);
      (remember(arguments), ...);
    }
    (backend("naive").*method)(arguments...);
  }
  int in_parts = 0, whole = 0;  // calls of normalize_backward with and without a second summand
  bool overwrites = false;      // whether the last call wrote the residual's gradient where dy was

 private:
  void count(const NormalizeBackwardArgs& args) { ++(args.addend.data ? in_parts : whole); }
  void remember(const NormalizeBackwardArgs& args) { overwrites = args.dresidual.data == args.dy.data; }
  template <class Other>
  void count(const Other&) {}
  template <class Other>
  void remember(const Other&) {}
};

struct Block {
  Tensor x, weight, bias, residual, y, z;
  explicit Block(int uses) {
    manual_seed(5);
    x = randn({4, 3, 5}, dtype(kDouble).requires_grad(true)), weight = rand({3}, dtype(kDouble).requires_grad(true));
    bias = randn({3}, dtype(kDouble).requires_grad(true)),
    residual = randn({4, 3, 5}, dtype(kDouble).requires_grad(true));
    y = batch_norm_relu(x, {}, {}, weight, bias, true, 0.1, 1e-5, residual);
    z = (y * 3).sum() + (uses > 1 ? y.square().sum() : zeros({}, kDouble)) +
        (uses > 2 ? y.exp().sum() : zeros({}, kDouble));
  }
  TensorList leaves() const { return {x, weight, bias, residual}; }
};

void check_equal(const TensorList& found, const TensorList& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].allclose(wanted[i], 1e-10, 1e-10));
}

TensorList leaf_gradients(const Block& block) {
  TensorList gradients;
  for (const Tensor& leaf : block.leaves()) gradients.push_back(leaf.grad());
  return gradients;
}

TEST_CASE("a backward of a sum gets two summands, and the sum where it is used elsewhere, too") {
  SummingBackend summing;
  for (const int uses : {1, 2, 3}) {
    CAPTURE(uses);
    TensorList wanted, captured;
    {
      const BackendGuard plain("naive");
      const Block block(uses);
      captured = autograd::grad({block.z}, {block.y, block.x}, {}, true);
      block.z.backward();
      wanted = leaf_gradients(block);
    }
    const BackendGuard guard(summing);
    const auto calls_in_parts = [&](const auto& differentiate) {
      summing.in_parts = summing.whole = 0;
      const Block block(uses);
      differentiate(block);
      return summing.in_parts;
    };
    CHECK(calls_in_parts([&](const Block& block) {
            block.z.backward();
            check_equal(leaf_gradients(block), wanted);
          }) == (uses > 1 ? 1 : 0));
    CHECK(summing.in_parts + summing.whole == 1);
    CHECK(calls_in_parts([&](const Block& block) {  // the caller wants the gradient of y
            check_equal(autograd::grad({block.z}, {block.y, block.x}), captured);
          }) == 0);
    CHECK(calls_in_parts([&](const Block& block) {
            block.y.retain_grad();
            block.z.backward();
            check_equal(leaf_gradients(block), wanted);
            check_equal({block.y.grad()}, {captured[0]});
          }) == 0);
    CHECK(calls_in_parts([&](const Block& block) {
            Tensor seen;
            block.y.register_hook([&](const Tensor& dy) { return seen = dy, dy * 2; });
            block.z.backward();
            check_equal({seen}, {captured[0]});
            for (size_t i = 0; i < wanted.size(); ++i) check_equal({leaf_gradients(block)[i]}, {wanted[i] * 2});
          }) == 0);
    CHECK(calls_in_parts([&](const Block& block) {
            const TensorList gradients = autograd::grad({block.z}, block.leaves(), {}, true, true);
            check_equal(gradients, wanted);
            CHECK(gradients[0].requires_grad());
          }) == 0);
  }
}

TEST_CASE("a residual's gradient replaces the incoming gradient if nothing else holds it") {
  SummingBackend summing;
  const BackendGuard guard(summing);
  const Block alone(1);
  alone.z.backward();
  CHECK(summing.overwrites);
  const Block block(1);
  const Tensor dy = ones({4, 3, 5}, kDouble);
  block.y.backward(dy);
  CHECK_FALSE(summing.overwrites);
  CHECK(dy.equal(ones({4, 3, 5}, kDouble)));
}

}  // namespace sum_of_gradients_test
