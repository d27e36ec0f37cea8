// Random numbers: Philox compared with published results, equal bits on every backend, and correct distributions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/random.h>
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0;
};
Moments moments_of(const std::vector<double>& x) {
  Moments m;
  const double n = static_cast<double>(x.size());
  m.mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  for (double value : x) m.variance += (value - m.mean) * (value - m.mean) / n;
  for (double value : x) {
    const double z = (value - m.mean) / std::sqrt(m.variance);
    m.skewness += z * z * z / n, m.kurtosis += z * z * z * z / n;
  }
  return m;
}

// Correlation between elements that are `lag` apart.
double correlation(const std::vector<double>& x, size_t lag) {
  const Moments m = moments_of(x);
  double sum = 0;
  for (size_t i = 0; i + lag < x.size(); ++i) sum += (x[i] - m.mean) * (x[i + lag] - m.mean);
  return sum / static_cast<double>(x.size() - lag) / m.variance;
}

constexpr int64_t kMany = 200000;

std::vector<double> drawn(const std::function<void(Backend&, const Array&)>& run, DType dtype = DType::f64) {
  const Array y = Array::empty({kMany}, dtype);
  run(backend("naive"), y);
  return values(y);
}

}  // namespace

TEST_CASE("Philox4x32-10 gives the known answers of its reference implementation") {
  auto words = [](uint64_t seed, uint64_t offset, uint64_t index) {
    const PhiloxWords w = philox(seed, offset, index);
    return std::vector<uint32_t>(w.word, w.word + 4);
  };
  CHECK(words(0, 0, 0) == std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words(~0ull, ~0ull, ~0ull) == std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Counter and key are digits of pi: 243f6a88 85a308d3 13198a2e 03707344, a4093822 299f31d0.
  CHECK(words(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull) ==
        std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random numbers have the same bits on every backend and in every layout") {
  Maker make(40);
  const Shape shapes[] = {{}, {0}, {1}, {5}, {1023}, {7, 33}, {3, 4, 5, 6}, {100003}};
  const uint64_t device_offset = 5;
  for (const Shape& shape : shapes)
    for (Layout layout : kOutputLayouts)
      for (RandomState state : {RandomState{0, 0, nullptr}, RandomState{~0ull, 1ull << 40, nullptr}}) {
        auto same_bits = [&](const char* what, DType dtype, const Run& run) {
          check_agreement(what, {}, {make(shape, dtype, layout)}, run, {}, 0);
        };
        for (DType dtype : kFloatingDTypes) {
          same_bits("uniform", dtype,
                    [&](Backend& b, const Arrays&, const Arrays& out) { b.uniform(out[0], state, -2, 3); });
          same_bits("normal", dtype,
                    [&](Backend& b, const Arrays&, const Arrays& out) { b.normal(out[0], state, 1, 0.3); });
        }
        for (DType dtype : kAllDTypes) {
          same_bits("bernoulli", dtype,
                    [&](Backend& b, const Arrays&, const Arrays& out) { b.bernoulli(out[0], state, 0.3); });
          if (dtype == DType::boolean) continue;
          same_bits("randint", dtype,
                    [&](Backend& b, const Arrays&, const Arrays& out) { b.randint(out[0], state, 2, 91); });
        }
        if (shape.size() == 1)
          same_bits("randperm", DType::i64,
                    [&](Backend& b, const Arrays&, const Arrays& out) { b.randperm(out[0], state); });
      }
  // In host memory the device offset is an ordinary pointer.
  const Array plain = Array::empty({100}), shifted = Array::empty({100});
  for (const std::string& name : backend_names()) {
    if (backend(name).device_type() != DeviceType::cpu) continue;
    backend(name).uniform(plain, {9, 12, nullptr}, 0, 1);
    backend(name).uniform(shifted, {9, 7, &device_offset}, 0, 1);
    CHECK(values(plain) == values(shifted));
  }
}

TEST_CASE("random numbers do not depend on the number of threads") {
  const int threads = num_threads();
  for (const std::string& name : backend_names()) {
    Backend& b = backend(name);
    const Device device(b.device_type());
    std::vector<std::vector<double>> runs;
    for (int count : {1, 2, 3}) {
      set_num_threads(count);
      const Array u = Array::empty({100003}, DType::f32, device), n = Array::empty({100003}, DType::f32, device);
      const Array p = Array::empty({10007}, DType::i64, device);
      b.uniform(u, {3, 4, nullptr}, 0, 1), b.normal(n, {3, 4, nullptr}, 0, 1), b.randperm(p, {3, 4, nullptr});
      std::vector<double> all = values(u);
      for (const Array& more : {n, p}) {
        const std::vector<double> v = values(more);
        all.insert(all.end(), v.begin(), v.end());
      }
      runs.push_back(all);
    }
    CHECK(runs[0] == runs[1]);
    CHECK(runs[0] == runs[2]);
  }
  set_num_threads(threads);
}

TEST_CASE("uniform draws are uniform, independent and below the upper bound") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const auto x = drawn([](Backend& b, const Array& y) { b.uniform(y, {1, 2, nullptr}, 0, 1); }, dtype);
    const Moments m = moments_of(x);
    CHECK(m.mean == Approx(0.5).margin(0.003));
    CHECK(m.variance == Approx(1.0 / 12).margin(0.001));
    for (size_t lag : {1, 2, 3, 4, 100}) CHECK(std::abs(correlation(x, lag)) < 0.01);
    CHECK(*std::min_element(x.begin(), x.end()) >= 0);
    CHECK(*std::max_element(x.begin(), x.end()) < 1);
    std::vector<int> bins(20);
    for (double value : x) ++bins[static_cast<size_t>(value * 20)];
    double chi_squared = 0;
    for (int count : bins) chi_squared += std::pow(count - kMany / 20.0, 2) / (kMany / 20.0);
    CHECK(chi_squared < 43.8);  // 19 degrees of freedom, 0.1 %
  }
  // Half types have few values near the bound, and rounding must still not reach it.
  for (DType dtype : {DType::f16, DType::bf16}) {
    const auto x = drawn([](Backend& b, const Array& y) { b.uniform(y, {1, 2, nullptr}, -1, 1); }, dtype);
    CHECK(*std::max_element(x.begin(), x.end()) < 1);
    CHECK(moments_of(x).mean == Approx(0).margin(0.02));
  }
}

