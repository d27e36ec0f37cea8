// Tensors on two devices: a GPU or a fake device, and the CPU.
#include <gradus/gradus.h>

#include <gradus/tests/autocast/other_device.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;

namespace {

Tensor leaf_on(Device device) { return ones({2}, device).requires_grad_(); }

}  // namespace

TEST_CASE("a gradient is on the device of its tensor") {
  const Device other = other_device();
  const Tensor x = ones({2}).requires_grad_(), moved = x.to(other);
  CHECK(moved.device() == other);
  (moved * 3).sum().backward();
  CHECK(x.grad().device() == kCPU);
  CHECK(x.grad().equal(full({2}, 3.0f)));

  const Tensor w = leaf_on(other), copied = zeros({2});
  copied.copy_(w * 2);
  copied.sum().backward();
  CHECK(w.grad().device() == other);
  CHECK(w.grad().cpu().equal(full({2}, 2.0f)));
  CHECK_THROWS_WITH((w * 2).backward(ones({2})), contains("gradient 0 is on cpu but its tensor on " + other.str()));

  const Tensor y = w * 2;
  y.register_hook([](const Tensor&) { return ones({2}); });
  CHECK_THROWS_WITH(y.sum().backward(),
                    contains("a hook on its output returned a gradient on cpu for a tensor on " + other.str()));
}

TEST_CASE("a number on the CPU may be combined with a tensor on any device") {
  const Device other = other_device();
  const Tensor x = tensor({7.0f, -7.0f}).to(other), two = full({}, 2.0f);
  CHECK(div(x, two, "floor").cpu().equal(tensor({3.0f, -4.0f})));
  CHECK(div(two * 10, x, "trunc").cpu().equal(tensor({2.0f, -2.0f})));
  CHECK(div(x.to(kLong), two.to(kLong), "floor").cpu().equal(tensor({3, -4})));
  CHECK((x * two).device() == other);
  CHECK(x.masked_fill(x < 0, two).cpu().equal(tensor({7.0f, 2.0f})));
  CHECK(x.index({tensor({1})}).cpu().equal(tensor({-7.0f})));
  CHECK(x.index({tensor({false, true})}).cpu().equal(tensor({-7.0f})));
}

TEST_CASE("autocast of a device concerns its tensors alone") {
  const Device other = other_device();
  const Tensor a = ones({2, 2}), b = a.to(other);
  const amp::Autocast autocast(kCUDA);
  CHECK(matmul(a, a).dtype() == kFloat);
  CHECK(matmul(b, b).dtype() == kHalf);
  CHECK(einsum("ij,jk->ik", {a, a}).dtype() == kFloat);
  CHECK(einsum("ij,jk->ik", {b, b}).dtype() == kHalf);
  CHECK(b.to(kHalf).softmax(0).dtype() == kFloat);
  CHECK(b.to(kHalf).sum().dtype() == kFloat);
}
