// Weight initialisation: distributions, gains, and equal values on every backend.
#include <gradus/autograd/autograd.h>
#include <gradus/core/registry.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>

#include <cmath>

using namespace gradus;
namespace init = gradus::nn::init;

namespace {

struct Statistics {
  double mean, deviation, low, high;
};

Statistics statistics(const Tensor& x) {
  const Tensor y = x.detach().to(kDouble);
  const double mean = y.mean().item<double>();
  const Tensor centred = y - mean;
  return {mean, std::sqrt((centred * centred).mean().item<double>()), y.min().item<double>(), y.max().item<double>()};
}

}  // namespace

TEST_CASE("linear and convolution layers are initialised as in PyTorch") {
  manual_seed(1);
  auto check = [](const Tensor& weight, const Tensor& bias, double fan_in) {
    const double bound = 1 / std::sqrt(fan_in);
    const Statistics w = statistics(weight);
    CHECK(w.low >= -bound);
    CHECK(w.high < bound);
    CHECK(w.low < -0.99 * bound);
    CHECK(w.high > 0.99 * bound);
    CHECK(std::abs(w.mean) < 0.02 * bound);
    CHECK(w.deviation == Approx(bound / std::sqrt(3.0)).epsilon(0.02));
    const Statistics b = statistics(bias);
    CHECK(b.low >= -bound);
    CHECK(b.high < bound);
    CHECK(b.deviation == Approx(bound / std::sqrt(3.0)).epsilon(0.2));
  };
  nn::Linear linear(300, 200);
  check(linear->weight, linear->bias, 300);
  nn::Conv2d conv(nn::Conv2dOptions(32, 64, {3, 5}).groups(2));
  CHECK(conv->weight.sizes() == Shape({64, 16, 3, 5}));
  check(conv->weight, conv->bias, 16 * 15);
  nn::Bilinear bilinear(50, 7, 200);  // divided by the size of its first input alone
  check(bilinear->weight, bilinear->bias, 50);
}

TEST_CASE("the same seed gives the same weights on every backend") {
  nn::StateDict expected;
  for (const std::string& name : backend_names()) {
    if (backend(name).device_type() != DeviceType::cpu) continue;
    BackendGuard guard(name);
    manual_seed(42);
    nn::Sequential net(nn::Conv2d(3, 8, 5), nn::ConvReLU2d(8, 4, 3), nn::Linear(40, 7));
    const Tensor normal = init::kaiming_normal_(empty({33, 5}));
    nn::StateDict state = net->state_dict();
    state.insert("normal", normal);
    if (expected.is_empty()) expected = state;
    for (const auto& item : expected) {
      INFO(name << " " << item.key());
      CHECK(state[item.key()].equal(item.value()));
    }
  }
  CHECK(expected.size() == 7);
}

TEST_CASE("the weight is drawn before the bias, and each once") {
  manual_seed(7);
  const Tensor weight = init::kaiming_uniform_(empty({4, 6}), std::sqrt(5.0));
  const Tensor bias = init::uniform_(empty({4}), -1 / std::sqrt(6.0), 1 / std::sqrt(6.0));
  manual_seed(7);
  nn::Linear linear(6, 4);
  CHECK(linear->weight.detach().equal(weight));
  CHECK(linear->bias.detach().equal(bias));
  manual_seed(7);
  linear->reset_parameters();
  CHECK(linear->weight.detach().equal(weight));
}

