// A write with an invalid index changes no element. The messages of such errors are tested in tests/wrong_calls.
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

Tensor index(std::initializer_list<int64_t> numbers) { return tensor(std::vector<int64_t>(numbers)); }
Tensor f(IntArrayRef size) { return ones(size); }
Tensor yes(IntArrayRef size) { return ones(size, kBool); }

}  // namespace

TEST_CASE("a bad index writes nothing") {
  for (const std::string& backend_name : backend_names()) {
    if (!device_of(backend_name).is_cpu()) continue;
    const BackendGuard guard(backend_name);
    const Tensor x = zeros({3, 2});
    CHECK_THROWS_AS(x.index_add_(0, index({0, 3}), f({2, 2})), IndexError);
    CHECK_THROWS_AS(x.scatter_(0, tensor({{0, 1}, {-1, 0}}), 1), IndexError);
    CHECK_THROWS_AS(x.index_put_({index({0, 3})}, 1), IndexError);
    CHECK(x.equal(zeros({3, 2})));
  }
}

TEST_CASE("indexed writes follow the rules of in-place operators") {
  const Tensor leaf = ones({3, 2}, requires_grad());
  CHECK_THROWS_AS(leaf.index_put_({index({0})}, 1), AutogradError);
  CHECK_THROWS_AS(leaf.masked_fill_(yes({3, 2}), 1), AutogradError);
  CHECK_THROWS_AS(leaf.index_add_(0, index({0}), f({1, 2})), AutogradError);
  CHECK_THROWS_AS(leaf[0].scatter_(0, index({0}), 1), AutogradError);
  CHECK_THROWS_AS(f({1, 2}).expand({3, 2}).index_put_({index({0})}, 1), ShapeError);
  {
    const NoGradGuard no_grad;
    leaf.index_put_({index({0})}, 5);
  }
  CHECK(leaf.detach().equal(tensor({{5., 5.}, {1., 1.}, {1., 1.}})));
  const Tensor saved = exp(leaf), loss = saved.sum();
  saved.index_put_({index({1})}, 0);
  CHECK_THROWS_AS(loss.backward(), AutogradError);
}
