// Wrong calls of element-wise functions, activations, reductions, sorting and sampling.
#include <limits>

#include "wrong_calls.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

Tensor b(IntArrayRef size) { return ones(size, kBool); }
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

// Tables: one call a line.
// clang-format off
TEST_CASE("wrong shapes of element-wise functions, reductions and sorts are ShapeErrors") {
  check_calls<ShapeError>({
      {"fmod", {"(2, 3)", "(4,)"}, [] { fmod(f({2, 3}), f({4})); }},
      {"remainder", {"(2, 3)", "(4,)"}, [] { remainder(f({2, 3}), f({4})); }},
      {"atan2", {"(2,)", "(3,)"}, [] { atan2(f({2}), f({3})); }},
      {"add", {"(2, 3)", "(4,)"}, [] { f({2, 3}).add(f({4})); }},
      {"eq", {"(2, 3)", "(4,)"}, [] { f({2, 3}).eq(f({4})); }},
      {"fmod", {"(2, 3)", "(4,)"}, [] { f({2, 3}).fmod(f({4})); }},
      {"where", {"(2, 3)", "(4,)"}, [] { f({2, 3}).where(b({2, 3}), f({4})); }},
      {"maximum", {"(2,)", "(3,)"}, [] { maximum(f({2}), f({3})); }},
      {"lerp", {"(2, 3)", "(4,)"}, [] { lerp(f({4}), f({2, 3}), 0.5); }},
      {"addcmul", {"(2, 3)", "(4,)"}, [] { addcmul(f({3}), f({2, 3}), f({4})); }},
      {"addcdiv", {"(2, 3)", "(4,)"}, [] { addcdiv(f({4}), f({2, 3}), f({3})); }},
      {"bitwise_and", {"(2,)", "(3,)"}, [] { b({2}) & b({3}); }},
      {"logical_xor", {"(2,)", "(3,)"}, [] { logical_xor(f({2}), f({3})); }},
      {"fmod_", {"(2,)", "(3, 2)"}, [] { f({2}).fmod_(f({3, 2})); }},
      {"pow_", {"(2,)", "(3, 2)"}, [] { f({2}).pow_(f({3, 2})); }},
      {"lerp_", {"(2,)", "(3, 2)"}, [] { f({2}).lerp_(f({3, 2}), 0.5); }},
      {"addcmul_", {"(2,)", "(3, 2)"}, [] { f({2}).addcmul_(f({3, 2}), f({2})); }},
      {"exp_", {"(2, 3)", "expand"}, [] { f({1, 3}).expand({2, 3}).exp_(); }},
      {"prelu", {"(2, 3, 4)", "(4,)", "3 channels"}, [] { prelu(f({2, 3, 4}), f({4})); }},
      {"prelu", {"(3, 1)"}, [] { prelu(f({2, 3}), f({3, 1})); }},
      {"glu", {"(2, 3)", "1"}, [] { glu(f({2, 3})); }},
      {"glu", {"scalar"}, [] { glu(f({})); }},
      {"amax", {"(0, 3)"}, [] { amax(f({0, 3}), {0}); }},
      {"amin", {"(2, 0)"}, [] { f({2, 0}).amin(); }},
      {"norm", {"(0, 3)"}, [] { norm(f({0, 3}), INFINITY, {0}); }},
      {"median", {"(0,)"}, [] { median(f({0})); }},
      {"median", {"(3, 0)", "1"}, [] { median(f({3, 0}), 1); }},
      {"multinomial", {"(2, 3, 4)"}, [] { multinomial(f({2, 3, 4}), 1); }},
      {"multinomial", {"(2, 0)"}, [] { multinomial(f({2, 0}), 1, true); }},
  });
}

TEST_CASE("wrong element types of element-wise functions and reductions are DTypeErrors") {
  check_calls<DTypeError>({
      {"square", {"bool"}, [] { square(b({2})); }},
      {"floor", {"bool"}, [] { floor(b({2})); }},
      {"sign", {"bool"}, [] { sign(b({2})); }},
      {"bitwise_and", {"float32"}, [] { f({2}) & f({2}); }},
      {"bitwise_or", {"float32"}, [] { i({2}) | 0.5; }},
      {"bitwise_xor", {"float32"}, [] { i({2}) ^ f({2}); }},
      {"bitwise_not", {"float32"}, [] { bitwise_not(f({2})); }},
      {"exp_", {"float32", "int64"}, [] { i({2}).exp_(); }},
      {"silu_", {"float32", "int64"}, [] { silu_(i({2})); }},
      {"fmod_", {"float32", "int64"}, [] { i({2}).fmod_(0.5); }},
      {"addcdiv_", {"float32", "int64"}, [] { i({2}).addcdiv_(i({2}), i({2})); }},
      {"var", {"int64"}, [] { i({2}).var(); }},
      {"std", {"int64"}, [] { i({2}).std({0}); }},
      {"var_mean", {"int64"}, [] { var_mean(i({2})); }},
      {"norm", {"int64"}, [] { norm(i({2})); }},
      {"multinomial", {"int64"}, [] { multinomial(i({2}), 1); }},
  });
}

