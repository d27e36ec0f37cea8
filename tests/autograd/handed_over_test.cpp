// The backward of conv2d_relu applies the ReLU mask in place if nothing else holds the incoming gradient. A gradient
// that something else holds is not changed.
#include <gradus/autograd/autograd.h>
#include <gradus/autograd/function.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

// A depthwise channels-last convolution with six taps. Its backward needs a masked copy of dy, because the kernels of
// the GPU backends, and those of openmp for half types, do not apply the ReLU mask themselves.
struct Convolution {
  explicit Convolution(Device device, DType dtype = kFloat) {
    const auto images = [&](int64_t height) {
      return randn({4, 8, height, 8}).to(device, dtype).contiguous(MemoryFormat::channels_last);
    };
    x = images(9).set_requires_grad(true), dy = images(8);
    w = randn({8, 1, 2, 3}).to(device, dtype).set_requires_grad(true);
    bias = randn({8}).to(device, dtype).set_requires_grad(true);
  }
  Tensor operator()() const { return conv2d_relu(x, w, bias, 1, {0, 1}, 1, 8); }
  // Gradients of x, w and bias for the incoming gradient `given`, computed by conv2d and relu instead of conv2d_relu.
  TensorList expected(const Tensor& given) const {
    return autograd::grad({relu(conv2d(x, w, bias, 1, {0, 1}, 1, 8))}, {x, w, bias}, {given});
  }
  // Checks that the gradients for dy were added `times` times to the grad() of each leaf.
  void check_gradients(int times = 1) const {
    const TensorList wanted = expected(dy);
    const Tensor leaves[] = {x, w, bias};
    for (size_t i = 0; i < 3; ++i) CHECK(leaves[i].grad().allclose(wanted[i] * times, 1e-4, 1e-4));
  }

  Tensor x, w, bias, dy;
};

// An identity whose backward returns gradient() instead of the incoming gradient.
struct Replace : autograd::Function<Replace> {
  static inline Tensor (*gradient)();
  static Tensor forward(AutogradContext*, const Tensor& y) { return y * 1; }
  static TensorList backward(AutogradContext*, const TensorList&) { return {gradient()}; }
};

// Calls check(device) for every backend that is available.
template <class Check>
void on_every_backend(const Check& check) {
  for (const std::string& name : backend_names()) {
    const DeviceType type = backend(name).device_type();
    if (type == DeviceType::cuda && !cuda::is_available()) continue;
    DYNAMIC_SECTION(name) {
      const BackendGuard guard(name);
      check(Device(type, 0));
    }
  }
}

}  // namespace

TEST_CASE("a gradient that nothing else holds is masked in place") {
  const int threads = num_threads();
  set_num_threads(1);  // with several threads, scratch memory could be allocated at any time
  on_every_backend([](Device device) {
    const Convolution convolution(device, current_backend(device.type()).name() == "openmp" ? kBFloat16 : kFloat);
    Array kept;
    const auto peak = [&](bool keep) {
      const Tensor y = convolution();
      if (keep) y.register_hook([&](const Tensor& dy) { return kept = dy.array(), Tensor(); });
      const Tensor loss = (y * convolution.dy).sum();
      DeviceRuntime& memory = runtime(device.type());
      const int64_t before = memory.memory_stats(device.index()).allocated;
      memory.reset_peak_memory_stats(device.index());
      autograd::grad({loss}, {convolution.x, convolution.w, convolution.bias});
      return memory.memory_stats(device.index()).peak_allocated - before;
    };
    peak(true);  // the first pass also allocates memory that libraries keep
    kept = Array();
    const int64_t copied = peak(true);
    CHECK(Tensor(kept).equal(convolution.dy));
    kept = Array();
    CHECK(peak(false) == copied - static_cast<int64_t>(convolution.dy.array().nbytes()));
  });
  set_num_threads(threads);
}

