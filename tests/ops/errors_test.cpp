// Wrong calls: each throws the right kind of error, names its operator and both sides, and leaves the process healthy.
#include "wrong_calls.h"

using namespace gradus;
using namespace gradus::op_testing;

// Tables: one call a line.
// clang-format off
TEST_CASE("wrong shapes are ShapeErrors") {
  check_calls<ShapeError>({
      {"add", {"(2, 3)", "(4,)"}, [] { f({2, 3}) + f({4}); }},
      {"mul", {"(2, 3)", "(3, 2)"}, [] { mul(f({2, 3}), f({3, 2})); }},
      {"lt", {"(2,)", "(3,)"}, [] { f({2}) < f({3}); }},
      {"where", {"(2, 3)", "(4,)"}, [] { where(f({4}) > 0, f({2, 3}), 0.0); }},
      {"add_", {"(2, 3)", "(2, 2, 3)"}, [] { f({2, 3}).add_(f({2, 2, 3})); }},
      {"copy_", {"(2, 3)", "(4,)"}, [] { f({2, 3}).copy_(f({4})); }},
      {"mul_", {"(2, 3)", "expand"}, [] { f({1, 3}).expand({2, 3}).mul_(2); }},
      {"matmul", {"(2, 3)", "(4, 5)"}, [] { matmul(f({2, 3}), f({4, 5})); }},
      {"matmul", {"()", "(3,)"}, [] { matmul(f({}), f({3})); }},
      {"matmul", {"(2,)", "(5,)"}, [] { matmul(f({2, 3, 4}), f({5, 4, 6})); }},
      {"mm", {"(2, 3, 4)"}, [] { mm(f({2, 3, 4}), f({4, 2})); }},
      {"linear", {"3", "(2, 4)"}, [] { linear(f({2, 4}), f({5, 3})); }},
      {"linear", {"(5, 4)", "(4,)"}, [] { linear(f({2, 4}), f({5, 4}), f({4})); }},
      {"conv2d", {"3", "(8, 4, 32, 32)"}, [] { conv2d(f({8, 4, 32, 32}), f({5, 3, 3, 3})); }},
      {"conv2d", {"(32, 32)"}, [] { conv2d(f({32, 32}), f({5, 4, 3, 3})); }},
      {"conv2d", {"5", "(1, 1, 3, 3)"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 5, 5})); }},
      {"conv2d", {"(2,)", "(5, 3, 3, 3)"}, [] { conv2d(f({1, 3, 5, 5}), f({5, 3, 3, 3}), f({2})); }},
      {"conv2d", {"groups", "2"}, [] { conv2d(f({1, 4, 5, 5}), f({5, 2, 3, 3}), {}, 1, 0, 1, 2); }},
      {"conv2d_relu", {"3", "(8, 4, 32, 32)"}, [] { conv2d_relu(f({8, 4, 32, 32}), f({5, 3, 3, 3})); }},
      {"max_pool2d", {"(1, 1, 3, 3)"}, [] { max_pool2d(f({1, 1, 3, 3}), 5); }},
      {"max_pool2d", {"(3, 3)"}, [] { max_pool2d(f({3, 3}), 2); }},
      {"cross_entropy", {"(4, 5)", "(3,)"}, [] { cross_entropy(f({4, 5}), i({3})); }},
      {"nll_loss", {"(4, 5)", "(4, 1)"}, [] { nll_loss(f({4, 5}), i({4, 1})); }},
      {"rgb_to_grayscale", {"(2, 4, 5, 5)"}, [] { rgb_to_grayscale(f({2, 4, 5, 5})); }},
      {"view", {"(5,)", "(2, 3)"}, [] { f({2, 3}).view({5}); }},
      {"view", {"(3, 2)"}, [] { f({2, 3}).t().view({6}); }},
      {"view", {"-2"}, [] { f({2, 3}).view({-2, 3}); }},
      {"reshape", {"(4, -1)", "(2, 3)"}, [] { f({2, 3}).reshape({4, -1}); }},
      {"reshape", {"-1"}, [] { f({2, 3}).reshape({-1, -1}); }},
      {"expand", {"(2, 3)", "(2, 4)"}, [] { f({2, 3}).expand({2, 4}); }},
      {"expand", {"(2, 3)", "(3,)"}, [] { f({2, 3}).expand({3}); }},
      {"permute", {"(2, 3)"}, [] { f({2, 3}).permute({0}); }},
      {"cat", {"(2, 3)", "(2, 4)"}, [] { cat({f({2, 3}), f({2, 4})}); }},
      {"stack", {"(2, 3)", "(3, 2)"}, [] { stack({f({2, 3}), f({3, 2})}); }},
      {"max", {"(0, 3)"}, [] { f({0, 3}).max(); }},
      {"argmax", {"(2, 0)"}, [] { f({2, 0}).argmax(1); }},
      {"item", {"(2, 3)"}, [] { f({2, 3}).item<float>(); }},
      {"as_strided", {"(9,)"}, [] { f({2, 3}).as_strided({9}, {1}); }},
      {"as_strided", {"(2,)"}, [] { f({2, 3}).as_strided({2}, {-1}, 3); }},
  });
}

