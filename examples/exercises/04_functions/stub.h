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
    todo("Softplus::backward: dx from dy[0] and the x that was saved");
  }
};

struct LayerNorm : gradus::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {  // (…, D)
    context->save_for_backward({x});
    return normalized(x).first;
  }
  /// The result, and 1 / standard deviation of each row, (…, 1).
  static std::pair<Tensor, Tensor> normalized(const Tensor& x) {
    const Tensor centred = x - x.mean(-1, true), r = (centred.square().mean(-1, true) + 1e-5).rsqrt();
    return {centred * r, r};
  }
  static TensorList backward(AutogradContext* context, const TensorList& dy) {
    const auto [y, r] = normalized(context->get_saved_variables()[0]);
    todo("LayerNorm::backward: dx from dy[0], y and r; means over the last dimension, kept");
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
    todo("Conv1d::backward: the list of dx, of x's shape, and dw, of w's");
  }
};
