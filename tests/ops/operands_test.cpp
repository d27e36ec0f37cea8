// Operators of two operands, each of which is a tensor or a number.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/core/registry.h>
#include <gradus/graph/recorder.h>
#include <gradus/tests/catch.h>

namespace operands_test {

using namespace gradus;
using test::contains;

TEST_CASE("a number in the place of a tensor gives the same result and gradient, on either side and in place") {
  struct Operator {
    const char* name;
    Tensor (*run)(const Operand& a, const Operand& b);
    const Tensor& (*in_place)(const Tensor& a, const Operand& b);
  };
  using T = const Tensor&;
  using O = const Operand&;
  const std::vector<Operator> operators = {
      {"add", [](O a, O b) { return add(a, b); }, [](T a, O b) -> T { return a.add_(b); }},
      {"sub", [](O a, O b) { return sub(a, b); }, [](T a, O b) -> T { return a.sub_(b); }},
      {"add 3 b", [](O a, O b) { return add(a, b, 3); }, [](T a, O b) -> T { return a.add_(b, 3); }},
      {"sub 3 b", [](O a, O b) { return sub(a, b, 3); }, [](T a, O b) -> T { return a.sub_(b, 3); }},
      {"add -0.5 b", [](O a, O b) { return add(a, b, -0.5); }, [](T a, O b) -> T { return a.add_(b, -0.5); }},
      {"mul", [](O a, O b) { return mul(a, b); }, [](T a, O b) -> T { return a.mul_(b); }},
      {"div", [](O a, O b) { return div(a, b); }, [](T a, O b) -> T { return a.div_(b); }},
      {"trunc(a / b)", [](O a, O b) { return div(a, b, "trunc"); }, [](T a, O b) -> T { return a.div_(b, "trunc"); }},
      {"floor(a / b)", [](O a, O b) { return div(a, b, "floor"); }, [](T a, O b) -> T { return a.div_(b, "floor"); }},
      {"floor_divide", [](O a, O b) { return floor_divide(a, b); }, nullptr},
      {"pow", [](O a, O b) { return pow(a, b); }, [](T a, O b) -> T { return a.pow_(b); }},
      {"maximum", [](O a, O b) { return maximum(a, b); }, nullptr},
      {"minimum", [](O a, O b) { return minimum(a, b); }, nullptr},
      {"fmod", [](O a, O b) { return fmod(a, b); }, [](T a, O b) -> T { return a.fmod_(b); }},
      {"remainder", [](O a, O b) { return remainder(a, b); }, [](T a, O b) -> T { return a.remainder_(b); }},
      {"atan2", [](O a, O b) { return atan2(a, b); }, nullptr},
      {"eq", [](O a, O b) { return eq(a, b); }, nullptr},
      {"ne", [](O a, O b) { return ne(a, b); }, nullptr},
      {"lt", [](O a, O b) { return lt(a, b); }, nullptr},
      {"le", [](O a, O b) { return le(a, b); }, nullptr},
      {"gt", [](O a, O b) { return gt(a, b); }, nullptr},
      {"ge", [](O a, O b) { return ge(a, b); }, nullptr},
      {"logical_and", [](O a, O b) { return logical_and(a, b); }, nullptr},
      {"logical_or", [](O a, O b) { return logical_or(a, b); }, nullptr},
      {"logical_xor", [](O a, O b) { return logical_xor(a, b); }, nullptr},
      {"where",
       [](O a, O b) {
         return where(tensor({1, 0, 1, 0}) > 0, a, b);
       },
       nullptr},
      {"lerp", [](O a, O b) { return lerp(*a.tensor, ones({4}, kDouble), b); }, nullptr},
      {"clamp_min", [](O a, O b) { return clamp_min(*a.tensor, b); }, nullptr},
      {"clamp_max", [](O a, O b) { return clamp_max(*a.tensor, b); }, nullptr},
  };
  const std::vector<double> numbers = {2.5, 0.75, 4, 1};
  for (const Operator& op : operators)
    for (const double number : {1.5, 0.25, 2.5, 1.0}) {
      CAPTURE(op.name, number);
      const auto leaf = [&] { return tensor(numbers, dtype(kDouble).requires_grad(true)); };
      const auto same = [&](const auto& with_number, const auto& with_tensor) {
        const Tensor x = leaf(), z = leaf();
        const Tensor found = with_number(x), wanted = with_tensor(z, full({4}, number, kDouble));
        CHECK(found.dtype() == wanted.dtype());
        CHECK(found.detach().to(kDouble).allclose(wanted.detach().to(kDouble), 1e-14, 1e-14));
        REQUIRE(found.requires_grad() == wanted.requires_grad());
        if (!found.requires_grad()) return;
        const Tensor dy = tensor({1.0, 2.0, -3.0, 0.5}, kDouble);
        const Tensor dx = autograd::grad({found}, {x}, {dy}, {}, false, true)[0];
        const Tensor dz = autograd::grad({wanted}, {z}, {dy}, {}, false, true)[0];
        REQUIRE(dx.defined() == dz.defined());
        if (dx.defined()) CHECK(dx.allclose(dz, 1e-12, 1e-12));
      };
      same([&](T x) { return op.run(x, number); }, [&](T x, T y) { return op.run(x, y); });
      if (std::string(op.name) != "lerp" && std::string(op.name).find("clamp") == std::string::npos)
        same([&](T x) { return op.run(number, x); }, [&](T x, T y) { return op.run(y, x); });
      if (op.in_place == nullptr) continue;
      same([&](T x) { return op.in_place(x.clone(), number); }, [&](T x, T y) { return op.in_place(x.clone(), y); });
      same([&](T x) { return op.in_place(x.clone(), number); }, [&](T x, T y) { return op.run(x, y); });
    }
}

TEST_CASE("alpha is a factor of the second operand, whichever operands are tensors, in the type of the result") {
  const Tensor whole = tensor({1, 2}), real = tensor({1.0, 2.0}, kDouble);
  CHECK(add(whole, 2, 3).equal(tensor({7, 8})));
  CHECK(add(2, whole, 3).equal(tensor({5, 8})));
  CHECK(add(whole, whole, 3).equal(tensor({4, 8})));
  CHECK(add(2, 5, 3).item<int>() == 17);
  CHECK(sub(whole, 2, 3).equal(tensor({-5, -4})));
  CHECK(sub(2, whole, 3).equal(tensor({-1, -4})));
  CHECK(sub(2, 5, 3).item<int>() == -13);
  CHECK(add(real, 2, 0.5).equal(tensor({2.0, 3.0}, kDouble)));
  CHECK(add(2, real, 0.5).equal(tensor({2.5, 3.0}, kDouble)));
  CHECK(add(2.5, 1, 0.5).item<double>() == 3);
  CHECK(add(whole, 0.5, 3).allclose(tensor({2.5, 3.5})));  // the result is of a floating-point type
  CHECK(whole.clone().add_(2, 3).equal(tensor({7, 8})));
  CHECK(whole.clone().sub_(2, 3).equal(tensor({-5, -4})));
  const int64_t large = (int64_t{1} << 53) + 1;  // not a double
  CHECK(add(tensor({int64_t{0}}), large, 3).item<int64_t>() == 3 * large);
  CHECK(add(tensor({int64_t{0}}), 1, large).item<int64_t>() == large);
  for (const auto& wrong :
       {+[](const Tensor& x) { return add(x, x, 0.5); }, +[](const Tensor& x) { return add(x, 1, 0.5); },
        +[](const Tensor& x) { return add(1, x, 0.5); }, +[](const Tensor& x) { return sub(x, 1, 0.5); },
        +[](const Tensor&) { return sub(1, 1, 0.5); }, +[](const Tensor& x) { return x.clone().add_(1, 0.5); }})
    CHECK_THROWS_WITH(wrong(whole), contains("alpha must not be a fraction where the result is int64"));
}

namespace {

template <class T>
void check_integers(const std::vector<T>& numbers) {
  INFO(name(DTypeOf<T>::value));
  using Wide = __int128;
  const auto of_type = [](const std::vector<T>& list) { return tensor(list).to(DTypeOf<T>::value); };
  struct Operator {
    const char* name;
    Tensor (*run)(const Tensor& a, const Tensor& b);
    Wide (*formula)(Wide a, Wide b);
    bool divides;
  };
  const auto power = [](Wide a, Wide b) -> Wide {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0;
    uint64_t result = 1;
    for (Wide i = 0; i < std::min<Wide>(b, 64); ++i) result *= static_cast<uint64_t>(a);
    if (b > 64 && a % 2 != 0) return a == 1 || b % 2 == 0 ? 1 : a;  // only called for a = 1 and a = -1
    return static_cast<int64_t>(result);
  };
  const std::vector<Operator> operators = {
      {"add", [](const Tensor& a, const Tensor& b) { return a + b; }, [](Wide a, Wide b) { return a + b; }, false},
      {"sub", [](const Tensor& a, const Tensor& b) { return a - b; }, [](Wide a, Wide b) { return a - b; }, false},
      {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }, [](Wide a, Wide b) { return a * b; }, false},
      {"trunc(a / b)", [](const Tensor& a, const Tensor& b) { return div(a, b, "trunc"); },
       [](Wide a, Wide b) { return a / b; }, true},
      {"floor(a / b)", [](const Tensor& a, const Tensor& b) { return div(a, b, "floor"); },
       [](Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }, true},
      {"fmod", [](const Tensor& a, const Tensor& b) { return fmod(a, b); }, [](Wide a, Wide b) { return a % b; }, true},
      {"remainder", [](const Tensor& a, const Tensor& b) { return remainder(a, b); },
       [](Wide a, Wide b) { return a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b; }, true},
      {"pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }, power, false},
      {"maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); },
       [](Wide a, Wide b) { return a > b ? a : b; }, false},
      {"minimum", [](const Tensor& a, const Tensor& b) { return minimum(a, b); },
       [](Wide a, Wide b) { return a < b ? a : b; }, false},
      {"bitwise_and", [](const Tensor& a, const Tensor& b) { return a & b; }, [](Wide a, Wide b) { return a & b; },
       false},
      {"bitwise_or", [](const Tensor& a, const Tensor& b) { return a | b; }, [](Wide a, Wide b) { return a | b; },
       false},
      {"bitwise_xor", [](const Tensor& a, const Tensor& b) { return a ^ b; }, [](Wide a, Wide b) { return a ^ b; },
       false},
  };
  for (const Operator& op : operators) {
    std::vector<T> left, right, wanted;
    for (const T a : numbers)
      for (const T b : numbers) {
        if (op.divides && b == 0) continue;
        if (std::string(op.name) == "pow" && b > 64 && a != 0 && a != T(1) && a != T(-1)) continue;
        left.push_back(a), right.push_back(b), wanted.push_back(static_cast<T>(op.formula(a, b)));
      }
    INFO(op.name);
    CHECK(op.run(of_type(left), of_type(right)).equal(of_type(wanted)));
  }
}

}  // namespace

TEST_CASE("integers wrap around, and their quotients, remainders and powers are exact") {
  for (const std::string& backend_name : backend_names()) {
    if (!Device(backend(backend_name).device_type()).is_cpu()) continue;
    const BackendGuard guard(backend_name);
    check_integers<int64_t>({INT64_MIN, INT64_MIN + 1, -9, -3, -2, -1, 0, 1, 2, 3, 4, 9, 40, INT64_MAX - 1, INT64_MAX});
    check_integers<int32_t>({INT32_MIN, INT32_MIN + 1, -9, -3, -2, -1, 0, 1, 2, 3, 4, 9, 20, INT32_MAX - 1, INT32_MAX});
    check_integers<uint8_t>({0, 1, 2, 3, 4, 7, 9, 64, 127, 128, 254, 255});
  }
}

TEST_CASE("integers are not divided by the number 0, in a recorded step neither") {
  const Tensor x = tensor({1, 2});
  const auto check = [&] {
    for (const auto& divide :
         {+[](const Tensor& x) { return fmod(x, 0); }, +[](const Tensor& x) { return remainder(x, 0); },
          +[](const Tensor& x) { return div(x, 0, "trunc"); }, +[](const Tensor& x) { return div(x, 0, "floor"); },
          +[](const Tensor& x) { return x.fmod_(0); }, +[](const Tensor& x) { return x.remainder_(0); },
          +[](const Tensor& x) { return x.div_(0, "floor"); }})
      CHECK_THROWS_WITH(divide(x), contains("integers cannot be divided by 0"));
  };
  check();
  const graph::Recorder recorder;
  check();
}

TEST_CASE("tensors are equal if their shapes, types and elements are, and close if their elements are") {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, -0.0}}, kDouble);
  CHECK(x.equal(x.clone()));
  CHECK(x.equal(x.t().contiguous().t()));
  CHECK(x.equal(tensor({{1.0, 2.0}, {3.0, 0.0}}, kDouble)));
  CHECK(zeros({0, 2}).equal(zeros({0, 2})));
  for (const Tensor& other : {x + 1e-15, x.flatten(), x.unsqueeze(0), x.slice(0, 0, 1), x.to(kFloat), x.t(), x * NAN,
                              full({2, 2}, 1.0, kDouble), full({}, 1.0, kDouble)}) {
    CHECK_FALSE(x.equal(other));
    CHECK_FALSE(other.equal(x));
  }
  CHECK_FALSE(zeros({0, 2}).equal(zeros({0, 3})));
  CHECK_FALSE((x * NAN).equal(x * NAN));
  // |a - b| <= atol + rtol |b|
  const auto close = [](double a, double b, double rtol, double atol, bool equal_nan = false) {
    return full({1}, a, kDouble).allclose(full({1}, b, kDouble), rtol, atol, equal_nan);
  };
  CHECK((close(1, 1.5, 0, 0.5) && !close(1, 1.5, 0, 0.49)));
  CHECK((close(8, 6, 0.5, 0) && close(6, 8, 0.25, 0) && !close(8, 6, 0.25, 0)));
  CHECK((close(4, 2, 0.5, 1) && !close(4, 2, 0.5, 0.9) && !close(4, 2, 0.4, 1)));
  CHECK((close(-1, -1, 0, 0) && !close(-1, 1, 0, 0)));
  const double inf = INFINITY, nan = NAN;
  CHECK((close(inf, inf, 0, 0) && !close(inf, -inf, 1, 1) && !close(1, inf, 1, 1) && !close(inf, 1, 1, 1)));
  CHECK((!close(nan, nan, 1, 1) && close(nan, nan, 1, 1, true) && !close(nan, 1, 1, 1, true) &&
         !close(1, nan, 1, 1, true)));
  CHECK_FALSE(tensor({1.0, 2.0}).allclose(tensor({1.0, 3.0})));
  CHECK(isclose(tensor({1.0, 2.0}), tensor({1.0, 3.0})).equal(tensor({1, 0}) > 0));
}

