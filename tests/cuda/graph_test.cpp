// Captured graphs: results with the same bits as eager work, the graph's own memory, random numbers that continue from
// replay to replay, and errors for what cannot be captured.
#include <gradus/core/op_lists.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

Backend& cuda_backend() { return current_backend(DeviceType::cuda); }

Array empty_on_device(const Shape& shape, DType dtype = DType::f32) {
  return Array::empty(shape, dtype, cuda_device());
}

// y = sigmoid(dropout(x w)), and a random permutation, with scratch memory in between.
void random_step(const Array& x, const Array& w, const Array& mask, const Array& y) {
  const Array product = empty_on_device(y.shape());
  cuda_backend().matmul(x, w, product, false);
  cuda_backend().dropout(product, 0.4, default_generator().next(), mask, y);
  cuda_backend().unary(UnaryOp::sigmoid, y, y, {});
  cuda_backend().randperm(empty_on_device({100}, DType::i64), default_generator().next());
}

}  // namespace

TEST_CASE("a replay does what was recorded, with the values that it finds") {
  if (no_cuda_device()) return;
  const Array x = to_device(std::vector<float>{1, 2, 3}), y = to_device(std::vector<float>{0, 0, 0});
  cuda::Graph graph;
  graph.capture([&] {
    CHECK(cuda_runtime().capturing());
    const Array twice = empty_on_device({3});
    cuda_backend().binary(BinaryOp::add, x, x, twice);
    cuda_backend().binary(BinaryOp::add, y, twice, y);
  });
  CHECK_FALSE(cuda_runtime().capturing());
  CHECK(to_host<float>(y) == std::vector<float>{0, 0, 0});  // recorded, not run
  graph.replay();
  graph.replay();
  CHECK(to_host<float>(y) == std::vector<float>{4, 8, 12});
  cuda_backend().fill(x, 1);
  graph.replay();
  CHECK(to_host<float>(y) == std::vector<float>{6, 10, 14});
  const Stream side = cuda::new_stream();
  cuda::synchronize();
  {
    cuda::StreamGuard guard(side);
    graph.replay();
    CHECK(to_host<float>(y) == std::vector<float>{8, 12, 16});
  }
}

TEST_CASE("replays draw the random numbers that eager steps would draw") {
  if (no_cuda_device()) return;
  const Array x = empty_on_device({37, 64}), w = empty_on_device({64, 50});
  const Array y = empty_on_device({37, 50}), mask = empty_on_device({37, 50}, DType::boolean);
  const RandomState state{7, 1, nullptr};
  cuda_backend().normal(x, state, 0, 1);
  cuda_backend().normal(w, state, 0, 1);
  manual_seed(11);
  std::vector<std::vector<float>> eager;
  for (int step = 0; step < 4; ++step) {
    random_step(x, w, mask, y);
    eager.push_back(to_host<float>(y));
  }
  CHECK(eager[0] != eager[1]);
  manual_seed(11);
  cuda::Graph graph;
  graph.capture([&] { random_step(x, w, mask, y); });
  CHECK(default_generator().offset() == 0);
  graph.replay();
  CHECK(to_host<float>(y) == eager[0]);
  graph.replay();
  CHECK(to_host<float>(y) == eager[1]);
  random_step(x, w, mask, y);  // an eager step continues the random numbers of the replays
  CHECK(to_host<float>(y) == eager[2]);
  graph.replay();
  CHECK(to_host<float>(y) == eager[3]);
}

TEST_CASE("a graph keeps its memory from others and gives it back") {
  if (no_cuda_device()) return;
  cuda::synchronize();
  cuda::empty_cache();
  const int64_t reserved = cuda::memory_reserved();
  const Array x = to_device(std::vector<float>(1 << 20, 1.0f)), y = to_device(std::vector<float>(1 << 20, 0.0f));
  const int64_t with_inputs = cuda::memory_reserved();
  Array kept;
  {
    cuda::Graph graph;
    graph.capture([&] {
      for (int i = 0; i < 3; ++i) {  // all three use the same scratch block, which is reused within the capture
        const Array scratch = empty_on_device({1 << 20});
        cuda_backend().binary(BinaryOp::add, x, y, scratch);
        cuda_backend().copy(View(scratch), y);
      }
      kept = empty_on_device({1 << 20});
      cuda_backend().copy(View(y), kept);
    });
    CHECK(cuda::memory_reserved() - with_inputs <= 2 * (4 << 20) + 4096);
    const Array other = empty_on_device({1 << 20});  // is not allocated in the graph's memory
    cuda_backend().fill(other, 100);
    graph.replay();
    CHECK(to_host<float>(other)[5] == 100.0f);
    CHECK(to_host<float>(kept)[5] == 3.0f);
  }
  CHECK(to_host<float>(kept)[7] == 3.0f);  // the result outlives the graph
  kept = Array();
  cuda::empty_cache();
  CHECK(cuda::memory_reserved() == with_inputs);
  CHECK(with_inputs > reserved);
}

TEST_CASE("what waits for the device cannot be captured, and says so; the thread can go on") {
  if (no_cuda_device()) return;
  const Array x = to_device(std::vector<float>{1, 2, 3});
  cuda::Graph graph;
  CHECK_THROWS_AS(graph.capture([&] { to_host<float>(x); }), DeviceError);
  CHECK_FALSE(cuda_runtime().capturing());
  CHECK_THROWS_WITH(graph.capture([&] { to_host<float>(x); }), contains("captured graph"));
  CHECK_THROWS_AS(graph.capture([&] { cuda::synchronize(); }), DeviceError);
  CHECK_THROWS_AS(graph.capture([&] { throw ValueError("the user's"); }), ValueError);
  CHECK_THROWS_WITH(graph.replay(), contains("capture first"));
  CHECK_THROWS_AS(graph.capture_end(), DeviceError);

  graph.capture([&] {
    cuda::Graph nested;
    CHECK_THROWS_WITH(nested.capture_begin(), contains("do not nest"));
    cuda_backend().binary(BinaryOp::add, x, x, x);
  });
  CHECK_THROWS_WITH(graph.capture_begin(), contains("reset()"));
  graph.replay();
  CHECK(to_host<float>(x) == std::vector<float>{2, 4, 6});
  graph.reset();
  CHECK_THROWS_AS(graph.replay(), DeviceError);
  graph.capture([&] { cuda_backend().fill(x, 5); });
  graph.replay();
  CHECK(to_host<float>(x) == std::vector<float>{5, 5, 5});
}
