// LBFGS follows PyTorch's steps (golden/make_golden.py), with and without its line search.
#include <cmath>
#include <deque>
#include <sstream>

#include <gradus/autograd/archive.h>
#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/optim/optim.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

using namespace gradus;
using optim::LBFGS;
using optim::LBFGSOptions;
using test::contains;

namespace {

/// convex_loss of golden/make_golden.py, with the same initial values.
struct Valley {
  std::map<std::string, Array> golden =
      io::load_safetensors(test::source_path("tests/optim/golden/trajectories.safetensors"));
  Tensor weight = Tensor(golden.at("weight")).to(kDouble).set_requires_grad(true);
  Tensor bias = Tensor(golden.at("bias")).to(kDouble).set_requires_grad(true);
  int calls = 0;

  std::function<Tensor(const Tensor& all)> other_loss;  // of both parameters in a row; instead of convex_loss

  Tensor loss() const {
    if (other_loss) return other_loss(cat({weight.flatten(), bias}));
    const Tensor scaled = weight * arange(1, 13, kDouble).reshape({3, 4});
    return scaled.square().sum() / 2 + weight.pow(4).sum() / 10 + ((bias - weight.sum()).square() + 1).sqrt().sum();
  }
  std::function<Tensor()> closure() {
    return [this] {
      ++calls;
      weight.zero_grad(), bias.zero_grad();
      const Tensor value = loss();
      value.backward();
      return value;
    };
  }
  Tensor wanted(const std::string& name, int step) const { return Tensor(golden.at("lbfgs." + name))[step]; }
};

const std::vector<std::pair<std::string, LBFGSOptions>>& lbfgs_cases() {
  static const std::vector<std::pair<std::string, LBFGSOptions>> list = {
      {"plain", LBFGSOptions(0.3).max_iter(4)},
      {"short_history", LBFGSOptions(0.3).max_iter(5).history_size(2)},
      {"strong_wolfe", LBFGSOptions().max_iter(5).line_search_fn("strong_wolfe")},
      {"strong_wolfe_far", LBFGSOptions(30).max_iter(3).max_eval(9).line_search_fn("strong_wolfe")},
  };
  return list;
}

}  // namespace

TEST_CASE("LBFGS makes the steps and the closure calls of PyTorch's") {
  for (const auto& [name, options] : lbfgs_cases()) {
    Valley valley;
    LBFGS optimizer({valley.weight, valley.bias}, options);
    for (int step = 0; step < 8; ++step) {
      INFO(name << " step " << step);
      optimizer.step(valley.closure());
      CHECK(test::error(valley.weight, valley.wanted(name + ".weight", step)) < 1e-6);
      CHECK(test::error(valley.bias, valley.wanted(name + ".bias", step)) < 1e-6);
      CHECK(valley.calls == valley.wanted(name + ".calls", step).item<int>());
    }
  }
}

TEST_CASE("LBFGS searches along curved, wavy, steep and flat lines as PyTorch's does") {
  const std::map<std::string, std::function<Tensor(const Tensor&)>> losses = {
      {"valley",
       [](const Tensor& x) {
         const Tensor from = x.narrow(0, 0, 16), to = x.narrow(0, 1, 16);
         return (10 * (to - from.square()).square() + (1 - from).square()).sum();
       }},
      {"waves", [](const Tensor& x) { return (x.square() / 10 + 1 - (3 * x).cos()).sum(); }},
      {"steep", [](const Tensor& x) { return (x.exp() + (-3 * x).exp()).sum(); }},
      {"flat", [](const Tensor& x) { return (1 + 100 * x.square()).sqrt().sum() + (x[0] * x[1]).square(); }},
  };
  const std::map<std::string, double> rates = {{"short", 0.003}, {"near", 0.3}, {"far", 10}, {"very_far", 300}};
  for (const auto& [loss, function] : losses)
    for (const auto& [distance, lr] : rates) {
      Valley valley;
      valley.other_loss = function;
      LBFGS optimizer({valley.weight, valley.bias}, LBFGSOptions(lr).max_iter(4).line_search_fn("strong_wolfe"));
      for (int step = 0; step < 8; ++step) {
        INFO(loss << " " << distance << " step " << step);
        optimizer.step(valley.closure());
        const std::string name = loss + "." + distance;
        CHECK(test::error(valley.weight, valley.wanted(name + ".weight", step)) < 1e-6);
        CHECK(test::error(valley.bias, valley.wanted(name + ".bias", step)) < 1e-6);
        CHECK(valley.calls == valley.wanted(name + ".calls", step).item<int>());
      }
    }
}