TEST_CASE("of equal operands the first is the maximum and the minimum, so that zeros keep its sign") {
  for (const std::string& backend_name : backend_names()) {
    if (!Device(backend(backend_name).device_type()).is_cpu()) continue;
    const BackendGuard guard(backend_name);
    for (const DType type : {kFloat, kDouble})
      for (const int64_t size : {1, 37}) {
        CAPTURE(backend_name, size);
        const Tensor plus = zeros({size}, type), minus = -plus;
        for (const auto& extreme : {+[](const Tensor&a, const Tensor&b) { return maximum(a, b); },
                                    +[](const Tensor&a, const Tensor&b) { return minimum(a, b); }}) {
          CHECK((1 / extreme(plus, minus) > 0).all().item<bool>());
          CHECK((1 / extreme(minus, plus) < 0).all().item<bool>());
        }
      }
  }
}

TEST_CASE("operators of three tensors name the shapes in the order of their arguments") {
  const Tensor x = ones({2}), a = ones({3}), b = ones({4});
  CHECK_THROWS_WITH(addcmul(x, a, b), contains("shapes (3,) and (4,)"));
  CHECK_THROWS_WITH(addcdiv(x, a, b), contains("shapes (3,) and (4,)"));
  CHECK_THROWS_WITH(addcmul(x, a, a), contains("shapes (2,) and (3,)"));
  CHECK_THROWS_WITH(lerp(x, a, 0.5), contains("shapes (3,) and (2,)"));
}

