#include <cstdlib>
#include <vector>

#include <gradus/core/runtime/random.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/tests/catch.h>

using namespace gradus;

TEST_CASE("format_bytes chooses readable units") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1000) == "1000 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1 KiB");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes((int64_t{1} << 30) - 1) == "1024 MiB");
  CHECK(format_bytes(int64_t{139} << 30) == "139 GiB");
  CHECK(format_bytes(int64_t{12} << 40) == "12 TiB");
  CHECK(format_bytes(INT64_MAX) == "8192 PiB");
}

TEST_CASE("the draws of a capture are counted from 0, and read an offset on the device") {
  Generator generator(5);
  generator.next();
  const uint64_t offset = 0;
  for (uint64_t capture = 0; capture < 2; ++capture) {
    Generator::begin_capture(&offset);
    const RandomState first = generator.next(), second = generator.next();
    CHECK(Generator::end_capture() == 2);
    const RandomState after = generator.next();
    CHECK((first.offset == 0 && second.offset == 1 && after.offset == 1 + capture));
    CHECK((first.device_offset == &offset && second.device_offset == &offset && !after.device_offset));
  }
}

TEST_CASE("the draw position is that of the default generator, or in a capture that of the capture") {
  Generator generator(5);
  const GeneratorGuard guard(generator);
  generator.next();
  CHECK(draw_position() == 1);
  set_draw_position(6, 9);
  CHECK((generator.seed() == 6 && generator.offset() == 9 && draw_position() == 9));
  Generator::begin_capture(nullptr);
  generator.next();
  CHECK(draw_position() == 1);
  set_draw_position(7, 3);
  CHECK(generator.next().offset == 3);
  CHECK(Generator::end_capture() == 4);
  CHECK((generator.seed() == 6 && generator.offset() == 9));
}

TEST_CASE("captures are announced, and replays are counted except those that a thread knows") {
  static int announced = 0;
  on_capture([] { ++announced; });
  notify_of_capture();
  on_capture(nullptr);
  notify_of_capture();
  CHECK(announced == 1);
  const uint64_t before = replay_count();
  count_replay();
  {
    const UncountedReplays known;
    count_replay();
  }
  CHECK(replay_count() == before + 1);
}

TEST_CASE("a recording keeps the scratch memory of kernels until they give it back") {
  struct Blocks final : RecordedMemory {
    DeviceType type() const override { return DeviceType::cpu; }
    std::shared_ptr<void> allocate(size_t bytes) override {
      if (bytes > 100) return nullptr;
      return {std::malloc(bytes), [this](void* data) { std::free(data), freed.push_back(data); }};
    }
    void fill(void*, const void*, size_t) override {}
    std::vector<void*> freed;
  } blocks;
  void* const first = blocks.take(10);
  void* const second = blocks.take(20);
  REQUIRE((first && second));
  CHECK_FALSE(blocks.take(101));  // the runtime should allocate instead
  CHECK(blocks.freed.empty());
  CHECK(blocks.give_back(first));
  CHECK(blocks.freed == std::vector{first});
  CHECK_FALSE(blocks.give_back(first));
  CHECK(blocks.give_back(second));
  CHECK(blocks.freed == std::vector{first, second});
}

TEST_CASE("a settled device has an index") {
  CHECK(settled(Device("cpu")) == Device());
  CHECK(settled(Device(kCUDA, 3)) == Device("cuda:3"));  // has an index, so it needs no CUDA runtime
}
