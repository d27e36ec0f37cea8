// A recorded graph as text and in Graphviz's language.
#include <gradus/tests/graph/support.h>

using namespace gradus;
using test::contains;

TEST_CASE("arguments of all kinds are printed", "[graph]") {
  const Tensor x = randn({4, 6}), index = tensor({2, 0}, kLong), images = randn({1, 2, 5, 5});
  graph::Recorder recorder;
  const Tensor odd = x.transpose(0, 1).slice(0, 1, 6, 2);  // has strides and an offset
  TensorList results = {(odd * 0.1).clamp(-1, 1),
                        x.index_select(1, index),
                        std::get<0>(x.sort(1)),
                        x.argmax(1),
                        x.cumsum(0),
                        dropout(x, 0.25),
                        rand({3}),
                        x + tensor({1.5f, 2, 3, 4, 5, 6}),
                        x.to(kLong) + 3,
                        adaptive_avg_pool2d(images, 3),
                        x.pow(2).sum(1),
                        x.flip(1)};
  graph::Graph graph = recorder.finish();
  graph.set_name(x.array(), "x");
  graph.set_result(results[0].array());
  CHECK_THAT(graph.str(), contains("%0 = external x, 96 bytes\n") && contains(" strides (2, 6) float32") &&
                              contains("+4 (") && contains("p 0.25") && contains(" = constant, 24 bytes\n") &&
                              contains(" = result, ") && contains("op argmax") && contains("scalar 3,") &&
                              contains("scalar 0.1,") && contains("rows.begin [0, ") &&
                              contains("state.device_offset true"));
  CHECK_THAT(graph.dot(), contains("digraph step {") && contains("label=\"arg_reduce\"") &&
                              contains("[shape=ellipse, label=\"x\"]") && contains("[label=\"(4, 6) float32\"]"));
}

TEST_CASE("a graph's text has the documented form", "[graph]") {
  const Tensor x = randn({4, 3}), w = randn({3, 2}), y = empty({2, 4});
  graph::Graph graph = test::graph_of([&] {
    const OpContext context("matmul", {"/home/a.cpp", 41});
    Backend& kernels = current_backend(DeviceType::cpu);
    const Array product = Array::empty({4, 2});
    kernels.matmul(x.array(), w.array(), product, false);
    kernels.unary(UnaryOp::relu, product, product, {});
    kernels.copy(product, y.transpose(0, 1).array());
    kernels.unary(UnaryOp::abs, x.array(), x.array(), {});
  });
  graph.set_name(x.array(), "x"), graph.set_name(w.array(), "w");
  graph.set_name(randn({2}).array(), "other");  // no call uses it
  CHECK(graph.str() ==
        "%0 = external x, 48 bytes\n"
        "%1 = external w, 24 bytes\n"
        "%2 = external, 32 bytes\n"
        "y %3 (4, 2) float32 = matmul a %0 (4, 3) float32, b %1 (3, 2) float32, accumulate false  # matmul, a.cpp:41\n"
        "y %3 (4, 2) float32 = unary op relu, x %3 (4, 2) float32, a 0, b 0  # matmul, a.cpp:41\n"
        "y %2 (4, 2) strides (1, 4) float32 = copy x %3 (4, 2) float32  # matmul, a.cpp:41\n"
        "y %0 (4, 3) float32 = unary op abs, x %0 (4, 3) float32, a 0, b 0  # matmul, a.cpp:41\n");
  const auto node_of = [&](const Tensor& tensor) {
    return "buffer" + std::to_string(graph.buffer_of(tensor.data_ptr()) - graph.buffers().data());
  };
  CHECK(graph.dot() ==
        "digraph step {\n  node [shape=box];\n"
        "  call0 [label=\"matmul\", tooltip=\"matmul, a.cpp:41\"];\n  " +
            node_of(x) + " [shape=ellipse, label=\"x\"];\n  " + node_of(x) +
            " -> call0 [label=\"(4, 3) float32\"];\n  " + node_of(w) + " [shape=ellipse, label=\"w\"];\n  " +
            node_of(w) +
            " -> call0 [label=\"(3, 2) float32\"];\n"
            "  call1 [label=\"unary\", tooltip=\"matmul, a.cpp:41\"];\n"
            "  call0 -> call1 [label=\"(4, 2) float32\"];\n  call0 -> call1 [label=\"(4, 2) float32\"];\n"
            "  call2 [label=\"copy\", tooltip=\"matmul, a.cpp:41\"];\n"
            "  call1 -> call2 [label=\"(4, 2) float32\"];\n  " +
            node_of(y) + " [shape=ellipse, label=\"\"];\n  " + node_of(y) +
            " -> call2 [label=\"(4, 2) float32\"];\n  call3 [label=\"unary\", tooltip=\"matmul, a.cpp:41\"];\n  " +
            node_of(x) + " -> call3 [label=\"(4, 3) float32\"];\n  " + node_of(x) +
            " -> call3 [label=\"(4, 3) float32\"];\n}\n");
}

