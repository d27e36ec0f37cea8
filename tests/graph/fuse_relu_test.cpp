// Which ReLUs fuse_relu() merges with a convolution before them, or with its backward pass after theirs. The steps
// consist of single calls of the backend, so that they can use memory in all ways.
#include <gradus/graph/passes/passes.h>
#include <gradus/tests/graph/support.h>

using namespace gradus;
using test::contains;

namespace {

/// The calls of a step with images of shape (1, 2, size, size) and a convolution that keeps this shape.
struct ImageCalls {
  explicit ImageCalls(int64_t size = 4) : x(randn({1, 2, size, size})) {}
  Tensor image() const { return empty(x.sizes()); }
  void conv(const Tensor& to, bool has_relu = false) const {
    kernels().conv2d_bias_relu({.x = x.array(), .w = w.array(), .relu = has_relu, .y = to.array()});
  }
  void relu(const Tensor& from, const Tensor& to, UnaryOp op = UnaryOp::relu) const {
    kernels().unary(op, from.array(), to.array(), {});
  }
  void relu_backward(const Tensor& from, const Tensor& result, const Tensor& to, UnaryOp op = UnaryOp::relu) const {
    kernels().unary_backward(op, from.array(), result.array(), to.array(), {});
  }
  /// Writes the gradient of the convolution's input. `mask` may be Tensor().
  void conv_backward(const Tensor& from, const Tensor& to, const Tensor& mask = Tensor()) const {
    Conv2dBackwardArgs args{.dy = from.array(), .x = x.array(), .w = w.array(), .dx = to.array()};
    if (mask.defined()) args.y = mask.array();
    kernels().conv2d_bias_relu_backward(args);
  }
  void copy(const Tensor& from, const Tensor& to) const { kernels().copy(from.array(), to.array()); }
  static Backend& kernels() { return current_backend(DeviceType::cpu); }

  // From before the step. The kernel is a part of x, so that all memory is large if the images are.
  Tensor x, w = x.flatten().slice(0, 0, 4).reshape({2, 2, 1, 1});
  Tensor dy = randn(x.sizes()), saved = randn(x.sizes()), y = image(), z = image();
};

/// Returns true if fuse_relu() removes a call from the step. Checks the step's results `y` and `z`.
bool is_fused(const ImageCalls& calls, const std::function<void()>& step) {
  size_t before = 0, after = 0;
  const auto fuse_and_count = [&](graph::Graph& graph) {
    before = graph.calls().size();
    graph::fuse_relu(graph);
    after = graph.calls().size();
  };
  test::text_after(fuse_and_count, step, {calls.y, calls.z}, true);
  return after + 1 == before;
}

}  // namespace

TEST_CASE("a ReLU is merged with the convolution before it if nothing else reads the memory between them",
          "[graph_passes]") {
  const ImageCalls c;
  const auto simple = [&] {
    const Tensor a = c.image();
    c.conv(a);
    c.relu(a, c.y);
  };
  CHECK(is_fused(c, simple));
  CHECK_THAT(test::text_after(graph::fuse_relu, simple, {c.y}, true),
             contains("conv2d_bias_relu x %") && contains("relu true") && !contains("unary"));
  CHECK(is_fused(c, [&] {  // in place
    const Tensor a = c.image();
    c.conv(a);
    c.relu(a, a);
    c.copy(a, c.y);
  }));
  CHECK(is_fused(c, [&] {  // memory that has other contents before
    const Tensor a = c.image();
    c.copy(c.x, a);
    c.conv(a);
    c.relu(a, c.y);
  }));
  CHECK(is_fused(c, [&] {  // two ReLUs
    const Tensor a = c.image();
    c.conv(a, true);
    c.relu(a, c.y);
  }));
  CHECK_FALSE(is_fused(c, [&] {
    const Tensor a = c.image();
    c.conv(a);
    c.relu(a, c.y, UnaryOp::tanh);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // read later
    const Tensor a = c.image();
    c.conv(a);
    c.relu(a, c.y);
    c.copy(a, c.z);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // read before
    const Tensor a = c.image();
    c.conv(a);
    c.copy(a, c.z);
    c.relu(a, c.y);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // memory from before the step
    c.conv(c.z);
    c.relu(c.z, c.y);
  }));
}

TEST_CASE("ReLUs of large images are merged, too", "[graph_passes]") {
  const ImageCalls c(256);
  CHECK(is_fused(c, [&] {
    const Tensor a = c.image();
    c.conv(a);
    c.relu(a, c.y);
  }));
}