TEST_CASE("operators in place round half types once, as those that return a new tensor do") {
  using T = const Tensor&;
  struct Operator {
    const char* name;
    Tensor (*run)(T x, T a, T b);
    const Tensor& (*in_place)(T x, T a, T b);
  };
  const Operator operators[] = {
      {"add", [](T x, T a, T) { return add(x, a, 0.3); }, [](T x, T a, T) -> T { return x.add_(a, 0.3); }},
      {"sub", [](T x, T a, T) { return sub(x, a, 0.3); }, [](T x, T a, T) -> T { return x.sub_(a, 0.3); }},
      {"addcmul", [](T x, T a, T b) { return x.addcmul(a, b, 0.3); },
       [](T x, T a, T b) -> T { return x.addcmul_(a, b, 0.3); }},
      {"plain addcmul", [](T x, T a, T b) { return x.addcmul(a, b); },
       [](T x, T a, T b) -> T { return x.addcmul_(a, b); }},
      {"addcdiv", [](T x, T a, T b) { return x.addcdiv(a, b, 0.3); },
       [](T x, T a, T b) -> T { return x.addcdiv_(a, b, 0.3); }},
      {"lerp", [](T x, T a, T) { return lerp(x, a, 0.3); }, [](T x, T a, T) -> T { return x.lerp_(a, 0.3); }},
      {"lerp by a tensor", [](T x, T a, T b) { return lerp(x, a, b); },
       [](T x, T a, T b) -> T { return x.lerp_(a, b); }},
      {"index_add", [](T x, T a, T) { return x.index_add(0, arange(64), a, 0.3); },
       [](T x, T a, T) -> T { return x.index_add_(0, arange(64), a, 0.3); }},
  };
  for (const DType type : {kHalf, kBFloat16, kFloat, kDouble})
    for (const Operator& op : operators) {
      INFO(op.name << " in " << name(type));
      manual_seed(8);
      const Tensor x = randn({64}).to(type), a = randn({64}).to(type), b = (rand({64}) + 0.2).to(type);
      const Tensor wanted = op.run(x, a, b), found = op.in_place(x.clone(), a, b);
      CHECK(found.equal(wanted));
      if (!is_floating(type) || size_of(type) > 2) continue;
      const auto wide = [](T x) { return x.to(kDouble); };
      const Tensor exact = op.run(wide(x), wide(a), wide(b)), error = (wide(found) - exact).abs();
      const double epsilon = type == kHalf ? 0x1p-11 : 0x1p-8;
      CHECK((error <= exact.abs() * epsilon * 1.001 + 1e-6).all().item<bool>());
    }
}