TEST_CASE("LBFGS stops where the slope along its direction is within the tolerance") {
  Valley valley;
  LBFGS optimizer({valley.weight, valley.bias}, LBFGSOptions(0.3).max_iter(5).tolerance_change(1e9));
  const Tensor before = valley.weight.detach().clone();
  optimizer.step(valley.closure());
  CHECK(valley.calls == 1);
  CHECK(valley.weight.equal(before));
  CHECK(optimizer.state_dict()["state.n_iter"].item<int>() == 1);
}

TEST_CASE("LBFGS goes on until a gradient, a step or a change of the loss is within its tolerance") {
  // The calls of a closure that gets the number of earlier calls and returns a loss and the gradient, and the last x.
  // At most 3 calls are made, 5 / 4 of max_iter.
  const auto calls_of = [](const LBFGSOptions& options, const std::function<std::pair<double, double>(int)>& script) {
    const Tensor x = full({1}, 3.0, TensorOptions(kDouble).requires_grad(true));
    LBFGS optimizer({x}, options);
    int calls = 0;
    optimizer.step([&] {
      const auto [loss, gradient] = script(calls++);
      x.mutable_grad() = full({1}, gradient, kDouble);
      return full({}, loss, kDouble);
    });
    return std::pair(calls, x.item<double>());
  };
  const auto falling = [](double gradient, double by) {
    return [=](int call) { return std::pair(-by * call, gradient); };
  };
  const auto options = [](double lr) { return LBFGSOptions(lr).max_iter(3); };
  using Result = std::pair<int, double>;
  // The gradient at the beginning, and after a step.
  CHECK(calls_of(options(1).tolerance_grad(0.5), falling(0.5, 10)) == Result(1, 3));
  CHECK(calls_of(options(1).tolerance_grad(0.49), falling(0.5, 10)) == Result(3, 2));
  const auto flatter = [](int call) { return std::pair(-10.0 * call, call == 0 ? 1.0 : 0.5); };
  CHECK(calls_of(options(1).tolerance_grad(0.5), flatter) == Result(2, 2));
  CHECK(calls_of(options(1).tolerance_grad(0.49), flatter).first == 3);
  // A step of 1/4.
  CHECK(calls_of(options(0.5).tolerance_change(0.25), falling(0.5, 10)) == Result(2, 2.75));
  CHECK(calls_of(options(0.5).tolerance_change(0.24), falling(0.5, 10)) == Result(3, 2.5));
  // A change of the loss by 1/4.
  CHECK(calls_of(options(1).tolerance_change(0.25), falling(1, 0.25)) == Result(3, 1));
  CHECK(calls_of(options(1).tolerance_change(0.25), falling(1, 0.24)) == Result(2, 2));
  CHECK(calls_of(options(1).tolerance_change(0.25), falling(1, -0.24)) == Result(2, 2));
  CHECK(calls_of(options(1).max_eval(2), falling(1, 10)) == Result(2, 2));
}

