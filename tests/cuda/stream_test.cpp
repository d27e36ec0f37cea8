// Streams, events, copies and devices, and their errors.
#include <cstdlib>
#include <thread>

#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

TEST_CASE("copies between host and device keep the bytes") {
  if (no_cuda_device()) return;
  std::vector<int32_t> values(10007);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 2654435761u);
  const Array x = to_device(values), y = Array::empty(x.shape(), x.dtype(), x.device());
  cuda_runtime().copy(y.data(), y.device(), x.data(), x.device(), x.nbytes(), /*non_blocking=*/true);
  CHECK(to_host<int32_t>(y) == values);
  DeviceRuntime& runtime = cuda_runtime();
  auto* pinned = static_cast<int32_t*>(runtime.allocate_pinned(y.nbytes()));
  runtime.copy(pinned, Device(), y.data(), y.device(), y.nbytes(), /*non_blocking=*/true);
  cuda::synchronize();
  CHECK(std::vector<int32_t>(pinned, pinned + values.size()) == values);
  runtime.free_pinned(pinned);
}

TEST_CASE("a stream is current within its guard and on its thread") {
  if (no_cuda_device()) return;
  const Stream first = cuda::current_stream(), second = cuda::new_stream();
  CHECK(first.handle != nullptr);
  {
    cuda::StreamGuard guard(second);
    CHECK(cuda::current_stream() == second);
    std::thread([&] { CHECK(cuda::current_stream() == first); }).join();
  }
  CHECK(cuda::current_stream() == first);
  Stream legacy = first;
  legacy.handle = nullptr;
  CHECK_THROWS_AS(cuda_runtime().set_current_stream(legacy), DeviceError);
}

TEST_CASE("an event orders streams and measures time") {
  if (no_cuda_device()) return;
  const Stream side = cuda::new_stream();
  const Array x = Array::empty({int64_t{1} << 26}, DType::f32, cuda_device());
  const Array y = Array::empty(x.shape(), x.dtype(), x.device());
  Backend& backend = current_backend(DeviceType::cuda);
  cuda::Event start(true), filled(true), copied;
  CHECK(copied.query());
  start.record();
  for (int i = 0; i < 20; ++i) backend.fill(x, i);
  filled.record();
  {
    cuda::StreamGuard guard(side);
    filled.wait();
    backend.copy(x, y);
    copied.record();
  }
  copied.wait();
  CHECK(to_host<float>(y) == std::vector<float>(static_cast<size_t>(y.numel()), 19.0f));
  copied.synchronize();
  CHECK(copied.query());
  CHECK(start.elapsed_time(filled) > 0);
  CHECK_THROWS_WITH(start.elapsed_time(copied), contains("timing"));
  cuda::Event unused(true);
  CHECK_THROWS_WITH(start.elapsed_time(unused), contains("recorded"));
}

TEST_CASE("'cuda' without an index is the thread's current device") {
  if (no_cuda_device()) return;
  const int count = cuda::device_count(), before = cuda::current_device();
  for (int index = 0; index < count; ++index) {
    cuda::set_device(index);
    CHECK(Array::empty({2}, DType::f32, "cuda").device() == Device(kCUDA, index));
    CHECK(zeros({2}, kCUDA).device() == Device(kCUDA, index));
    const Tensor x = ones({3}).to("cuda");
    CHECK(x.device() == Device(kCUDA, index));
    CHECK(x.to("cuda").array().data() == x.array().data());  // no copy: x is already on the device
    CHECK(ones({3}).cuda().device() == Device(kCUDA, index));
  }
  cuda::set_device(count - 1);
  std::thread([] { CHECK(cuda::current_device() == 0); }).join();  // each thread has its own
  cuda::set_device(before);
}

TEST_CASE("several devices work in one process") {
  if (no_cuda_device()) return;
  if (cuda::device_count() < 2 && skip("2 CUDA devices")) return;
  const Tensor host = randn({300, 200});
  const Tensor first = host.to("cuda:0"), second = first.to("cuda:1");
  CHECK(second.device() == Device(kCUDA, 1));
  const Tensor products[] = {matmul(first, first.t()), matmul(second, second.t())};
  CHECK(products[0].cpu().equal(products[1].cpu()));
  CHECK(second.to("cuda:0").cpu().equal(host));
  CHECK_THROWS_AS(first + second, DeviceError);
  const MemoryStats before = cuda::memory_stats(0);
  const Tensor more = zeros({1 << 20}, Device("cuda:1"));
  CHECK(cuda::memory_stats(0).allocated == before.allocated);
  cuda::synchronize(0), cuda::synchronize(1);
}

TEST_CASE("devices that do not exist are named") {
  if (no_cuda_device()) return;
  CHECK(cuda::device_count() >= 1);
  CHECK_THROWS_AS(cuda::synchronize(63), DeviceError);
  CHECK_THROWS_WITH(cuda::set_device(63), contains("cuda:63") && contains("this machine has"));
  CHECK_THROWS_AS(cuda::memory_stats(-2), DeviceError);
  CHECK_THROWS_AS(Array::empty({2}, DType::f32, Device(DeviceType::cuda, 63)), DeviceError);
  CHECK(Array::empty({2}, DType::f32, Device(DeviceType::cuda, -1)).device() == cuda_device());
  const std::string description = cuda_runtime().description(0);
  CHECK_THAT(description, contains("GiB, sm_"));
  // The capability that decisions use is that of the code that runs.
  const int code = number_behind(backend("cuda").libraries(), "kernels for sm_"), used = cuda_capability();
  const int real = std::stoi(description.substr(description.find("sm_") + 3));
  CHECK(used <= code);
  if (!std::getenv("GRADUS_CUDA_MAX_CAPABILITY")) CHECK(used == std::min(code, real));
}
