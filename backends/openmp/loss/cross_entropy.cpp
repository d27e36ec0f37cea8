// The gradient of cross-entropy, row by row: dx = (softmax(x) - onehot(target)) dloss. Forward: naive/loss.cpp.
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {

using namespace openmp_detail;

void OpenmpBackend::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  const View &dloss = args.dloss, &x = args.log_probabilities, &target = args.target;
  const MutableView& dx = args.dx;
  EventScope event("cross_entropy_backward", "openmp", kernel_table().vectors, {&dloss, &x, &target, &dx},
                   3 * dx.numel());
  const int64_t size = dx.shape[1];
  visit_wide(dx.dtype, [&]<class C> {
    const auto exp = kernels_of<C>(kernel_table()).of(UnaryOp::exp).apply;
    parallel_each<C>(dx.shape[0], ceil_div(kGrain / 8, std::max<int64_t>(size, 1)), size, [&](int64_t i, C* buffer) {
      const int64_t c = naive_detail::class_of(target, i, args.ignore_index, size);
      C scale, weight;
      scale = *load_block(dloss, args.reduction == Reduction::none ? i * dloss.strides[0] : 0, 1, 1, &scale);
      if (args.reduction == Reduction::mean) scale /= *load_block(args.weight_sum, 0, 1, 1, &weight);
      exp(load_block(x, i * x.strides[0], x.strides[1], size, buffer), buffer, size, {});
      if (c >= 0) buffer[c] -= C(1);
      for (int64_t j = 0; j < size; ++j) buffer[j] = c < 0 ? C(0) : buffer[j] * scale;
      store_block(buffer, dx, i * dx.strides[0], dx.strides[1], size);
    });
  });
}

}  // namespace gradus
