// The errors of gradus::cuda on a machine without CUDA.
#include <gradus/core/runtime/cuda.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using gradus::test::contains;

TEST_CASE("without a device every call throws a DeviceError with the remedy") {
  if (cuda::is_available() && test::skip("a machine without CUDA devices")) return;
  CHECK(cuda::device_count() == 0);
  CHECK_THROWS_AS(cuda::synchronize(), DeviceError);
  CHECK_THROWS_WITH(cuda::synchronize(), contains("--device cpu"));
  CHECK_THROWS_AS(cuda::memory_stats(), DeviceError);
  CHECK_THROWS_WITH(cuda::memory_summary(), contains("--device cpu"));
  CHECK_THROWS_AS(cuda::max_memory_allocated(), DeviceError);
  CHECK_THROWS_AS(cuda::reset_peak_memory_stats(), DeviceError);
  CHECK_THROWS_AS(cuda::set_device(0), DeviceError);
  CHECK_THROWS_AS(cuda::empty_cache(), DeviceError);
  CHECK_THROWS_AS(cuda::current_stream(), DeviceError);
  CHECK_THROWS_AS(cuda::Event(), DeviceError);
  cuda::Graph graph;
  CHECK_THROWS_AS(graph.capture_begin(), DeviceError);
  CHECK_THROWS_WITH(graph.replay(), contains("capture first"));
  CHECK_THROWS_AS(Array::empty({2}, DType::f32, Device("cuda")), DeviceError);
}