TEST_CASE("LBFGS makes the same steps however its numbers are divided among tensors") {
  const auto run = [](const std::vector<Shape>& shapes, const LBFGSOptions& options) {
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (const Shape& shape : shapes) {
      const int64_t size = numel_of(shape);
      parts.push_back((arange(begin, begin + size, kDouble) / 3).view(shape).clone().set_requires_grad(true));
      begin += size;
    }
    const auto all = [&] {
      TensorList flat;
      for (const Tensor& part : parts) flat.push_back(part.flatten());
      return cat(flat);
    };
    const Tensor weights = arange(1, begin + 1, kDouble);
    LBFGS optimizer(parts, options);
    for (int step = 0; step < 2; ++step)
      optimizer.step([&] {
        optimizer.zero_grad();
        const Tensor x = all(), loss = (weights * (x - 1).square()).sum() + x.sum().square() / 7 + x.pow(4).sum() / 20;
        loss.backward();
        return loss;
      });
    return all().detach();
  };
  for (const LBFGSOptions& options :
       {LBFGSOptions(0.1).max_iter(4).history_size(2), LBFGSOptions().max_iter(4).line_search_fn("strong_wolfe")}) {
    const Tensor whole = run({{10}}, options);
    CHECK(run({{1}, {2, 2}, {5}}, options).equal(whole));
    CHECK(run({{3}, {0}, {}, {3, 2}}, options).equal(whole));
  }
}

TEST_CASE("LBFGS resumed from a state dict or an archive is bit-identical") {
  for (const auto& [name, options] : lbfgs_cases()) {
    INFO(name);
    Valley through, stopped;
    LBFGS optimizer({through.weight, through.bias}, options);
    for (int step = 0; step < 4; ++step) optimizer.step(through.closure());
    {
      LBFGS first({stopped.weight, stopped.bias}, options);
      for (int step = 0; step < 2; ++step) first.step(stopped.closure());
      std::stringstream stream;
      serialize::OutputArchive out;
      first.save(out);
      out.save_to(stream);
      serialize::InputArchive in;
      in.load_from(stream);
      LBFGS second({stopped.weight, stopped.bias}, options);
      second.load(in);
      for (int step = 0; step < 2; ++step) second.step(stopped.closure());
    }
    CHECK(through.weight.equal(stopped.weight));
    CHECK(through.bias.equal(stopped.bias));
  }
}

TEST_CASE("LBFGS: wrong calls and options are errors") {
  Valley valley;
  LBFGS optimizer({valley.weight, valley.bias}, LBFGSOptions());
  CHECK_THROWS_WITH(optimizer.step(), contains("needs a closure"));
  CHECK_THROWS_WITH(LBFGS({valley.weight}, LBFGSOptions().line_search_fn("armijo")), contains("armijo"));
  CHECK_THROWS_AS(LBFGS({valley.weight}, LBFGSOptions().max_iter(0)), ValueError);
  CHECK_THROWS_WITH(LBFGS({valley.weight}, LBFGSOptions().tolerance_grad(-1)), contains("tolerance_grad"));
  CHECK_THROWS_WITH(LBFGS({valley.weight}, LBFGSOptions().tolerance_change(-1)), contains("tolerance_change"));
  CHECK_THROWS_WITH(LBFGS({valley.weight}, LBFGSOptions().max_eval(0)), contains("max_eval"));
  CHECK_THROWS_WITH(LBFGS({valley.weight}, LBFGSOptions().history_size(0)), contains("history_size 0"));
  CHECK_NOTHROW(LBFGS({valley.weight}, LBFGSOptions(0).tolerance_grad(0).tolerance_change(0)));
  CHECK_THROWS_AS(LBFGS({valley.weight}, LBFGSOptions(-1)), ValueError);
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{valley.weight});
  groups.emplace_back(std::vector<Tensor>{valley.bias});
  CHECK_THROWS_WITH(LBFGS(std::move(groups), LBFGSOptions()), contains("one parameter group"));
  optimizer.step(valley.closure());
  LBFGS smaller({valley.bias}, LBFGSOptions());
  CHECK_THROWS_AS(smaller.load_state_dict(optimizer.state_dict()), ShapeError);
}

