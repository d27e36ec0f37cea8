#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using gradus::test::contains;

TEST_CASE("views share storage and version; slices of a storage have a version of their own") {
  const Array x = Array::empty({4, 4});
  const Array row = x.select(0, 1);
  row.bump_version();
  CHECK(x.version() == 1);
  CHECK(x.storage() == row.storage());

  const Storage part = x.storage().slice(16, 16);
  const Array piece(part, 0, {4}, {1}, DType::f32);
  CHECK(piece.data() == x.select(0, 1).data());
  piece.bump_version();
  CHECK(piece.version() == 1);
  CHECK(x.version() == 1);
  x.bump_version();
  CHECK(piece.version() == 1);
  CHECK_FALSE(part == x.storage());
  CHECK_THROWS_AS(x.storage().slice(60, 8), ShapeError);
  CHECK_THROWS_AS(x.storage().slice(65, 0), ShapeError);
  CHECK_THROWS_AS(x.storage().slice(8, SIZE_MAX), ShapeError);
}

TEST_CASE("a slice keeps its memory alive, and slices of slices too") {
  const MemoryStats before = runtime(DeviceType::cpu).memory_stats(0);
  Storage inner;
  {
    const Storage whole = Storage::allocate(1 << 20, {});
    std::memset(whole.data(), 7, whole.bytes());
    inner = whole.slice(1 << 10, 1 << 12).slice(8, 8);
  }
  CHECK(runtime(DeviceType::cpu).memory_stats(0).allocated >= before.allocated + (1 << 20));
  CHECK(static_cast<char*>(inner.data())[0] == 7);
  inner = Storage();
  CHECK(runtime(DeviceType::cpu).memory_stats(0).allocated == before.allocated);
}

TEST_CASE("adopted memory is released once, by the last owner") {
  int returned = 0;
  float numbers[4] = {1, 2, 3, 4};
  {
    const Storage storage =
        Storage::adopt(numbers, sizeof numbers, {}, [&](void* data) { returned += data == numbers; });
    const Storage another = storage;
    CHECK(another.use_count() == 2);
    CHECK(Array(another, 1, {3}, {1}, DType::f32).data<float>()[0] == 2);
  }
  CHECK(returned == 1);
  Storage::adopt(numbers, sizeof numbers, {}, {});
}

TEST_CASE("empty and undefined storages are harmless") {
  const Storage nothing = Storage::allocate(0, {});
  CHECK(nothing.data() == nullptr);
  CHECK(static_cast<bool>(nothing));
  const Storage undefined;
  CHECK_FALSE(static_cast<bool>(undefined));
  CHECK(undefined.bytes() == 0);
  undefined.bump_version();
  CHECK(undefined.version() == 0);
  undefined.record_stream({});
  const Storage pinned = Storage::allocate_pinned(100);
  CHECK(pinned.pinned());
  CHECK(pinned.device().is_cpu());
  CHECK(pinned.slice(1, 2).pinned());
  CHECK(Storage::allocate_pinned(0).data() == nullptr);
}

TEST_CASE("storage is exclusive while a single handle on a single stream refers to the allocator's bytes") {
  const Storage storage = Storage::allocate(64, {});
  CHECK(storage.is_exclusive());
  {
    const Storage shared = storage;
    CHECK_FALSE(storage.is_exclusive());
  }
  CHECK(storage.is_exclusive());
  {
    const Storage part = storage.slice(0, 16);
    CHECK_FALSE(part.is_exclusive());
    CHECK_FALSE(storage.is_exclusive());
  }
  CHECK(storage.is_exclusive());
  storage.slice(0, 16).record_stream({});
  CHECK_FALSE(storage.is_exclusive());
  CHECK_FALSE(Storage::adopt(storage.data(), 64, {}, {}).is_exclusive());
  CHECK_FALSE(Storage().is_exclusive());
}

