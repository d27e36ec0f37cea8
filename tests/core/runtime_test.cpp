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

TEST_CASE("a settled device has an index") {
  CHECK(settled(Device("cpu")) == Device());
  CHECK(settled(Device(kCUDA, 3)) == Device("cuda:3"));  // has an index, so it needs no CUDA runtime
}