TEST_CASE("a graph's text shows values by their types, offsets in bytes, and where each call comes from", "[graph]") {
  const Tensor flags = zeros({4}, kBool), numbers = zeros({4});
  graph::Graph graph = test::graph_of([&] {
    const OpContext context("marks", {"first.cpp", 1});
    Backend& kernels = current_backend(DeviceType::cpu);
    kernels.fill(flags.slice(0, 1).array(), true);
    kernels.fill(flags.array(), false);
    kernels.fill(numbers.array(), 7);
    kernels.fill(numbers.array(), 0.5);
    const ModuleFrame frame(nullptr, [](const void*) { return std::string("body.0"); });
    const OpContext without_place("inner");
    kernels.fill(numbers.slice(0, 1, 2).array(), 1);
  });
  graph.set_result(flags.array());  // memory from before the step stays external
  CHECK(graph.str() ==
        "%0 = external, 4 bytes\n%1 = external, 16 bytes\n"
        "y %0+1 (3,) bool = fill value true  # marks, first.cpp:1\n"
        "y %0 (4,) bool = fill value false  # marks, first.cpp:1\n"
        "y %1 (4,) float32 = fill value 7  # marks, first.cpp:1\n"
        "y %1 (4,) float32 = fill value 0.5  # marks, first.cpp:1\n"
        "y %1+4 (1,) float32 = fill value 1  # marks of body.0, first.cpp:1\n");
  CHECK(graph::Origin{"inner", "", {"", 0}}.str() == "inner");
}

TEST_CASE("a graph finds the buffer of each byte in it", "[graph]") {
  const Tensor x = zeros({8}, kByte);
  const graph::Graph graph =
      test::graph_of([&] { current_backend(DeviceType::cpu).fill(x.array().slice(0, 2, 6), 1); });
  REQUIRE(graph.buffers().size() == 1);
  const auto* const data = static_cast<const char*>(x.data_ptr());
  for (int i = 0; i < 8; ++i) CHECK((graph.buffer_of(data + i) == graph.buffers().data()) == (i >= 2 && i < 6));
  CHECK_FALSE(graph.buffer_of(nullptr));
}

TEST_CASE("the extent of a layout is the range of bytes from its first element", "[graph]") {
  const auto extent = [](const Shape& shape, const Strides& strides, DType dtype = DType::f32) {
    StridedLayout layout;
    layout.shape = shape, layout.strides = strides, layout.dtype = dtype;
    const graph::Extent found = graph::extent_of(layout);
    return std::pair(found.begin, found.end);
  };
  const auto is = [](int64_t begin, int64_t end) { return std::pair(begin, end); };
  CHECK(extent({}, {}) == is(0, 4));
  CHECK(extent({0, 3}, {3, 1}) == is(0, 0));
  CHECK(extent({2, 3}, {3, 1}) == is(0, 24));
  CHECK(extent({2, 3}, {3, 1}, DType::f64) == is(0, 48));
  CHECK(extent({2, 3}, {-3, 1}) == is(-12, 12));
  CHECK(extent({2, 3}, {10, 0}, DType::u8) == is(0, 11));
  CHECK(extent({1, 1, 1, 1, 1, 1, 2, 3}, {6, 6, 6, 6, 6, 6, 3, 1}) == is(0, 24));
}

TEST_CASE("a layout is dense if its elements fill a block of memory in any order", "[graph]") {
  const auto is_dense = [](const Shape& shape, const Strides& strides) {
    StridedLayout layout;
    layout.shape = shape, layout.strides = strides;
    return graph::is_dense(layout);
  };
  CHECK(is_dense({}, {}));
  CHECK(is_dense({2, 3}, {3, 1}));
  CHECK(is_dense({2, 3}, {1, 2}));
  CHECK(is_dense({2, 1, 3}, {3, 0, 1}));
  CHECK_FALSE(is_dense({2, 3}, {4, 1}));
  CHECK_FALSE(is_dense({2, 2}, {0, 3}));
  CHECK_FALSE(is_dense({2, 2}, {3, 0}));
  CHECK_FALSE(is_dense({4}, {-1}));
  CHECK(is_dense({1, 1, 1, 1, 1, 1, 2, 3}, {6, 6, 6, 6, 6, 6, 3, 1}));
}

TEST_CASE("an array of a step that is kept without values is an error that names it", "[graph]") {
  const Tensor x = randn({2});
  Tensor computed, uncomputed;
  graph::Graph graph = test::graph_of([&] {
    uncomputed = empty({3});
    const Tensor unused = x + 1;
  });
  CHECK_NOTHROW(graph.check_released());  // no call uses it, and its memory is usable
  Tensor other;
  graph = test::graph_of([&] {
    uncomputed = empty({3});
    computed = x + 1, computed = computed * 2;
    other = empty({3});
  });
  CHECK_THROWS_WITH(graph.check_released(), contains("the result of 'mul' at") && contains("graph_test.cpp:"));
  computed = Tensor();
  CHECK_NOTHROW(graph.check_released());
  graph = test::graph_of([&] { computed = x + 1; });
  CHECK_THROWS_WITH(graph.check_released(), contains("the result of 'add' at"));  // of the first call
  graph.set_calls({});
  CHECK_THROWS_WITH(graph.check_released(), contains("an array of 8 bytes that the step made without computing"));
}