TEST_CASE("initialisers have the right spread, work in place and are not recorded") {
  manual_seed(2);
  const Tensor w = empty({100, 50, 2, 2}, requires_grad());  // fan in 200, fan out 400
  auto deviation = [](const Tensor& x) { return statistics(x).deviation; };
  CHECK(init::calculate_fan_in_and_fan_out(w) == std::pair<int64_t, int64_t>(200, 400));
  CHECK(init::xavier_uniform_(w).is_same(w));
  CHECK(w.is_leaf());
  CHECK(w.requires_grad());
  CHECK(deviation(w) == Approx(std::sqrt(2.0 / 600)).epsilon(0.02));
  CHECK(statistics(w).high < std::sqrt(6.0 / 600));
  CHECK(deviation(init::xavier_normal_(w, 2)) == Approx(2 * std::sqrt(2.0 / 600)).epsilon(0.02));
  CHECK(deviation(init::kaiming_normal_(w, 0, kFanOut, kReLU)) == Approx(std::sqrt(2.0 / 400)).epsilon(0.02));
  CHECK(deviation(init::kaiming_uniform_(w, 0, kFanIn, kReLU)) == Approx(std::sqrt(2.0 / 200)).epsilon(0.02));
  const Statistics normal = statistics(init::normal_(w, 3, 0.5));
  CHECK(normal.mean == Approx(3).epsilon(0.01));
  CHECK(normal.deviation == Approx(0.5).epsilon(0.02));
  const Statistics uniform = statistics(init::uniform_(w, -1, 3));
  CHECK(uniform.mean == Approx(1).epsilon(0.03));
  CHECK(init::constant_(w, 2.5).detach().equal(full_like(w.detach(), 2.5)));
  CHECK(init::ones_(w).detach().equal(ones_like(w.detach())));
  CHECK(init::zeros_(w).detach().equal(zeros_like(w.detach())));
  CHECK_THROWS_AS(init::xavier_uniform_(empty({3})), ShapeError);
}

TEST_CASE("gains equal PyTorch's") {
  CHECK(init::calculate_gain(kLinear) == 1);
  CHECK(init::calculate_gain(kConv2D) == 1);
  CHECK(init::calculate_gain(kSigmoid) == 1);
  CHECK(init::calculate_gain(kTanh) == Approx(5.0 / 3));
  CHECK(init::calculate_gain(kReLU) == Approx(std::sqrt(2.0)));
  CHECK(init::calculate_gain(kLeakyReLU, 0.2) == Approx(std::sqrt(2 / 1.04)));
}

TEST_CASE("orthogonal_ gives orthonormal rows or columns times the gain") {
  manual_seed(4);
  for (const Shape& shape : {Shape{5, 5}, Shape{7, 4}, Shape{4, 7}, Shape{6, 2, 3, 3}, Shape{1, 3}, Shape{0, 3}}) {
    INFO(to_string(shape));
    const Tensor w = init::orthogonal_(empty(shape, TensorOptions(kDouble).requires_grad(true)), 2);
    CHECK(w.is_leaf());
    if (w.numel() == 0) continue;
    Tensor flat = w.detach().reshape({shape[0], -1});
    if (flat.size(0) > flat.size(1)) flat = flat.t();
    CHECK(flat.matmul(flat.t()).allclose(eye(flat.size(0), kDouble) * 4, 0, 1e-12));
  }
  CHECK_THROWS_WITH(init::orthogonal_(empty({3})), test::contains("(3,)"));
}

TEST_CASE("trunc_normal_ respects its bounds and has the moments of the truncated distribution") {
  manual_seed(9);
  const Tensor w = init::trunc_normal_(empty({200, 200}));
  const Statistics cut = statistics(w);
  CHECK(cut.low >= -2);
  CHECK(cut.high <= 2);
  CHECK(cut.high > 1.98);
  // Var = 1 - 2 * 2 phi(2) / (2 Phi(2) - 1)
  CHECK(cut.deviation == Approx(std::sqrt(0.7737413)).epsilon(0.01));
  CHECK(std::abs(cut.mean) < 0.02);
  const Statistics tail = statistics(init::trunc_normal_(empty({100, 100}), 0, 1, 2, 3));
  CHECK(tail.low >= 2);
  CHECK(tail.high <= 3);
  CHECK(tail.mean == Approx(2.3158).epsilon(0.005));  // (phi(2) - phi(3)) / (Phi(3) - Phi(2))
  const Statistics far = statistics(init::trunc_normal_(empty({1000}), 0, 1, 9, 10));
  CHECK(far.low >= 9);
  CHECK(far.mean == Approx(9.1084).epsilon(0.002));
  CHECK(statistics(init::trunc_normal_(empty({10}), 0, 1, 50, 51)).low == 50);
  CHECK(statistics(init::trunc_normal_(empty({10}), 0, 1, -51, -50)).low == -50);
  CHECK_THROWS_AS(init::trunc_normal_(empty({3}), 0, 1, 2, -2), ValueError);
}

