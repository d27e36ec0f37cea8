// The vector functions of the openmp backend compared with the C library in the next wider type. Their errors must be
// within the bounds stated in their comments, for every instruction set and over the whole range.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <gradus/core/op_lists.h>
#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::test;

namespace {

template <class T>
using Numbers = std::vector<T>;
template <class T>
using wider_t = std::conditional_t<sizeof(T) == 4, double, long double>;

// Numbers with all exponents and both signs, special values, and many numbers between -20 and 20, where most functions
// change quickly.
template <class T>
Numbers<T> whole_range(int64_t count) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using Limits = std::numeric_limits<T>;
  Numbers<T> x = {T(0), -T(0), T(1), T(-1), T(0.5), T(-0.5), T(2), T(3)};
  for (T v : {Limits::min(), Limits::denorm_min(), Limits::max(), Limits::infinity(), Limits::epsilon()})
    x.push_back(v), x.push_back(-v);
  x.push_back(Limits::quiet_NaN());
  for (T v : {T(1), T(0.70710678), T(1.41421356), T(88.72), T(-87.33), T(709.78), T(-708.4), T(4), T(6), T(1e6)})
    for (T near : {std::nextafter(v, T(0)), v, std::nextafter(v, 2 * v)}) x.push_back(near), x.push_back(-near);
  const Bits step = std::numeric_limits<Bits>::max() / static_cast<Bits>(count) | 1;
  for (int64_t i = 0; i < count; ++i) {
    const T v = std::bit_cast<T>(static_cast<Bits>(step * static_cast<Bits>(i)));
    // The conversion to the wider type makes signalling NaN quiet, and pow(1, NaN) is 1 only for a quiet NaN.
    x.push_back(std::isnan(v) ? std::copysign(Limits::quiet_NaN(), v) : v);
  }
  std::uniform_real_distribution<T> middle(T(-20), T(20)), unit(T(-1), T(1)), exponents(T(-700), T(700));
  for (int64_t i = 0; i < count; ++i)
    x.push_back(middle(engine())), x.push_back(unit(engine())), x.push_back(exponents(engine()));
  for (int n = 1; n < 5000; n += 7) x.push_back(static_cast<T>(n * 1.57079632679489661923L));  // sin or cos is almost 0
  return x;
}

template <class T>
Array as_array(const Numbers<T>& x) {
  const Array a = Array::empty({static_cast<int64_t>(x.size())}, dtype_of<T>);
  std::copy(x.begin(), x.end(), a.data<T>());
  return a;
}

// |got - exact| in units of the last place of `exact` as a T. An infinity counts as the number after the largest one.
template <class T>
double error_in_ulp(T got, wider_t<T> exact) {
  using W = wider_t<T>;
  using Limits = std::numeric_limits<T>;
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) == std::isnan(exact) ? 0 : HUGE_VAL;
  const W after = std::ldexp(W(1), Limits::max_exponent);
  const auto finite = [&](W v) { return std::abs(v) > after ? std::copysign(after, v) : v; };
  const W e = finite(exact), g = finite(got);
  const int exponent = e == 0 ? Limits::min_exponent : std::max(std::ilogb(e), Limits::min_exponent - 1);
  return static_cast<double>(std::abs(g - e) / std::ldexp(W(1), exponent - Limits::digits + 1));
}

// Runs `run` for every instruction set and requires that its result is within `bound` of `exact`.
template <class T, class Run, class Exact, class Describe>
void check_bound(const std::string& what, int64_t count, double bound, Run&& run, Exact&& exact, Describe&& describe) {
  Numbers<wider_t<T>> expected;
  for (int64_t i = 0; i < count; ++i) expected.push_back(exact(i));
  const CpuIsa before = cpu_isa();
  for (CpuIsa isa : instruction_sets()) {
    set_cpu_isa(isa);
    const Array y = Array::empty({count}, dtype_of<T>);
    run(y);
    const T* got = y.data<T>();
    int64_t worst = 0;
    double most = 0;
    bool signs = true;
    for (int64_t i = 0; i < count; ++i) {
      const double error = error_in_ulp(got[i], expected[static_cast<size_t>(i)]);
      if (error > most) most = error, worst = i;
      const wider_t<T> e = expected[static_cast<size_t>(i)];
      if (e == 0 && std::signbit(got[i]) != std::signbit(e)) signs = false, worst = i;
    }
    INFO(what << (sizeof(T) == 4 ? " of floats" : " of doubles") << " at " << name(isa) << ": " << describe(worst)
              << " = " << got[worst] << ", not " << static_cast<double>(expected[static_cast<size_t>(worst)]));
    CHECK(most <= bound);
    CHECK(signs);
  }
  set_cpu_isa(before);
}

template <class T>
void check_unary(UnaryOp op, double bound, wider_t<T> (*exact)(wider_t<T>)) {
  const Numbers<T> x = whole_range<T>(20000);
  const Array a = as_array(x);
  const auto at = [&](int64_t i) { return x[static_cast<size_t>(i)]; };
  check_bound<T>(
      name(op), a.numel(), bound, [&](const Array& y) { openmp().unary(op, a, y, {}); },
      [&](int64_t i) { return exact(at(i)); }, [&](int64_t i) { return std::to_string(at(i)); });
}