TEST_CASE("gradients are correct when the incoming gradient is overwritten") {
  on_every_backend([](Device device) {
    const Convolution c(device);
    SECTION("with a retained graph") {
      const Tensor loss = (c() * c.dy).sum();
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      c.check_gradients(2);
    }
    SECTION("with the sum of the gradients of two uses") {
      const Tensor y = c();
      ((y * c.dy).sum() + (y * c.dy).sum()).backward();
      c.check_gradients(2);
    }
    SECTION("with a gradient in another layout, which is copied") {
      const Tensor y = c(), dy = c.dy.contiguous();
      const Tensor copy = dy.clone();
      y.backward(dy);
      CHECK(dy.equal(copy));
      c.check_gradients();
    }
    SECTION("in a checkpointed function") {
      const Tensor y = autograd::checkpoint([&](const Tensor&) { return c() * c.dy; }, c.x);
      y.sum().backward();
      c.check_gradients();
    }
    SECTION("with create_graph") {
      const Tensor loss = (c() * c.dy).sum();
      const TensorList wanted = c.expected(c.dy);
      const TensorList found = autograd::grad({loss}, {c.x, c.w, c.bias}, {}, std::nullopt, /*create_graph=*/true);
      for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].allclose(wanted[i], 1e-4, 1e-4));
      CHECK(found[0].requires_grad());
      const Tensor slope = autograd::grad({found[0].sum()}, {c.w})[0];
      const Tensor reference = (relu(conv2d(c.x, c.w, c.bias, 1, {0, 1}, 1, 8)) * c.dy).sum();
      const Tensor dx = autograd::grad({reference}, {c.x}, {}, std::nullopt, /*create_graph=*/true)[0];
      CHECK(slope.allclose(autograd::grad({dx.sum()}, {c.w})[0], 1e-4, 1e-4));
    }
  });
}

TEST_CASE("a gradient that something else holds is not changed") {
  on_every_backend([](Device device) {
    const Convolution c(device);
    const Tensor copy = c.dy.clone();
    const Tensor y = c();
    SECTION("the user's gradient") {
      y.backward(c.dy, /*retain_graph=*/true);
      CHECK(c.dy.equal(copy));
      y.backward(c.dy);
      c.check_gradients(2);
    }
    SECTION("the user's gradient, passed through other operators") {
      (y.view({4, 8, 64}) + 1).backward(c.dy.view({4, 8, 64}));
      c.check_gradients();
    }
    SECTION("the user's gradient, for selected inputs") {
      const TensorList found = autograd::grad({y}, {c.x, c.w, c.bias}, {c.dy});
      const TensorList wanted = c.expected(c.dy);
      for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].allclose(wanted[i], 1e-4, 1e-4));
    }
    SECTION("the user's gradient, passed directly to the node") {
      const Tensor own = c.dy.clone();
      Grads found;
      {
        const NoGradGuard no_grad;
        found = y.grad_fn()->backward(own);
      }
      CHECK(own.equal(copy));
      CHECK(found[0].allclose(c.expected(c.dy)[0], 1e-4, 1e-4));
    }
    SECTION("the gradient of two nodes") {
      const Tensor other = c();
      ((y + other) * c.dy).sum().backward();
      c.check_gradients(2);
    }
    SECTION("a gradient that a hook keeps") {
      Tensor seen;
      y.register_hook([&](const Tensor& dy) { return seen = dy, Tensor(); });
      (y * c.dy).sum().backward();
      CHECK(seen.equal(copy));
      c.check_gradients();
    }
    SECTION("a gradient kept by retain_grad") {
      y.retain_grad();
      (y * c.dy).sum().backward();
      CHECK(y.grad().equal(copy));
      c.check_gradients();
    }
    SECTION("a captured gradient") {
      const TensorList found = autograd::grad({(y * c.dy).sum()}, {y, c.x});
      CHECK(found[0].equal(copy));
      CHECK(found[1].allclose(c.expected(c.dy)[0], 1e-4, 1e-4));
    }
    SECTION("a gradient that a user-defined function keeps") {
      static Tensor own;
      own = c.dy;
      Replace::gradient = [] { return own; };
      Replace::apply(y).sum().backward();
      own = Tensor();
      c.check_gradients();
    }
    SECTION("memory that the user allocated") {
      static Array own;
      own = c.dy.array();
      Replace::gradient = [] {
        return Tensor(Array(Storage::adopt(own.data(), own.nbytes(), own.device(), {}), 0, own.shape(), own.strides(),
                            own.dtype()));
      };
      Replace::apply(y).sum().backward();
      own = Array();
      c.check_gradients();
    }
    CHECK(c.dy.equal(copy));
  });
}