TEST_CASE("LBFGS: max_iter and history_size may be 1, and a state with incomplete pairs is an error") {
  Valley valley;
  LBFGS optimizer({valley.weight, valley.bias}, LBFGSOptions().max_iter(1).max_eval(1).history_size(1));
  for (int step = 0; step < 3; ++step) optimizer.step(valley.closure());
  const auto state = optimizer.state_dict();
  LBFGS same({valley.weight, valley.bias}, LBFGSOptions());
  same.load_state_dict(state);
  for (const char* without : {"state.old_stps", "state.old_dirs", "state.d"}) {
    LBFGS::StateDict wrong("optimizer state");
    for (const auto& item : state)
      if (item.key() != without) wrong.insert(item.key(), item.value());
    CAPTURE(without);
    CHECK_THROWS_AS(same.load_state_dict(wrong), ValueError);
  }
  LBFGS::StateDict more("optimizer state");  // one pair more, but only in one of the two entries
  for (const auto& item : state)
    more.insert(item.key(), item.key() == "state.old_dirs" ? cat({item.value(), item.value()}) : item.value());
  CHECK_THROWS_AS(same.load_state_dict(more), ValueError);
  LBFGS of_one({valley.weight}, LBFGSOptions()), resumed({valley.weight}, LBFGSOptions());
  for (int step = 0; step < 2; ++step) of_one.step(valley.closure());
  resumed.step(valley.closure());  // its own history does not survive the load
  resumed.load_state_dict(of_one.state_dict());
  for (const char* key : {"state.d", "state.prev_flat_grad", "state.old_stps", "state.old_dirs"}) {
    CAPTURE(key);
    CHECK(resumed.state_dict()[key].equal(of_one.state_dict()[key]));
  }
}

TEST_CASE("LBFGS stops at a slope of tolerance_change, and forgets its history when it loads a state") {
  const auto slope_quarter = [](const LBFGSOptions& options) {  // the gradient is 1/2, and so the slope -1/4
    const Tensor x = full({1}, 3.0, TensorOptions(kDouble).requires_grad(true));
    LBFGS optimizer({x}, options);
    optimizer.step([&] {
      x.mutable_grad() = full({1}, 0.5, kDouble);
      return x.detach().sum() * 0.5;
    });
    CHECK(optimizer.state_dict()["state.n_iter"].item<double>() == 1);
    return x.item<double>();
  };
  CHECK(slope_quarter(LBFGSOptions(1).max_iter(1).tolerance_change(0.25)) == 2.5);
  CHECK(slope_quarter(LBFGSOptions(1).max_iter(3).tolerance_change(0.26)) == 3);

  Valley one, other;
  LBFGS optimizer({one.weight, one.bias}, LBFGSOptions(0.3).max_iter(4));
  LBFGS loaded({other.weight, other.bias}, LBFGSOptions(0.3).max_iter(4));
  for (int step = 0; step < 2; ++step) optimizer.step(one.closure()), loaded.step(other.closure());
  loaded.load_state_dict(optimizer.state_dict());
  const auto state = optimizer.state_dict(), after = loaded.state_dict();
  REQUIRE(state.keys() == after.keys());
  for (const auto& item : state) CHECK(after[item.key()].equal(item.value()));
  CHECK(state["state.old_stps"].size(0) > 2);

  optimizer.param_groups()[0].set_options(std::make_unique<optim::AdamOptions>());
  CHECK_THROWS_WITH(optimizer.step(one.closure()), contains("AdamOptions") && contains("LBFGSOptions"));
}