TEST_CASE("half gradients of matrix products that are summed over batches are rounded once") {
  struct Shapes {
    Shape a, b;
  };
  for (const Shapes& s : {Shapes{{16, 3}, {16, 3, 16}},
                          {{16, 16, 3}, {3, 16}},
                          {{3}, {16, 3, 5}},
                          {{16, 4, 3}, {3}},
                          {{1, 4, 3}, {16, 3, 5}},
                          {{16, 4, 3}, {1, 3, 5}},
                          {{4, 1, 4, 3}, {1, 5, 3, 4}},
                          {{4, 4}, {4, 4, 4}},
                          {{4, 4, 4}, {4, 4}},
                          {{16, 4, 3}, {16, 16, 3, 5}},
                          {{16, 16, 4, 3}, {16, 3, 5}},
                          {{3}, {16, 16, 3, 5}},
                          {{2, 3}, {3, 4}}}) {
    CAPTURE(to_string(s.a), to_string(s.b));
    for (const DType type : {kHalf, kBFloat16}) {
      manual_seed(7);
      const auto leaf = [&](const Shape& shape, DType type) {
        return Tensor(randn(shape).to(kHalf).to(kBFloat16).to(type).array(), true);
      };
      const Tensor a = leaf(s.a, type), b = leaf(s.b, type);
      const Tensor A(a.detach().to(kDouble).array(), true), B(b.detach().to(kDouble).array(), true);
      const Tensor y = matmul(a, b), Y = matmul(A, B), dy = randn(y.sizes()).to(kBFloat16).to(type);
      const TensorList found = autograd::grad({y}, {a, b}, {dy}),
                       wanted = autograd::grad({Y}, {A, B}, {dy.to(kDouble)});
      const double epsilon = type == kHalf ? 0x1p-11 : 0x1p-8;
      for (size_t i = 0; i < 2; ++i) {
        CHECK(found[i].dtype() == type);
        const Tensor error = (found[i].to(kDouble) - wanted[i]).abs();
        CHECK((error <= wanted[i].abs() * epsilon * 1.01 + 1e-5).all().item<bool>());
      }
    }
  }
}

