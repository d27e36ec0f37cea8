// The caching allocator: reuse per stream, statistics, record_stream, and running out of memory.
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

void* allocate(size_t bytes, const Stream& stream) { return cuda_runtime().allocate(bytes, stream); }
void release(void* data) { cuda_runtime().free(data); }

// Keeps a stream busy for a while by filling a large array.
void keep_busy(const Stream& stream, const Array& large) {
  cuda::StreamGuard guard(stream);
  for (int i = 0; i < 50; ++i) current_backend(DeviceType::cuda).fill(large, i);
}

}  // namespace

TEST_CASE("a freed block is given out again, on its own stream alone") {
  if (no_cuda_device()) return;
  const Stream stream = cuda::new_stream(), other = cuda::new_stream();
  void* block = allocate(100000, stream);
  CHECK(reinterpret_cast<uintptr_t>(block) % 64 == 0);
  release(block);
  const MemoryStats before = cuda::memory_stats();
  void* elsewhere = allocate(100000, other);
  CHECK(elsewhere != block);
  void* again = allocate(100001, stream);  // rounds to the same size
  CHECK(again == block);
  void* second = allocate(100000, stream);
  CHECK(second != block);
  const MemoryStats after = cuda::memory_stats();
  CHECK(after.allocations - before.allocations == 3);
  CHECK(after.system_allocations - before.system_allocations == 2);
  release(elsewhere), release(again), release(second);
  CHECK(allocate(0, stream) == nullptr);
  release(nullptr);
}

TEST_CASE("statistics follow what tensors hold and what the cache holds") {
  if (no_cuda_device()) return;
  cuda::synchronize();
  cuda::empty_cache();
  cuda::reset_peak_memory_stats();
  const int64_t held = cuda::memory_allocated(), reserved = cuda::memory_reserved();
  constexpr int64_t kMiB = 1 << 20;
  {
    const Array x = Array::empty({8 * kMiB}, DType::u8, cuda_device());
    CHECK(cuda::memory_allocated() - held == 8 * kMiB);
    CHECK(cuda::memory_reserved() - reserved == 8 * kMiB);
  }
  CHECK(cuda::memory_allocated() == held);
  CHECK(cuda::max_memory_allocated() - held == 8 * kMiB);
  CHECK(cuda::memory_reserved() - reserved == 8 * kMiB);
  {
    const Array fits_in_the_block = Array::empty({8 * kMiB - kMiB / 4 + 1}, DType::u8, cuda_device());
    CHECK(cuda::memory_allocated() - held == 8 * kMiB - kMiB / 4 + 512);
    CHECK(cuda::memory_reserved() - reserved == 8 * kMiB);
  }
  CHECK(cuda::memory_allocated() == held);
  cuda::empty_cache();
  CHECK(cuda::memory_reserved() == reserved);
  cuda::reset_peak_memory_stats();
  CHECK(cuda::max_memory_allocated() == held);
}

TEST_CASE("the memory summary tells the same for people") {
  if (no_cuda_device()) return;
  const Array x = Array::empty({3 << 20}, DType::u8, cuda_device());
  const MemoryStats stats = cuda::memory_stats();
  const std::string summary = cuda::memory_summary();
  for (int64_t bytes : {stats.allocated, stats.peak_allocated, stats.reserved, stats.peak_reserved})
    CHECK_THAT(summary, contains(format_bytes(bytes)));
  CHECK_THAT(summary, contains("cuda:" + std::to_string(cuda::current_device()) + " ") &&
                          contains(cuda_runtime().description(cuda::current_device())) &&
                          contains("by the driver " + std::to_string(stats.system_allocations)));
  CHECK_THROWS_AS(cuda::memory_summary(63), DeviceError);
}

TEST_CASE("record_stream keeps a block from reuse until that stream is done") {
  if (no_cuda_device()) return;
  const Stream stream = cuda::new_stream(), busy = cuda::new_stream();
  const Array large = Array::empty({int64_t{1} << 28}, DType::f32, cuda_device());
  void* block = allocate(1 << 20, stream);
  keep_busy(busy, large);
  cuda_runtime().record_stream(block, busy);
  release(block);
  void* next = allocate(1 << 20, stream);
  CHECK(next != block);
  cuda::synchronize();
  void* later = allocate(1 << 20, stream);
  CHECK(later == block);
  release(next), release(later);
}

TEST_CASE("out of memory: cached blocks are given back and the request repeated, else the error has the numbers") {
  if (no_cuda_device()) return;
  cuda::synchronize();
  cuda::empty_cache();
  const Stream stream = cuda::current_stream();
  // Find the largest size that can be allocated. A second block of three quarters of it does not fit beside the first.
  size_t bytes = size_t{1} << 42;
  void* block = nullptr;
  while (!block) {
    bytes -= bytes / 8;
    try {
      block = allocate(bytes, stream);
    } catch (const OutOfMemoryError&) {}
  }
  release(block);
  const int64_t retries = cuda::memory_stats().retries;
  block = allocate(bytes - bytes / 4, stream);  // too small to reuse the cached block, which has to be released
  CHECK(block != nullptr);
  CHECK(cuda::memory_stats().retries == retries + 1);
  CHECK_THROWS_AS(allocate(bytes, stream), OutOfMemoryError);
  CHECK_THROWS_WITH(allocate(bytes, stream), contains("cuda:") && contains("GiB") && contains("smaller batch"));
  CHECK_THROWS_AS(allocate(SIZE_MAX, stream), OutOfMemoryError);
  release(block);
  cuda::empty_cache();
  const Array works_again = Array::empty({1024}, DType::f32, cuda_device());
  CHECK(works_again.data() != nullptr);
}

TEST_CASE("page-locked memory is reused once its copies are done") {
  if (no_cuda_device()) return;
  DeviceRuntime& runtime = cuda_runtime();
  const Array large = Array::empty({int64_t{1} << 28}, DType::f32, cuda_device());
  const Array x = Array::empty({1000}, DType::f32, cuda_device());
  void* pinned = runtime.allocate_pinned(4000);
  keep_busy(cuda::current_stream(), large);
  runtime.copy(x.data(), x.device(), pinned, Device(), 4000, /*non_blocking=*/true);
  runtime.free_pinned(pinned);
  void* other = runtime.allocate_pinned(4000);
  CHECK(other != pinned);
  cuda::synchronize();
  void* again = runtime.allocate_pinned(4000);
  CHECK(again == pinned);
  runtime.free_pinned(other), runtime.free_pinned(again);
  CHECK(runtime.allocate_pinned(0) == nullptr);
  const Storage storage = Storage::allocate_pinned(100);
  CHECK(storage.pinned());
  CHECK(storage.device().is_cpu());
}