TEST_CASE("wrong element types are DTypeErrors") {
  check_calls<DTypeError>({
      {"matmul", {"float32", "int64"}, [] { matmul(f({2, 2}), i({2, 2})); }},
      {"linear", {"float32", "float64"}, [] { linear(f({2, 3}), ones({4, 3}, kDouble)); }},
      {"conv2d", {"float32", "float64"}, [] { conv2d(f({1, 1, 3, 3}), ones({1, 1, 3, 3}, kDouble)); }},
      {"conv2d", {"int64"}, [] { conv2d(i({1, 1, 3, 3}), i({1, 1, 3, 3})); }},
      {"mean", {"int64"}, [] { i({2, 2}).mean(); }},
      {"softmax", {"int64"}, [] { softmax(i({2, 2}), 1); }},
      {"cross_entropy", {"float32"}, [] { cross_entropy(f({2, 2}), f({2})); }},
      {"where", {"float32"}, [] { where(f({2}), f({2}), f({2})); }},
      {"neg", {"bool"}, [] { neg(f({2}) > 0); }},
      {"sub", {"bool"}, [] { (f({2}) > 0) - (f({2}) > 0); }},
      {"add_", {"float32", "int64"}, [] { i({2}).add_(f({2})); }},
      {"mul_", {"int64"}, [] { i({2}).mul_(0.5); }},
      {"div_", {"int64"}, [] { i({2}).div_(i({2})); }},
      {"max_pool2d", {"bool"}, [] { max_pool2d(f({1, 1, 2, 2}) > 0, 2); }},
      {"rgb_to_grayscale", {"uint8"}, [] { rgb_to_grayscale(ones({3, 2, 2}, kByte)); }},
      {"dropout", {"int64"}, [] { dropout(i({3}), 0.5); }},
  });
}

TEST_CASE("wrong indices and dimensions are IndexErrors") {
  check_calls<IndexError>({
      {"select", {"3", "(3, 2)"}, [] { f({3, 2}).select(0, 3); }},
      {"select", {"-4"}, [] { f({3, 2}).select(0, -4); }},
      {"index", {"5"}, [] { f({3, 2}).index({5}); }},
      {"index", {"3", "(3, 2)"}, [] { f({3, 2}).index({0, 0, 0}); }},
      {"sum", {"2"}, [] { f({3, 2}).sum(IntArrayRef{2}); }},
      {"softmax", {"-3"}, [] { softmax(f({3, 2}), -3); }},
      {"transpose", {"2"}, [] { f({3, 2}).transpose(0, 2); }},
      {"cat", {"2"}, [] { cat({f({3, 2}), f({3, 2})}, 2); }},
      {"unsqueeze", {"3"}, [] { f({3, 2}).unsqueeze(3); }},
      {"flatten", {"4"}, [] { f({3, 2}).flatten(0, 4); }},
      {"narrow", {"2", "4"}, [] { f({3, 4}).narrow(1, 2, 4); }},
      {"cross_entropy", {"7", "5"}, [] { cross_entropy(f({2, 5}), full({2}, 7)); }},
      {"nll_loss", {"-1", "5"}, [] { nll_loss(f({2, 5}), full({2}, -1)); }},
  });
}