TEST_CASE("einsum rounds results and gradients of half types once, also if only one operand has a label") {
  const std::map<char, int64_t> sizes = {{'i', 16}, {'j', 12}, {'k', 5}, {'l', 14}};
  for (const std::string equation :
       {"ij,jk->ik", "jk,ijl->k", "ijl,jk->k", "ij,jk->k", "jk,ij->k", "ij,kj->i", "kj,ij->i", "i,i->", "ijl->j",
        "ij,l->j", "l,ij->j", "ij,jk,kl->il", "ij,ij->ij"}) {
    CAPTURE(equation);
    for (const DType type : {kHalf, kBFloat16}) {
      manual_seed(9);
      TensorList inputs, wide;
      std::string terms = equation.substr(0, equation.find("->"));
      while (!terms.empty()) {
        const std::string term = terms.substr(0, terms.find(','));
        terms.erase(0, term.size() + 1);
        Shape shape;
        for (const char label : term) shape.push_back(sizes.at(label));
        inputs.push_back(randn(shape).to(type).requires_grad_());
        wide.push_back(inputs.back().detach().to(kDouble).requires_grad_());
      }
      const Tensor y = einsum(equation, inputs), exact = einsum(equation, wide), dy = randn(y.sizes()).to(type);
      TensorList found = autograd::grad({y}, inputs, {dy}), wanted = autograd::grad({exact}, wide, {dy.to(kDouble)});
      found.push_back(y.detach()), wanted.push_back(exact.detach());
      const double epsilon = type == kHalf ? 0x1p-11 : 0x1p-8;
      for (size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i].dtype() == type);
        const Tensor error = (found[i].to(kDouble) - wanted[i]).abs();
        CHECK((error <= wanted[i].abs() * epsilon * 1.01 + 2e-5).all().item<bool>());
      }
    }
  }
}

}  // namespace operands_test