TEST_CASE("eye_, dirac_ and sparse_ have ones and zeros where PyTorch's have") {
  CHECK(init::eye_(empty({2, 3})).equal(tensor({{1., 0., 0.}, {0., 1., 0.}})));
  CHECK_THROWS_AS(init::eye_(empty({2})), ShapeError);

  nn::Conv2d conv(nn::Conv2dOptions(4, 4, 3).padding(1).groups(2).bias(false));
  init::dirac_(conv->weight, 2);
  const Tensor x = randn({2, 4, 5, 5});
  CHECK(conv(x).allclose(x));
  CHECK(
      init::dirac_(empty({3, 2, 2})).equal(tensor({{{0., 1.}, {0., 0.}}, {{0., 0.}, {0., 1.}}, {{0., 0.}, {0., 0.}}})));
  CHECK_THROWS_AS(init::dirac_(empty({3, 2})), ShapeError);
  CHECK_THROWS_AS(init::dirac_(empty({3, 2, 2}), 2), ValueError);

  const Tensor w = init::sparse_(empty({10, 8}), 0.25, 2);
  CHECK((w == 0).to(kFloat).sum(0).equal(full({8}, 3.0)));
  CHECK(statistics(w).deviation > 1);
  CHECK_THROWS_AS(init::sparse_(empty({3}), 0.5), ShapeError);
  CHECK_THROWS_AS(init::sparse_(empty({3, 3}), 1.5), ValueError);
}

TEST_CASE("trunc_normal_ has the quantiles of its uniform numbers, in both tails") {
  struct Interval {
    double mean, std, low, high;
  };
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  for (const auto& [mean, std, low, high] :
       {Interval{0, 1, -2, 2}, {1, 2, -3, 4}, {-0.5, 0.25, -3, 3}, {0, 1, 2, 5}, {1, 0.5, 3, 4}, {2, 3, -20, -7}}) {
    manual_seed(11);
    const Tensor numbers = rand({500}, kDouble);
    manual_seed(11);
    const Tensor w = init::trunc_normal_(empty({500}, kDouble), mean, std, low, high);
    const double side = low > mean ? -1 : 1;  // above the mean, the quantiles begin at the upper end
    const double from = below(side * ((side < 0 ? high : low) - mean) / std);
    const double to = below(side * ((side < 0 ? low : high) - mean) / std);
    for (int64_t i = 0; i < 500; ++i) {
      const double x = w[i].item<double>(), p = from + (to - from) * numbers[i].item<double>();
      REQUIRE(below(side * (x - mean) / std) == Approx(p).epsilon(1e-11).margin(0));
    }
  }
  CHECK(init::trunc_normal_(empty({3}), 0, 1, 0.5, 0.5).equal(full({3}, 0.5)));
  CHECK_THROWS_AS(init::trunc_normal_(empty({3}), 0, 0), ValueError);
  CHECK_THROWS_AS(init::trunc_normal_(empty({3}), 0, -1), ValueError);
}