TEST_CASE("options can be assigned through getters, compared, and defined for a new optimizer") {
  optim::SGDOptions options(0.1);
  options.momentum() = 0.5;
  CHECK(options.momentum() == 0.5);
  CHECK(options == optim::SGDOptions(0.1).momentum(0.5));
  CHECK_FALSE(options == optim::SGDOptions(0.1));
  CHECK_FALSE(static_cast<const optim::OptimizerOptions&>(options) == optim::AdamOptions(0.1));

  struct OwnOptions : optim::OptimizerCloneableOptions<OwnOptions> {
    GRADUS_ARG(double, lr) = 0.25;
  };
  struct Own : optim::Optimizer {
    explicit Own(std::vector<Tensor> params)
        : Optimizer({optim::OptimizerParamGroup(std::move(params))}, std::make_unique<OwnOptions>()) {}
    Tensor step(LossClosure) override {
      const NoGradGuard no_grad;
      for (auto& group : param_groups())
        for (Tensor& parameter : group.params()) parameter.sub_(parameter.grad(), group.options().get_lr());
      return {};
    }
  };
  const Tensor x = ones({2}, requires_grad());
  Own own({x}), other({x});
  x.sum().backward();
  own.step({});
  CHECK(x.equal(full({2}, 0.75)));
  own.set_lr(0.5);
  other.load_state_dict(own.state_dict());
  CHECK(other.param_groups()[0].options().get_lr() == 0.5);
}

namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
double largest(const Vector& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

/// A loss of two variables: returns its value and sets its gradient.
struct Loss {
  const char* name;
  double (*of)(const Vector& x, Vector& gradient);
  Vector start;
};

const std::vector<Loss>& losses() {
  static const std::vector<Loss> list = {
      {"Rosenbrock",
       [](const Vector& x, Vector& g) {
         const double a = 1 - x[0], b = x[1] - x[0] * x[0];
         g = {-2 * a - 400 * x[0] * b, 200 * b};
         return a * a + 100 * b * b;
       },
       {-1.2, 1}},
      {"waves",
       [](const Vector& x, Vector& g) {
         g = {std::cos(3 * x[0]) * 3 + 0.2 * x[0], -std::sin(2 * x[1]) * 2 + 0.4 * x[1]};
         return std::sin(3 * x[0]) + std::cos(2 * x[1]) + 0.1 * x[0] * x[0] + 0.2 * x[1] * x[1];
       },
       {1.3, 0.4}},
      {"almost flat",
       [](const Vector& x, Vector& g) {
         const double a = std::sqrt(1 + x[0] * x[0]), b = std::sqrt(1 + 4 * x[1] * x[1]);
         g = {x[0] / a, 4 * x[1] / b};
         return a + b;
       },
       {40, -7}},
      {"steep",
       [](const Vector& x, Vector& g) {
         const double a = std::exp(x[0]), b = std::pow(x[1], 3);
         g = {a - std::exp(-2 * x[0]) * 2, 4 * b};
         return a + std::exp(-2 * x[0]) + b * x[1];
       },
       {2, 1.5}},
      {"descent without an end",
       [](const Vector& x, Vector& g) {
         g = {-1 / (1 + std::exp(x[0])), -0.01};
         return std::log1p(std::exp(-x[0])) - 0.01 * x[1];
       },
       {-1, 0}},
      {"ripples",
       [](const Vector& x, Vector& g) {
         g = {2 * x[0] + 20 * std::cos(5 * x[0]), x[1] + 9 * std::cos(3 * x[1])};
         return x[0] * x[0] + 4 * std::sin(5 * x[0]) + 0.5 * x[1] * x[1] + 3 * std::sin(3 * x[1]);
       },
       {3, -2}},
      {"a plain behind a cliff",
       [](const Vector& x, Vector& g) {
         g = {x[0] < 1 ? -1 : 1e-9, 1e-3 * x[1]};
         return (x[0] < 1 ? -x[0] : -1 + 1e-9 * (x[0] - 1)) + 5e-4 * x[1] * x[1];
       },
       {0, 0.01}},
      {"a corner",
       [](const Vector& x, Vector& g) {
         const double side = x[0] < 0.3 ? -1 : 4;
         g = {side, 0.2 * x[1]};
         return side * (x[0] - 0.3) + 0.1 * x[1] * x[1];
       },
       {-2, 3}},
  };
  return list;
}

/// LBFGS as torch/optim/lbfgs.py has it, with numbers of the host.
class Reference {
 public:
  Reference(const Loss& loss, const LBFGSOptions& options)
      : x(loss.start), gradient_(2), loss_(loss), options_(options) {}

  void step() {
    double loss = evaluate(x);
    int64_t evaluations = 1;
    if (largest(gradient_) <= options_.tolerance_grad()) return;
    for (int64_t i = 1; i <= options_.max_iter(); ++i) {
      ++iterations_;
      if (iterations_ == 1) d_ = {-gradient_[0], -gradient_[1]};
      else find_direction();
      before_ = gradient_;
      const double loss_before = loss, slope = dot(gradient_, d_);
      t_ = options_.lr();
      if (iterations_ == 1) t_ *= std::min(1.0, 1 / (std::abs(gradient_[0]) + std::abs(gradient_[1])));
      if (slope > -options_.tolerance_change()) break;
      const int before_calls = calls;
      if (options_.line_search_fn()) loss = search(loss, slope);
      x = {x[0] + t_ * d_[0], x[1] + t_ * d_[1]};
      if (!options_.line_search_fn() && i != options_.max_iter()) loss = evaluate(x);
      evaluations += calls - before_calls;
      if (i == options_.max_iter() || evaluations >= options_.max_eval().value_or(options_.max_iter() * 5 / 4)) break;
      if (largest(gradient_) <= options_.tolerance_grad()) break;
      if (largest({d_[0] * t_, d_[1] * t_}) <= options_.tolerance_change()) break;
      if (std::abs(loss - loss_before) < options_.tolerance_change()) break;
    }
  }

  Vector x;
  int calls = 0;

 private:
  struct Point {
    double t, f, slope;
    Vector g;
  };

  double evaluate(const Vector& at) { return ++calls, loss_.of(at, gradient_); }
  Point point(double t) {
    const double f = evaluate({x[0] + t * d_[0], x[1] + t * d_[1]});
    return {t, f, dot(gradient_, d_), gradient_};
  }

  void find_direction() {
    const Vector s = {d_[0] * t_, d_[1] * t_}, y = {gradient_[0] - before_[0], gradient_[1] - before_[1]};
    if (dot(y, s) > 1e-10) {
      if (static_cast<int64_t>(history_.size()) == options_.history_size()) history_.pop_front();
      history_.emplace_back(s, y);
      scale_ = dot(y, s) / dot(y, y);
    }
    d_ = {-gradient_[0], -gradient_[1]};
    std::vector<double> weights(history_.size());
    for (size_t i = history_.size(); i-- > 0;) {
      const auto& [step, change] = history_[i];
      weights[i] = dot(step, d_) * (1 / dot(change, step));
      for (size_t k = 0; k < 2; ++k) d_[k] -= weights[i] * change[k];
    }
    for (double& value : d_) value *= scale_;
    for (size_t i = 0; i < history_.size(); ++i) {
      const auto& [step, change] = history_[i];
      const double weight = weights[i] - dot(change, d_) * (1 / dot(change, step));
      for (size_t k = 0; k < 2; ++k) d_[k] += weight * step[k];
    }
  }

  static double cubic(const Point& a, const Point& b, double low, double high) {
    const double d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t), square = d1 * d1 - a.slope * b.slope;
    if (!(square >= 0)) return (low + high) / 2;
    const double d2 = std::sqrt(square);
    const Point &left = a.t <= b.t ? a : b, &right = a.t <= b.t ? b : a;
    const double t = right.t - (right.t - left.t) * (right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2);
    return std::min(std::max(t, low), high);
  }

  /// Sets t and the gradient, and returns the loss there.
  double search(double f, double slope) {
    const Point start{0, f, slope, gradient_};
    Point previous = start, next = point(t_);
    std::vector<Point> bracket;
    int tries = 0;
    bool done = false;
    for (; tries < 25; ++tries) {
      if (next.f > f + 1e-4 * next.t * slope || (tries > 1 && next.f >= previous.f)) {
        bracket = {previous, next};
        break;
      }
      if (std::abs(next.slope) <= -0.9 * slope) {
        bracket = {next};
        done = true;
        break;
      }
      if (next.slope >= 0) {
        bracket = {previous, next};
        break;
      }
      const double t = cubic(previous, next, next.t + 0.01 * (next.t - previous.t), 10 * next.t);
      previous = next, next = point(t);
    }
    if (tries == 25) bracket = {start, next};
    bool little_progress = false;
    size_t low = bracket[0].f <= bracket.back().f ? 0 : 1, high = 1 - low;
    for (; !done && tries < 25; ++tries) {
      const double left = std::min(bracket[0].t, bracket[1].t), right = std::max(bracket[0].t, bracket[1].t);
      if ((right - left) * largest(d_) < options_.tolerance_change()) break;
      double t = cubic(bracket[0], bracket[1], left, right);
      const double margin = 0.1 * (right - left);
      if (std::min(right - t, t - left) < margin) {
        if (little_progress || t >= right || t <= left) {
          t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
          little_progress = false;
        } else {
          little_progress = true;
        }
      } else {
        little_progress = false;
      }
      next = point(t);
      if (next.f > f + 1e-4 * t * slope || next.f >= bracket[low].f) {
        bracket[high] = next;
        low = bracket[0].f <= bracket[1].f ? 0 : 1, high = 1 - low;
      } else {
        if (std::abs(next.slope) <= -0.9 * slope) done = true;
        else if (next.slope * (bracket[high].t - bracket[low].t) >= 0) bracket[high] = bracket[low];
        bracket[low] = next;
      }
    }
    const Point& found = bracket.size() == 1 ? bracket[0] : bracket[low];
    t_ = found.t, gradient_ = found.g;
    return found.f;
  }

  Vector gradient_, before_, d_;
  double t_ = 0, scale_ = 1;
  int64_t iterations_ = 0;
  std::deque<std::pair<Vector, Vector>> history_;
  const Loss& loss_;
  const LBFGSOptions options_;
};

}  // namespace