TEST_CASE("the cpu allocator reuses freed blocks, counts bytes and aligns to 64 bytes") {
  const std::unique_ptr<DeviceRuntime> cpu = make_cpu_runtime();
  void* a = cpu->allocate(1000, {});
  CHECK(reinterpret_cast<uintptr_t>(a) % 64 == 0);
  CHECK(cpu->memory_stats(0).allocated == 1000);  // the requested bytes; the block has 1024
  CHECK(cpu->memory_stats(0).system_allocations == 1);
  cpu->free(a);
  CHECK(cpu->memory_stats(0).allocated == 0);
  CHECK(cpu->memory_stats(0).reserved == 1024);
  CHECK(cpu->allocate(970, {}) == a);
  void* b = cpu->allocate(970, {});
  CHECK(b != a);
  const MemoryStats stats = cpu->memory_stats(0);
  CHECK(stats.allocations == 3);
  CHECK(stats.system_allocations == 2);
  CHECK(stats.peak_allocated == 2 * 970);
  cpu->free(b);
  CHECK(cpu->allocate(965, {}) == b);
  CHECK(cpu->memory_stats(0).peak_allocated == 2 * 970);
  cpu->free(a), cpu->free(b), cpu->free(nullptr);
  cpu->reset_peak_memory_stats(0);
  CHECK(cpu->memory_stats(0).peak_allocated == 0);
  CHECK(cpu->memory_stats(0).peak_reserved == 2048);
  cpu->empty_cache();
  CHECK(cpu->memory_stats(0).reserved == 0);
  CHECK(cpu->allocate(0, {}) == nullptr);
}

TEST_CASE("the cpu allocator rounds sizes above 4 KiB up to an eighth of the next lower power of two") {
  for (const auto& [bytes, reserved] : std::vector<std::pair<size_t, int64_t>>{
           {1, 64}, {65, 128}, {4096, 4096}, {4097, 4608}, {5000, 5120}, {8192, 8192}, {8193, 9216}, {65537, 73728}}) {
    INFO(bytes);
    const std::unique_ptr<DeviceRuntime> cpu = make_cpu_runtime();
    cpu->free(cpu->allocate(bytes, {}));
    CHECK(cpu->memory_stats(0).reserved == reserved);
    CHECK(cpu->memory_stats(0).peak_allocated == static_cast<int64_t>(bytes));
    void* const again = cpu->allocate(static_cast<size_t>(reserved), {});  // has the same capacity
    CHECK(cpu->memory_stats(0).reserved == reserved);
    cpu->free(again);
    void* const larger = cpu->allocate(static_cast<size_t>(reserved) + 1, {});
    CHECK(cpu->memory_stats(0).system_allocations == 2);
    cpu->free(larger);
    cpu->empty_cache();
  }
}

TEST_CASE("the cpu allocator keeps free blocks of each capacity in a list of their own") {
  const std::unique_ptr<DeviceRuntime> cpu = make_cpu_runtime();
  std::vector<size_t> capacities;
  for (size_t capacity = 64; capacity <= 4096; capacity += 64) capacities.push_back(capacity);
  for (size_t power = 4096; power < size_t{1} << 22; power *= 2)
    for (size_t eighths = 9; eighths <= 16; ++eighths) capacities.push_back(power / 8 * eighths);
  for (int round = 0; round < 2; ++round) {
    for (size_t capacity : capacities) cpu->free(cpu->allocate(capacity, {}));
    CHECK(cpu->memory_stats(0).system_allocations == static_cast<int64_t>(capacities.size()));
  }
  cpu->empty_cache();
  CHECK(cpu->memory_stats(0).reserved == 0);
}

TEST_CASE("the cpu allocator gives free blocks above 1 MiB to any thread, smaller ones to the thread that made them") {
  for (const size_t bytes : {size_t{1} << 10, size_t{1} << 20, (size_t{1} << 20) + 1}) {
    INFO(bytes);
    const std::unique_ptr<DeviceRuntime> cpu = make_cpu_runtime();
    for (int i = 0; i < 2; ++i) std::thread([&] { cpu->free(cpu->allocate(bytes, {})); }).join();
    CHECK(cpu->memory_stats(0).system_allocations == (bytes <= size_t{1} << 20 ? 2 : 1));
    cpu->empty_cache();
  }
}

TEST_CASE("the cpu allocator returns its free blocks to the system before it reports that memory is out") {
  const std::unique_ptr<DeviceRuntime> cpu = make_cpu_runtime();
  cpu->free(cpu->allocate(1000, {}));
  CHECK(cpu->memory_stats(0).reserved == 1024);
  CHECK_THROWS_AS(cpu->allocate(size_t{1} << 61, {}), OutOfMemoryError);
  const MemoryStats stats = cpu->memory_stats(0);
  CHECK(stats.reserved == 0);
  CHECK(stats.system_allocations == 1);
}