TEST_CASE("orthogonal_ keeps the directions in which its normal numbers span the space") {
  for (const Shape& shape : {Shape{6, 4}, Shape{4, 6}, Shape{5, 5}}) {
    manual_seed(3);
    const int64_t rows = std::max(shape[0], shape[1]), columns = std::min(shape[0], shape[1]);
    const Tensor numbers = randn({rows, columns}, kDouble);
    manual_seed(3);
    Tensor q = init::orthogonal_(empty(shape, kDouble));
    if (shape[0] < shape[1]) q = q.t();
    const Tensor product = q.t().matmul(numbers);  // upper triangular, with a positive diagonal
    CHECK(product.allclose(triu(product), 0, 1e-12));
    CHECK((product.diagonal() > 0).all().item<bool>());
    CHECK(q.matmul(product).allclose(numbers, 0, 1e-12));
  }
  // Columns that nearly agree become orthogonal, too.
  manual_seed(5);
  const Tensor wide = init::orthogonal_(empty({60, 60}, kDouble));
  CHECK(wide.matmul(wide.t()).allclose(eye(60, kDouble), 0, 1e-13));
}

TEST_CASE("weights without elements or inputs are initialised with zeros or left alone") {
  CHECK(init::calculate_fan_in_and_fan_out(empty({4, 3})) == std::pair<int64_t, int64_t>(3, 4));
  CHECK(init::calculate_fan_in_and_fan_out(empty({4, 3, 5})) == std::pair<int64_t, int64_t>(15, 20));
  CHECK_THROWS_WITH(init::calculate_fan_in_and_fan_out(empty({4})), test::contains("(4,)"));
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{0, 0}}) {
    CHECK_NOTHROW(init::kaiming_normal_(empty(shape)));
    CHECK_NOTHROW(init::kaiming_uniform_(empty(shape), 0, kFanOut));
    CHECK_NOTHROW(init::xavier_normal_(empty(shape)));
    CHECK_NOTHROW(init::orthogonal_(empty(shape)));
  }
  CHECK(nn::Linear(0, 3)->bias.detach().equal(zeros({3})));
  CHECK(nn::Linear(1, 300)->bias.detach().abs().max().item<double>() > 0.9);
}

TEST_CASE("dirac_ keeps as many channels of each group as input and output share") {
  for (const Shape& shape : {Shape{4, 2, 3}, Shape{4, 3, 2}, Shape{6, 2, 3, 4}, Shape{2, 5, 1, 1}}) {
    const int64_t groups = 2, out = shape[0] / groups;
    const Tensor w = init::dirac_(ones(shape), groups);
    Tensor wanted = zeros(shape);
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t channel = 0; channel < std::min(out, shape[1]); ++channel) {
        Tensor kernel = wanted[group * out + channel][channel];
        if (shape.size() == 3) kernel[shape[2] / 2].fill_(1);
        else kernel[shape[2] / 2][shape[3] / 2].fill_(1);
      }
    CHECK(w.equal(wanted));
  }
  CHECK_THROWS_AS(init::dirac_(empty({4, 2, 3}), 0), ValueError);
  CHECK_THROWS_AS(init::dirac_(empty({3, 2, 3}), 2), ValueError);
  CHECK_THROWS_AS(init::dirac_(empty({4, 2, 3}), -2), ValueError);
}

TEST_CASE("sparse_ sets a part of each column to zero, rounded up, and draws the rest") {
  for (const auto& [sparsity, zeros] : {std::pair(0.0, 0), {0.1, 1}, {0.5, 3}, {0.9, 5}, {1.0, 5}}) {
    manual_seed(8);
    const Tensor numbers = randn({5, 400}, kDouble) * 0.5;
    manual_seed(8);
    const Tensor w = init::sparse_(empty({5, 400}, kDouble), sparsity, 0.5);
    CHECK((w == 0).to(kLong).sum(0).equal(full({400}, zeros, kLong)));
    CHECK(((w == 0) | (w == numbers)).all().item<bool>());
    if (zeros == 1) CHECK((w == 0).to(kFloat).mean(1).min().item<double>() > 0.1);  // in any row
  }
  CHECK_THROWS_AS(init::sparse_(empty({3, 3}), -0.1), ValueError);
}