TEST_CASE("wrong dimensions of reductions and sorts are IndexErrors") {
  check_calls<IndexError>({
      {"amax", {"2"}, [] { amax(f({3, 2}), {2}); }},
      {"var", {"-3"}, [] { f({3, 2}).var({-3}); }},
      {"std", {"4"}, [] { f({3, 2}).std({0, 4}); }},
      {"norm", {"2"}, [] { norm(f({3, 2}), 2, {2}); }},
      {"logsumexp", {"5"}, [] { logsumexp(f({3, 2}), {5}); }},
      {"prod", {"2"}, [] { prod(f({3, 2}), 2); }},
      {"cumsum", {"2"}, [] { cumsum(f({3, 2}), 2); }},
      {"cumprod", {"-3"}, [] { cumprod(f({3, 2}), -3); }},
      {"all", {"2"}, [] { all(f({3, 2}), 2); }},
      {"any", {"7"}, [] { f({3, 2}).any(7); }},
      {"count_nonzero", {"2"}, [] { count_nonzero(f({3, 2}), 2); }},
      {"argmin", {"2"}, [] { argmin(f({3, 2}), 2); }},
      {"sort", {"2"}, [] { sort(f({3, 2}), 2); }},
      {"argsort", {"-3"}, [] { argsort(f({3, 2}), -3); }},
      {"topk", {"4", "(2, 3)", "3"}, [] { topk(f({2, 3}), 4); }},
      {"topk", {"-1"}, [] { topk(f({2, 3}), -1); }},
      {"kthvalue", {"0"}, [] { kthvalue(f({2, 3}), 0); }},
      {"kthvalue", {"4", "(2, 3)"}, [] { kthvalue(f({2, 3}), 4); }},
      {"median", {"2"}, [] { median(f({3, 2}), 2); }},
      {"glu", {"3"}, [] { glu(f({2, 2}), 3); }},
      {"softmin", {"2"}, [] { softmin(f({2, 2}), 2); }},
  });
}

TEST_CASE("wrong options of element-wise functions, reductions and samples are ValueErrors") {
  check_calls<ValueError>({
      {"fmod", {"0"}, [] { fmod(i({2}), 0); }},
      {"remainder", {"0"}, [] { i({2}).remainder(0); }},
      {"remainder_", {"0"}, [] { i({2}).remainder_(0); }},
      {"pow_", {"negative"}, [] { i({2}).pow_(-1); }},
      {"gelu", {"'exact'", "'tanh'"}, [] { gelu(f({2}), "exact"); }},
      {"celu", {"alpha"}, [] { celu(f({2}), 0); }},
      {"softplus", {"beta"}, [] { softplus(f({2}), 0); }},
      {"hardtanh", {"2", "1"}, [] { hardtanh(f({2}), 2, 1); }},
      {"hardtanh_", {"2", "1"}, [] { hardtanh_(f({2}), 2, 1); }},
      {"softshrink", {"-1"}, [] { softshrink(f({2}), -1); }},
      {"rrelu", {"0.5", "0.25"}, [] { rrelu(f({2}), 0.5, 0.25, true); }},
      {"norm", {"NaN"}, [] { norm(f({2}), kNaN); }},
      {"clamp_", {"bound"}, [] { f({2}).clamp_({}, {}); }},
      {"multinomial", {"0"}, [] { multinomial(f({3}), 0); }},
      {"multinomial", {"4", "3"}, [] { multinomial(f({3}), 4); }},
      {"multinomial", {"negative"}, [] { multinomial(-f({3}), 1); }},
      {"multinomial", {"finite"}, [] { multinomial(f({3}) / 0, 1); }},
      {"multinomial", {"above 0"}, [] { multinomial(f({3}) * 0, 1, true); }},
      {"multinomial", {"2", "above 0"}, [] { multinomial(tensor({1., 0., 0.}), 2); }},
  });
}

TEST_CASE("writing in place into a leaf that requires gradients is an AutogradError") {
  const auto leaf = [] { return ones({2}, requires_grad()); };
  check_calls<AutogradError>({
      {"exp_", {}, [&] { leaf().exp_(); }},
      {"fmod_", {}, [&] { leaf().fmod_(2); }},
      {"pow_", {}, [&] { leaf().pow_(2); }},
      {"lerp_", {}, [&] { leaf().lerp_(f({2}), 0.5); }},
      {"addcmul_", {}, [&] { leaf().addcmul_(f({2}), f({2})); }},
      {"silu_", {}, [&] { silu_(leaf()); }},
      {"threshold_", {}, [&] { threshold_(leaf(), 0, 1); }},
  });
}

// clang-format on
TEST_CASE("undefined tensors in element-wise functions, reductions and sorts are errors, not crashes") {
  const Tensor none;
  CHECK_THROWS_AS(sin(none), Error);
  CHECK_THROWS_AS(fmod(none, f({2})), Error);
  CHECK_THROWS_AS(fmod(none, 2), Error);
  CHECK_THROWS_AS(remainder(f({2}), none), Error);
  CHECK_THROWS_AS(none & b({2}), Error);
  CHECK_THROWS_AS(lerp(none, f({2}), 0.5), Error);
  CHECK_THROWS_AS(addcmul(f({2}), none, f({2})), Error);
  CHECK_THROWS_AS(f({2}).lerp_(none, 0.5), Error);
  CHECK_THROWS_AS(silu(none), Error);
  CHECK_THROWS_AS(prelu(f({2}), none), Error);
  CHECK_THROWS_AS(glu(none), Error);
  CHECK_THROWS_AS(none.var(), Error);
  CHECK_THROWS_AS(none.norm(), Error);
  CHECK_THROWS_AS(none.prod(), Error);
  CHECK_THROWS_AS(none.cumsum(0), Error);
  CHECK_THROWS_AS(none.sort(), Error);
  CHECK_THROWS_AS(none.topk(1), Error);
  CHECK_THROWS_AS(none.median(), Error);
  CHECK_THROWS_AS(_unique2(none), Error);
  CHECK_THROWS_AS(multinomial(none, 1), Error);
  still_healthy();
}