TEST_CASE("out of memory names the request and what is held") {
  for (size_t bytes : {size_t{1} << 61, size_t{1} << 62, SIZE_MAX}) {
    CHECK_THROWS_AS(Storage::allocate(bytes, {}), OutOfMemoryError);
    CHECK_THROWS_WITH(Storage::allocate(bytes, {}), contains(std::to_string(bytes)) && contains("reserved"));
  }
}

TEST_CASE("the cpu allocator serves several threads") {
  const int64_t before = runtime(DeviceType::cpu).memory_stats(0).allocated;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        const Storage storage = Storage::allocate(static_cast<size_t>(64 * (1 + (i + t) % 7)), {});
        std::memset(storage.data(), t, storage.bytes());
        if (static_cast<char*>(storage.data())[storage.bytes() - 1] != t) std::abort();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(runtime(DeviceType::cpu).memory_stats(0).allocated == before);
}

TEST_CASE("the cpu runtime has one device, one stream and no graphs") {
  DeviceRuntime& cpu = runtime(DeviceType::cpu);
  CHECK(cpu.type() == DeviceType::cpu);
  CHECK(cpu.device_count() == 1);
  CHECK(cpu.current_device() == 0);
  CHECK(cpu.new_stream(0) == cpu.current_stream(0));
  CHECK_FALSE(cpu.description(0).empty());
  const auto start = cpu.new_event(true), end = cpu.new_event(true);
  start->record({});
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  end->record({});
  CHECK(end->query());
  CHECK(end->elapsed_ms(*start) >= 2);
  CHECK(end->elapsed_ms(*start) < 60000);
  CHECK_FALSE(cpu.capturing());
  CHECK_THROWS_WITH(cpu.begin_capture(), contains("cuda"));
  CHECK_THROWS_AS(cpu.end_capture(), DeviceError);
}

TEST_CASE("tensors on the cpu hold no more than their limit") {
  const int64_t held = runtime(DeviceType::cpu).memory_stats(0).allocated;
  set_memory_limit(Device(), held + 1000);
  {
    const Storage storage = Storage::allocate(1000, Device());
    CHECK_THROWS_WITH(Storage::allocate(1, Device()), contains("allocating 1 more bytes would exceed the limit of ") &&
                                                          contains("set by set_memory_limit for the cpu"));
  }
  Storage::allocate(1000, Device());
  CHECK_THROWS_WITH(Storage::allocate(SIZE_MAX, Device()), contains("would exceed the limit of "));
  CHECK_THROWS_WITH(set_memory_limit(Device(), 0), contains("must be positive, got 0 bytes"));
  set_memory_limit(Device(), 1);
  CHECK_THROWS_AS(Storage::allocate(2, Device()), OutOfMemoryError);
  set_memory_limit(Device(), kNoMemoryLimit);
  Storage::allocate(2000, Device());
}

TEST_CASE("storage comes from a recorder of its device type if that has memory for it") {
  struct Recorder final : RecordedMemory {
    explicit Recorder(DeviceType type) : of(type) { detail::recorded_memory = this; }
    ~Recorder() override { detail::recorded_memory = nullptr; }
    DeviceType type() const override { return of; }
    std::shared_ptr<void> allocate(size_t bytes) override {
      ++asked;
      if (bytes > sizeof block) return nullptr;
      return {block, [this](void*) { ++returned; }};
    }
    void fill(void*, const void*, size_t) override {}
    bool is_watched() const override { return true; }
    DeviceType of;
    int asked = 0, returned = 0;
    alignas(64) char block[64];
  };
  {
    Recorder recorder(DeviceType::cpu);
    {
      const Storage inside = Storage::allocate(64, {});
      CHECK(inside.is_exclusive());
      const Storage copy = inside;
      CHECK_FALSE(inside.is_exclusive());
      CHECK(inside.data() == recorder.block);
      CHECK(inside.bytes() == 64);
      CHECK(recorder.returned == 0);
    }
    CHECK(recorder.returned == 1);
    const Storage outside = Storage::allocate(65, {});  // the recorder declines, so the runtime allocates
    REQUIRE(outside.data() != nullptr);
    CHECK(outside.data() != recorder.block);
    std::memset(outside.data(), 0, 65);
    CHECK(recorder.asked == 2);
    CHECK(Storage::allocate(0, {}).data() == nullptr);
    CHECK(recorder.asked == 2);
  }
  Recorder other(DeviceType::cuda);
  CHECK(Storage::allocate(64, {}).data() != other.block);
  CHECK(other.asked == 0);
}
