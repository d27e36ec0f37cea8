#include <gradus/core/runtime/random.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/tests/catch.h>

using namespace gradus;

TEST_CASE("format_bytes chooses readable units") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1000) == "1000 B");
  CHECK(format_bytes(1023) == "1023 B");
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
  Generator::begin_capture(&offset);
  const RandomState first = generator.next(), second = generator.next();
  CHECK(Generator::end_capture() == 2);
  const RandomState after = generator.next();
  CHECK((first.offset == 0 && second.offset == 1 && after.offset == 1));
  CHECK((first.device_offset == &offset && second.device_offset == &offset && !after.device_offset));
}

TEST_CASE("a settled device has an index") {
  CHECK(settled(Device("cpu")) == Device());
  CHECK(settled(Device(kCUDA, 3)) == Device("cuda:3"));  // has an index, so it needs no CUDA runtime
}
