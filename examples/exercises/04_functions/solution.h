#include "../common/exercise.h"

using gradus::Tensor;
using gradus::TensorList;
using gradus::autograd::AutogradContext;

struct Softplus : gradus::autograd::Function<Softplus> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return (1 + x.exp()).log();
  }
  static TensorList backward(AutogradContext* context, const TensorList& dy) {
    // [hole] Softplus::backward: dx from dy[0] and the x that was saved
    return {dy[0] * context->get_saved_variables()[0].sigmoid()};
    // [end]
  }
};

struct LayerNorm : gradus::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {  // (…, D)
    context->save_for_backward({x});
    return normalized(x).first;
  }
  /// Returns the result, and 1 / standard deviation of each row, (…, 1).
  static std::pair<Tensor, Tensor> normalized(const Tensor& x) {
    const Tensor centred = x - x.mean(-1, true), r = (centred.square().mean(-1, true) + 1e-5).rsqrt();
    return {centred * r, r};
  }
  static TensorList backward(AutogradContext* context, const TensorList& dy) {
    const auto [y, r] = normalized(context->get_saved_variables()[0]);
    // [hole] LayerNorm::backward: dx from dy[0], y and r; means over the last dimension, kept
    return {r * (dy[0] - dy[0].mean(-1, true) - y * (dy[0] * y).mean(-1, true))};
    // [end]
  }
};

struct Conv1d : gradus::autograd::Function<Conv1d> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w) {  // (N, C, L), (K, C, S)
    context->save_for_backward({x, w});
    const int64_t taps = w.size(2), length = x.size(2) - taps + 1;
    Tensor y = gradus::zeros({x.size(0), w.size(0), length}, x.options());  // (N, K, P)
    for (int64_t s = 0; s < taps; ++s) y = y + w.select(2, s).matmul(x.narrow(2, s, length));
    return y;
  }
  static TensorList backward(AutogradContext* context, const TensorList& dy) {
    const Tensor x = context->get_saved_variables()[0], w = context->get_saved_variables()[1];
    // [hole] Conv1d::backward: the list of dx, of x's shape, and dw, of w's
    const int64_t taps = w.size(2), length = dy[0].size(2);
    Tensor dx = gradus::zeros(x.sizes(), x.options());
    TensorList dw;
    for (int64_t s = 0; s < taps; ++s) {
      const Tensor part = w.select(2, s).t().matmul(dy[0]);  // (N, C, P), the gradient of the pixels under this tap
      dx = dx + gradus::pad(part, {s, taps - 1 - s});
      dw.push_back(dy[0].matmul(x.narrow(2, s, length).transpose(1, 2)).sum(0));  // (K, C)
    }
    return {dx, gradus::stack(dw, 2)};
    // [end]
  }
};