TEST_CASE("a merged ReLU does not overwrite memory early and is not computed of other elements", "[graph_passes]") {
  const ImageCalls c;
  CHECK_FALSE(is_fused(c, [&] {  // the old contents of y are read between the calls
    const Tensor a = c.image();
    c.conv(a);
    c.copy(c.y, c.z);
    c.relu(a, c.y);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // the ReLU writes another part of the same memory
    const Tensor a = empty({2, 2, 4, 4}), first = a.slice(0, 0, 1), second = a.slice(0, 1, 2);
    c.conv(first);
    c.relu(first, second);
    c.copy(first, c.y);
    c.copy(second, c.z);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // the ReLU reads another part of the same memory
    const Tensor a = empty({2, 2, 4, 4}), second = a.slice(0, 1, 2);
    c.copy(c.x, second);
    c.conv(a.slice(0, 0, 1));
    c.relu(second, c.y);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // the result is transposed
    const Tensor a = c.image();
    c.conv(a);
    c.relu(a, c.y.transpose(2, 3));
  }));
  CHECK_FALSE(is_fused(c, [&] {  // both are transposed
    const Tensor a = c.image();
    c.conv(a);
    c.relu(a.transpose(2, 3), c.y.transpose(2, 3));
  }));
}

TEST_CASE("the backward pass of a ReLU is merged with the convolution's, the only reader of its result",
          "[graph_passes]") {
  const ImageCalls c;
  graph::Graph graph = test::graph_of([&] {
    const Tensor d = c.image();
    c.relu_backward(c.dy, c.saved, d);
    ImageCalls::kernels().conv2d_bias_relu_backward(
        {.dy = d.array(), .x = c.x.array(), .w = c.w.array(), .dx = c.y.array(), .masked = d.array()});
  });
  graph::fuse_relu(graph);
  REQUIRE(graph.calls().size() == 1);
  CHECK(graph.calls()[0]->number == 1);
  CHECK(graph.calls()[0]->name == std::string("conv2d_bias_relu_backward"));
  const auto is_written = [](const graph::Operand& operand) { return operand.is_written; };
  CHECK(std::ranges::count_if(graph.calls()[0]->operands, is_written) == 2);  // dx and the memory for the masked dy
  CHECK(graph.calls()[0]->operands.size() == 6);

  CHECK(is_fused(c, [&] {
    const Tensor d = c.image();
    c.relu_backward(c.dy, c.saved, d);
    c.copy(c.dy, c.z);
    c.conv_backward(d, c.y);
  }));
  CHECK_FALSE(is_fused(c, [&] {
    const Tensor d = c.image();
    c.relu_backward(c.dy, c.saved, d, UnaryOp::sigmoid);
    c.conv_backward(d, c.y);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // the convolution has a mask already
    const Tensor d = c.image();
    c.relu_backward(c.dy, c.saved, d);
    c.conv_backward(d, c.y, c.x);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // memory from before the step
    c.relu_backward(c.dy, c.saved, c.z);
    c.conv_backward(c.z, c.y);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // read twice
    const Tensor d = c.image();
    c.relu_backward(c.dy, c.saved, d);
    c.conv_backward(d, c.y);
    c.copy(d, c.z);
  }));
  CHECK_FALSE(is_fused(c, [&] {  // not the gradient of the convolution's result
    const Tensor d = c.image();
    c.relu_backward(c.dy, c.saved, d);
    ImageCalls::kernels().conv2d_bias_relu_backward(
        {.dy = c.dy.array(), .x = c.x.array(), .w = c.w.array(), .y = d.array(), .dx = c.y.array()});
  }));
}

TEST_CASE("a merged backward pass of a ReLU reads its operands before they change, in the same layout",
          "[graph_passes]") {
  const ImageCalls c;
  for (const bool changes_dy : {false, true}) {
    const auto between = [&](bool is_by_reader) {
      const Tensor dy = c.image(), saved = c.image(), d = c.image(), changed = changes_dy ? dy : saved;
      c.copy(c.dy, dy), c.copy(c.saved, saved);
      c.relu_backward(dy, saved, d);
      if (!is_by_reader) c.copy(c.x, changed);
      c.conv_backward(d, is_by_reader ? changed : c.y);
      c.copy(changed, c.z);
    };
    CHECK_FALSE(is_fused(c, [&] { between(false); }));
    CHECK_FALSE(is_fused(c, [&] { between(true); }));
  }
  const auto backward = [&](const Tensor& dy, const Tensor& saved, bool is_transposed) {
    const Tensor d = c.image();
    c.relu_backward(dy, saved, d);
    c.conv_backward(is_transposed ? d.transpose(2, 3) : d, c.y);
  };
  CHECK(is_fused(c, [&] { backward(c.dy, c.saved, false); }));
  CHECK_FALSE(is_fused(c, [&] { backward(c.dy.transpose(2, 3), c.saved, false); }));
  CHECK_FALSE(is_fused(c, [&] { backward(c.dy, c.saved.transpose(2, 3), false); }));
  CHECK_FALSE(is_fused(c, [&] { backward(c.dy, c.saved, true); }));
}
