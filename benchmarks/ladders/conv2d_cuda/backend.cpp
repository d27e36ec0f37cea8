#include <gradus/backends/cuda/conv2d/select.h>
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/benchmarks/ladders/conv2d_cuda/backend.h>
#include <gradus/benchmarks/ladders/conv2d_cuda/rungs.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/observer.h>

namespace gradus::ladders {
namespace {

class RungBackend final : public CudaBackend {
 public:
  explicit RungBackend(int number) : number_(number), name_("rung " + std::to_string(number)) {}
  std::string_view name() const override { return name_; }

  void conv2d_bias_relu(const Conv2dArgs& args) override {
    if (!fits(args) || !(run_one_of(kFloatRungs, args) || run_one_of(kHalfRungs, args)))
      CudaBackend::conv2d_bias_relu(args);
  }

 private:
  static bool fits(const Conv2dArgs& args) {
    const auto is_dense = [](const View& view) { return cuda_detail::ConvOperand(view).is_dense(true); };
    const Conv2dGeometry& g = args.geometry;
    return args.relu && args.bias && args.w.shape[2] == 3 && args.w.shape[3] == 3 && g.groups == 1 &&
           g.stride[0] * g.stride[1] * g.padding[0] * g.padding[1] * g.dilation[0] * g.dilation[1] == 1 &&
           args.bias.strides[0] == 1 && args.bias.dtype == args.y.dtype && is_dense(args.x) && is_dense(args.w) &&
           is_dense(args.y);
  }
  template <class T, size_t kRungs>
  bool run_one_of(const FpropRung<T> (&rungs)[kRungs], const Conv2dArgs& args) const {
    const auto size = [](const View& view, int axis) { return static_cast<int>(view.shape[axis]); };
    const ConvSize sizes{size(args.x, 0), size(args.x, 2), size(args.x, 3), size(args.x, 1), size(args.w, 0)};
    for (const FpropRung<T>& rung : rungs) {
      if (rung.number != number_ || args.y.dtype != dtype_of<T> || !rung.takes(sizes)) continue;
      EventScope event("conv2d_bias_relu", name_.c_str(), rung.name, {&args.x, &args.w, &args.y});
      const auto data = [](const View& view) { return static_cast<const T*>(view.data); };
      rung.run({sizes, data(args.x), data(args.w), data(args.bias), static_cast<T*>(args.y.data)}, args.y.device);
      return true;
    }
    return false;
  }

  int number_;
  std::string name_;
};

}  // namespace

void use_rung(int number) {
  GRADUS_CHECK(number >= 1 && number <= 7, ValueError, "the ladder has rungs 1 to 7, not ", number);
  auto backend = std::make_unique<RungBackend>(number);
  const std::string name(backend->name());
  register_backend(std::move(backend));
  set_backend(name);
}

}  // namespace gradus::ladders
