#include <gradus/autograd/ops/image.h>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/nn/image.h>

namespace gradus {
namespace {

struct RgbToGrayscale final : Node {  // y = 0.2989 R + 0.5870 G + 0.1140 B
  Array forward(const Array& x) { return ops::rgb_to_grayscale(x); }
  Grads backward(const Tensor& dy) override { return {cat({dy * 0.2989, dy * 0.5870, dy * 0.1140}, -3)}; }
};

}  // namespace

Tensor rgb_to_grayscale(const Tensor& x, Loc where) {
  OpScope op("rgb_to_grayscale", where);
  return apply<RgbToGrayscale>(op, x);
}

}  // namespace gradus