TEST_CASE("wrong options are ValueErrors") {
  check_calls<ValueError>({
      {"conv2d", {"stride", "0"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 1, 1}), {}, 0); }},
      {"conv2d", {"padding", "-1"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 1, 1}), {}, 1, -1); }},
      {"conv2d", {"dilation", "0"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 1, 1}), {}, 1, 0, 0); }},
      {"conv2d", {"groups", "0"}, [] { conv2d(f({1, 1, 3, 3}), f({1, 1, 1, 1}), {}, 1, 0, 1, 0); }},
      {"max_pool2d", {"kernel", "0"}, [] { max_pool2d(f({1, 1, 3, 3}), 0); }},
      {"max_pool2d", {"padding", "2"}, [] { max_pool2d(f({1, 1, 3, 3}), 2, 2, 2); }},
      {"dropout", {"1.5"}, [] { dropout(f({3}), 1.5); }},
      {"dropout", {"-0.5"}, [] { dropout(f({3}), -0.5); }},
      {"arange", {"0"}, [] { arange(0, 3, 0); }},
      {"slice", {"0"}, [] { f({3}).slice(0, 0, 3, 0); }},
      {"slice", {"-1"}, [] { f({3}).slice(0, 0, 3, -1); }},
      {"cat", {}, [] { cat({}); }},
      {"stack", {}, [] { stack({}); }},
      {"randint", {"3", "2"}, [] { randint(3, 2, {4}); }},
      {"clamp", {}, [] { clamp(f({3}), {}, {}); }},
      {"bernoulli_", {"2"}, [] { f({3}).bernoulli_(2); }},
  });
}

// clang-format on
TEST_CASE("undefined tensors are errors, not crashes") {
  const Tensor none;
  CHECK_THROWS_AS(relu(none), Error);
  CHECK_THROWS_AS(none + f({2}), Error);
  CHECK_THROWS_AS(f({2}) + none, Error);
  CHECK_THROWS_AS(f({2}) * none, Error);
  CHECK_THROWS_AS(f({2}).add_(none), Error);
  CHECK_THROWS_AS(f({2}).copy_(none), Error);
  CHECK_THROWS_AS(matmul(none, f({2, 2})), Error);
  CHECK_THROWS_AS(matmul(f({2, 2}), none), Error);
  CHECK_THROWS_AS(linear(f({2, 2}), none), Error);
  CHECK_THROWS_AS(conv2d(none, f({1, 1, 1, 1})), Error);
  CHECK_THROWS_AS(conv2d(f({1, 1, 1, 1}), none), Error);
  CHECK_THROWS_AS(max_pool2d(none, 2), Error);
  CHECK_THROWS_AS(cross_entropy(f({2, 2}), none), Error);
  CHECK_THROWS_AS(where(none, f({2}), f({2})), Error);
  CHECK_THROWS_AS(where(f({2}) > 0, none, f({2})), Error);
  CHECK_THROWS_AS(none.sum(), Error);
  CHECK_THROWS_AS(none.view({1}), Error);
  CHECK_THROWS_AS(none[0], Error);
  CHECK_THROWS_AS(cat({f({2}), none}), Error);
  CHECK_THROWS_AS(none.item<float>(), Error);
  CHECK_THROWS_AS(none.sizes(), Error);
  CHECK_THROWS_AS(none.backward(), Error);
  CHECK_THROWS_AS(zeros_like(none), Error);
  CHECK_NOTHROW(none.str());
  still_healthy();
}

TEST_CASE("wrong sizes of new tensors are errors") {
  CHECK_THROWS_AS(zeros({-1}), ShapeError);
  CHECK_THROWS_AS(zeros({int64_t{1} << 40, int64_t{1} << 40}), Error);
  CHECK_THROWS_AS(zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  CHECK_THROWS_AS(f({2}).reshape({1, 1, 1, 1, 1, 1, 1, 1, 2}), ShapeError);
  CHECK_THROWS_AS(f({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0), ShapeError);
  CHECK_THROWS_AS(tensor({{1., 2.}, {3.}}), ShapeError);
  still_healthy();
}

TEST_CASE("an operator without its device says so") {
  if (find_runtime(DeviceType::cuda)) return;
  CHECK_THROWS_AS(zeros({2}, kCUDA), DeviceError);
  CHECK_THROWS_AS(f({2}).cuda(), DeviceError);
  still_healthy();
}

TEST_CASE("tensors of two devices do not mix") {
  if (!find_runtime(DeviceType::cuda)) return;
  const Tensor here = f({2, 2}), there = f({2, 2}).cuda();
  CHECK_THROWS_WITH(here + there, test::contains("cpu") && test::contains("cuda:0"));
  CHECK_THROWS_AS(matmul(there, here), DeviceError);
  CHECK_THROWS_AS(linear(there, here), DeviceError);
  CHECK_THROWS_AS(cat({here, there}), DeviceError);
  still_healthy();
}