TEST_CASE("normal draws have the moments and tails of a normal distribution") {
  const auto x = drawn([](Backend& b, const Array& y) { b.normal(y, {1, 2, nullptr}, 3, 2); });
  const Moments m = moments_of(x);
  CHECK(m.mean == Approx(3).margin(0.02));
  CHECK(m.variance == Approx(4).margin(0.06));
  CHECK(m.skewness == Approx(0).margin(0.03));
  CHECK(m.kurtosis == Approx(3).margin(0.06));
  for (size_t lag : {1, 2, 3}) CHECK(std::abs(correlation(x, lag)) < 0.01);
  auto share_beyond = [&](double deviations) {
    return static_cast<double>(
               std::count_if(x.begin(), x.end(), [&](double v) { return std::abs(v - 3) > 2 * deviations; })) /
           static_cast<double>(kMany);
  };
  CHECK(share_beyond(1) == Approx(0.3173).margin(0.005));
  CHECK(share_beyond(2) == Approx(0.0455).margin(0.003));
  CHECK(share_beyond(3) == Approx(0.0027).margin(0.0006));
}

TEST_CASE("the logarithm, sine and cosine of normal draws are accurate") {
  for (int i = 1; i <= 10000; ++i) {
    const double v = i / 10001.0;
    double cosine, sine;
    random_detail::cos_sin_turn(v, &cosine, &sine);
    CHECK(std::abs(cosine - std::cos(2 * M_PI * v)) < 1e-15);
    CHECK(std::abs(sine - std::sin(2 * M_PI * v)) < 1e-15);
    CHECK(random_detail::log(v) == Approx(std::log(v)).epsilon(1e-14));
  }
  CHECK(random_detail::log(1.0) == 0);
  CHECK(random_detail::log(0x1p-53) == Approx(-53 * std::log(2.0)));
}

TEST_CASE("bernoulli draws have the given probability") {
  for (double p : {0.0, 0.1, 0.5, 1.0}) {
    const auto x = drawn([&](Backend& b, const Array& y) { b.bernoulli(y, {5, 6, nullptr}, p); }, DType::boolean);
    CHECK(moments_of(x).mean == Approx(p).margin(0.003));
  }
}

TEST_CASE("randint covers its range evenly, also the whole range of int64") {
  const auto x = drawn([](Backend& b, const Array& y) { b.randint(y, {5, 6, nullptr}, -3, 4); }, DType::i64);
  for (int value = -3; value < 4; ++value)
    CHECK(static_cast<double>(std::count(x.begin(), x.end(), value)) == Approx(kMany / 7.0).epsilon(0.03));
  CHECK(*std::min_element(x.begin(), x.end()) == -3);
  CHECK(*std::max_element(x.begin(), x.end()) == 3);
  const auto wide = drawn(
      [](Backend& b, const Array& y) {
        b.randint(y, {5, 6, nullptr}, INT64_MIN, INT64_MAX);
      },
      DType::i64);
  const double range = std::pow(2.0, 64);
  CHECK(moments_of(wide).mean / range == Approx(0).margin(0.003));
  CHECK(moments_of(wide).variance / range / range == Approx(1.0 / 12).margin(0.001));
}

TEST_CASE("randperm is a permutation that differs from draw to draw") {
  const Array a = Array::empty({1000}, DType::i64), b = Array::empty({1000}, DType::i64);
  backend("naive").randperm(a, {1, 1, nullptr});
  backend("naive").randperm(b, {1, 2, nullptr});
  CHECK(values(a) != values(b));
  std::vector<double> sorted = values(a);
  CHECK(correlation(sorted, 1) == Approx(0).margin(0.1));
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < 1000; ++i) CHECK(sorted[static_cast<size_t>(i)] == i);
}

TEST_CASE("a generator hands out each draw once and its position can be restored") {
  Generator generator(7);
  const RandomState first = generator.next(), second = generator.next();
  CHECK(first.seed == 7);
  CHECK(first.offset != second.offset);
  generator.set_state(7, first.offset);
  CHECK(generator.next().offset == first.offset);
  generator.manual_seed(8);
  CHECK(generator.next().offset == 0);
  CHECK(generator.seed() == 8);

  const uint64_t device_offset = 0;
  Generator::begin_capture(&device_offset);
  CHECK(generator.next().offset == 0);
  CHECK(generator.next().offset == 1);
  CHECK(generator.next().device_offset == &device_offset);
  CHECK(Generator::end_capture() == 3);
  CHECK(generator.advance(3) == 1);
  CHECK(generator.next().device_offset == nullptr);
  CHECK(generator.offset() == 5);
}