template <class T>
void check_binary(BinaryOp op, double bound, const Numbers<T>& a, const Numbers<T>& b,
                  wider_t<T> (*exact)(wider_t<T>, wider_t<T>)) {
  const Array left = as_array(a), right = as_array(b);
  const auto at = [](const Numbers<T>& x, int64_t i) { return x[static_cast<size_t>(i)]; };
  check_bound<T>(
      name(op), left.numel(), bound, [&](const Array& y) { openmp().binary(op, left, right, y); },
      [&](int64_t i) { return exact(at(a, i), at(b, i)); },
      [&](int64_t i) { return std::to_string(at(a, i)) + " and " + std::to_string(at(b, i)); });
}

// Every number of the range paired with a random one, and all pairs of special values.
template <class T>
void check_pairs(BinaryOp op, double bound, wider_t<T> (*exact)(wider_t<T>, wider_t<T>)) {
  Numbers<T> a = whole_range<T>(20000), b = a;
  std::shuffle(b.begin(), b.end(), engine());
  const Numbers<T> special(whole_range<T>(1));
  for (size_t i = 0; i < 40; ++i)
    for (size_t j = 0; j < 40; ++j) a.push_back(special[i]), b.push_back(special[j]);
  check_binary(op, bound, a, b, exact);
}

template <class W>
W floored_remainder(W a, W b) {
  const W r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

}  // namespace

#define GRADUS_BOTH(check, op, single_bound, double_bound, f) \
  check<float>(op, single_bound, [](auto... x) -> double { return f(x...); }); \
  check<double>(op, double_bound, [](auto... x) -> long double { return f(x...); })

TEST_CASE("vector functions stay within their error bounds") {
  GRADUS_BOTH(check_unary, UnaryOp::exp, 2, 2, std::exp);
  GRADUS_BOTH(check_unary, UnaryOp::expm1, 2, 2, std::expm1);
  GRADUS_BOTH(check_unary, UnaryOp::log, 2, 2, std::log);
  GRADUS_BOTH(check_unary, UnaryOp::log1p, 2, 2, std::log1p);
  GRADUS_BOTH(check_unary, UnaryOp::log2, 2, 2, std::log2);
  GRADUS_BOTH(check_unary, UnaryOp::log10, 2, 2, std::log10);
  GRADUS_BOTH(check_unary, UnaryOp::tanh, 3, 3, std::tanh);
  GRADUS_BOTH(check_unary, UnaryOp::sin, 2, 2, std::sin);
  GRADUS_BOTH(check_unary, UnaryOp::cos, 2, 2, std::cos);
  GRADUS_BOTH(check_unary, UnaryOp::erf, 2, 2, std::erf);
  GRADUS_BOTH(check_unary, UnaryOp::sqrt, 0.5, 0.501, std::sqrt);
}

TEST_CASE("vectors round to integers exactly") {
  GRADUS_BOTH(check_unary, UnaryOp::floor, 0, 0, std::floor);
  GRADUS_BOTH(check_unary, UnaryOp::ceil, 0, 0, std::ceil);
  GRADUS_BOTH(check_unary, UnaryOp::round, 0, 0, std::rint);
  GRADUS_BOTH(check_unary, UnaryOp::trunc, 0, 0, std::trunc);
}

TEST_CASE("vector powers and angles stay within their error bounds, and remainders are exact") {
  GRADUS_BOTH(check_pairs, BinaryOp::pow, 2, 2, std::pow);
  GRADUS_BOTH(check_pairs, BinaryOp::atan2, 4, 4, std::atan2);
  GRADUS_BOTH(check_pairs, BinaryOp::fmod, 0, 0, std::fmod);
  GRADUS_BOTH(check_pairs, BinaryOp::remainder, 0.5, 0.5, floored_remainder);
}

TEST_CASE("powers near the ends of the range, of negative numbers, and with small integer exponents") {
  const auto check = [](auto zero) {
    using T = decltype(zero);
    Numbers<T> a, b;
    std::uniform_real_distribution<T> exponents(T(-1.1), T(1.1)), sizes(T(0.01), T(100));
    for (int i = 0; i < 20000; ++i) {
      const T base = sizes(engine());
      a.push_back(base), b.push_back(exponents(engine()) * std::numeric_limits<T>::max_exponent / std::log2(base));
      a.push_back(i % 2 ? -base : base), b.push_back(static_cast<T>(static_cast<int>(engine()() % 41) - 20));
      a.push_back(1 + (base - 50) / 5000), b.push_back(exponents(engine()) * 10000);
    }
    check_binary<T>(BinaryOp::pow, 2, a, b, [](wider_t<T> x, wider_t<T> y) { return std::pow(x, y); });
  };
  check(0.0f), check(0.0);
}
