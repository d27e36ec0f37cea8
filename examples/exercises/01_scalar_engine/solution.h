#include "../common/exercise.h"

/// A computed number, with what backward() needs.
struct Step {
  double value = 0, gradient = 0;
  std::vector<std::shared_ptr<Step>> inputs;  // the numbers from which it was computed
  std::vector<double> derivatives;            // derivative of this number with respect to each input
};

class Number {
 public:
  Number(double value) : step_(std::make_shared<Step>()) { step_->value = value; }
  Number(double value, const std::vector<Number>& inputs, const std::vector<double>& derivatives) : Number(value) {
    for (const Number& input : inputs) step_->inputs.push_back(input.step_);
    step_->derivatives = derivatives;
  }
  double value() const { return step_->value; }
  double gradient() const { return step_->gradient; }

  /// Computes the gradient of every number from which this number was computed: the derivative of this number with
  /// respect to it.
  void backward() const;

 private:
  std::shared_ptr<Step> step_;
};

inline Number operator+(const Number& a, const Number& b) { return Number(a.value() + b.value(), {a, b}, {1, 1}); }

inline Number operator*(const Number& a, const Number& b) {
  // [hole] operator*: the value of a product and its derivatives by a and by b
  return Number(a.value() * b.value(), {a, b}, {b.value(), a.value()});
  // [end]
}

inline Number tanh(const Number& x) {
  // [hole] tanh: the value, and the derivative 1 - y²
  const double y = std::tanh(x.value());
  return Number(y, {x}, {1 - y * y});
  // [end]
}

inline void Number::backward() const {
  // [hole] backward: set gradients to zero, this one's to 1, and hand them on from the last step to the first
  std::vector<Step*> order;  // each number after its inputs
  std::set<Step*> seen;
  const std::function<void(Step*)> visit = [&](Step* step) {
    if (!seen.insert(step).second) return;
    for (const auto& input : step->inputs) visit(input.get());
    order.push_back(step);
  };
  visit(step_.get());

  for (Step* step : order) step->gradient = 0;
  step_->gradient = 1;
  for (auto step = order.rbegin(); step != order.rend(); ++step)
    for (size_t i = 0; i < (*step)->inputs.size(); ++i)
      (*step)->inputs[i]->gradient += (*step)->gradient * (*step)->derivatives[i];
  // [end]
}
