#include <gradus/autograd/ops/dropout.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/core/ops/dropout.h>

namespace gradus {
namespace {

struct DropoutBackward final : Node {  // dx = dy mask / (1 - p), linear in dy
  Saved mask{this, "mask"};
  double p = 0;
  Array forward(const Array& dy, const Array& kept, double probability) {
    mask = kept, p = probability;
    return ops::dropout_backward(dy, kept, p);
  }
  Grads backward(const Tensor& g) override {
    OpScope op("dropout_backward", Loc{});
    return {apply<DropoutBackward>(op, g, mask.array(), p)};
  }
};

struct Dropout final : Node {  // y = x mask / (1 - p)
  Saved mask{this, "mask"};
  double p = 0;
  Array forward(const Array& x, double probability) {
    p = probability;
    auto [y, kept] = ops::dropout(x, p);
    mask = kept;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    OpScope op("dropout_backward", Loc{});
    return {apply<DropoutBackward>(op, dy, mask.array(), p)};
  }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, bool train, Loc where) {
  OpScope op("dropout", where);
  GRADUS_CHECK(p >= 0 && p <= 1, ValueError, "dropout probability must be in [0, 1], got ", p);
  return train && p > 0 ? apply<Dropout>(op, x, p) : x;
}

}  // namespace gradus