TEST_CASE("LBFGS makes the steps of PyTorch's program on many losses") {
  int cases = 0;
  for (const Loss& loss : losses())
    for (const double lr : {0.02, 0.3, 1.0, 2.5, 8.0, 300.0, 3e4})
      for (const LBFGSOptions& options :
           {LBFGSOptions(lr).max_iter(6), LBFGSOptions(lr).max_iter(3).history_size(1),
            LBFGSOptions(lr).max_iter(6).line_search_fn("strong_wolfe"),
            LBFGSOptions(lr).max_iter(4).max_eval(60).history_size(2).line_search_fn("strong_wolfe"),
            LBFGSOptions(lr).max_iter(9).tolerance_change(1e-3).tolerance_grad(0.05),
            LBFGSOptions(lr).max_iter(9).max_eval(40).tolerance_grad(0.3).line_search_fn("strong_wolfe")}) {
        CAPTURE(loss.name, lr, options.max_iter(), options.line_search_fn().has_value());
        Reference reference(loss, options);
        const Tensor x = tensor(loss.start, kDouble).set_requires_grad(true);
        LBFGS optimizer({x}, options);
        int calls = 0;
        for (int step = 0; step < 4; ++step) {
          reference.step();
          if (!std::isfinite(reference.x[0] + reference.x[1])) break;
          optimizer.step([&] {
            ++calls;
            Vector gradient;
            const Tensor at = x.detach();
            const double value = loss.of({at[0].item<double>(), at[1].item<double>()}, gradient);
            x.mutable_grad() = tensor(gradient, kDouble);
            return tensor(value, kDouble);
          });
          ++cases;
          REQUIRE(calls == reference.calls);
          for (int k = 0; k < 2; ++k) REQUIRE(x.detach()[k].item<double>() == reference.x[static_cast<size_t>(k)]);
        }
      }
  CHECK(cases > 600);
}
