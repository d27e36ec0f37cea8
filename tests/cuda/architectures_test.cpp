// Which devices a build supports, and the error message for the others. Needs no CUDA.
#include <limits>

#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/tests/catch.h>

using namespace gradus::cuda_detail;
using gradus::test::contains;

TEST_CASE("machine code runs on its own generation, PTX on later ones too") {
  CHECK(code_for("80-real", 80) == 80);
  CHECK(code_for("80-real", 86) == 80);
  CHECK(code_for("80-real", 75) == 0);
  CHECK(code_for("80-real", 90) == 0);
  CHECK(code_for("86-real", 80) == 0);
  CHECK(code_for("80", 90) == 80);
  CHECK(code_for("80-virtual", 120) == 80);
  CHECK(code_for("90-virtual", 89) == 0);
  CHECK(code_for("75-real 80-real 90", 75) == 75);
  CHECK(code_for("75-real 80-real 90", 103) == 90);
  CHECK(code_for("75-real 80-real 90", 70) == 0);
  CHECK(code_for("90a-real", 90) == 90);
  CHECK(code_for("90a", 100) == 0);
  CHECK(code_for("native", 90) == 90);  // unknown: the first launch fails if the code does not run
}

TEST_CASE("a device runs the newest code that it can run") {
  CHECK(code_for("75-real 80-real 90", 89) == 80);
  CHECK(code_for("75-real 80-real 90", 90) == 90);
  CHECK(code_for("75-virtual 80-virtual", 90) == 80);
  CHECK(code_for("80 90-real", 100) == 80);
  CHECK(code_for("80-real 90", 80) == 80);
  CHECK(code_for("native", 80) == 80);
}

TEST_CASE("the peaks of a device follow from its clocks, or are those of an H200 where the driver has none") {
  const DeviceProperties h200 = with_peaks(kH200, 1980000, 3201000, 6144);
  CHECK(h200.multiply_adds_per_us == Approx(33.45e6).epsilon(1e-3));
  CHECK(h200.bytes_per_us == Approx(4.917e6).epsilon(1e-3));
  const DeviceProperties a100 = with_peaks(
      {.compute_capability = 80, .multiprocessors = 108, .shared_memory = 163 << 10}, 1410000, 1215000, 5120);
  CHECK(a100.multiply_adds_per_us == Approx(9.75e6).epsilon(1e-3));
  CHECK(a100.bytes_per_us == Approx(1.555e6).epsilon(1e-3));
  const DeviceProperties unknown = with_peaks(kH200, 0, 3201000, 0);
  CHECK(unknown.multiply_adds_per_us == kH200.multiply_adds_per_us);
  CHECK(unknown.bytes_per_us == kH200.bytes_per_us);
}

TEST_CASE("kernels use what device, code and limit have in common") {
  constexpr int no_limit = std::numeric_limits<int>::max();
  const DeviceProperties whole = limited(kH200, 90, no_limit);
  CHECK((whole.compute_capability == 90 && whole.shared_memory == kH200.shared_memory));
  CHECK((whole.wgmma && whole.has_clusters() && whole.has_tensor_cores() && whole.has_async_copies()));
  struct Limit {
    int capability;
    size_t kibibytes;  // shared memory of a block
  };
  for (const auto& [capability, kibibytes] : {Limit{75, 64}, {80, 163}, {86, 99}, {89, 99}, {90, 227}, {100, 227}}) {
    INFO(capability);
    const DeviceProperties device = limited(kH200, 90, capability);
    CHECK(device.compute_capability == std::min(capability, 90));
    CHECK(device.shared_memory == kibibytes << 10);
    CHECK(device.wgmma == (capability >= 90));
    CHECK(device.has_clusters() == (capability >= 90));
    CHECK(device.has_tensor_cores() == (capability >= 80));
    CHECK(device.has_async_copies() == (capability >= 80));
    CHECK(device.multiprocessors == kH200.multiprocessors);
  }
  // Code for an older device limits the instructions of kernels, but not their shared memory.
  for (const int code : {75, 80}) {
    const DeviceProperties device = limited(kH200, code, no_limit);
    CHECK((device.compute_capability == code && device.shared_memory == kH200.shared_memory && !device.wgmma));
  }
  constexpr DeviceProperties blackwell = {
      .compute_capability = 100, .multiprocessors = 148, .shared_memory = 227 << 10};
  for (const int code : {90, 100})  // the device has no wgmma, whatever code it runs
    CHECK((!limited(blackwell, code, no_limit).wgmma && limited(blackwell, code, no_limit).has_clusters()));
  CHECK_FALSE(limited(blackwell, 100, 90).wgmma);
  // A device has no more shared memory than its own.
  constexpr DeviceProperties ada = {.compute_capability = 89, .multiprocessors = 128, .shared_memory = 99 << 10};
  CHECK(limited(ada, 80, 80).shared_memory == size_t{99} << 10);
}

TEST_CASE("the limit of the compute capability is written with a point or without") {
  CHECK(parse_max_capability("80") == 80);
  CHECK(parse_max_capability("8.0") == 80);
  CHECK(parse_max_capability("7.5") == 75);
  CHECK(parse_max_capability("8.9") == 89);
  CHECK(parse_max_capability("12.0") == 120);
  CHECK(parse_max_capability("103") == 103);
  for (const char* wrong : {"8",
                            "8.",
                            ".8",
                            "8.05",
                            "80.0.0",
                            "8,0",
                            "sm_80",
                            "80 ",
                            " 80",
                            "-80",
                            "+80",
                            "8x",
                            "70",
                            "7.0",
                            "0",
                            "0x80",
                            "1e2",
                            "off",
                            "999999999999999999999",
                            "80.",
                            "..",
                            "٨٠"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(parse_max_capability(wrong), contains("GRADUS_CUDA_MAX_CAPABILITY is '" + std::string(wrong)));
  }
}

TEST_CASE("a device that the build does not serve is told what to do") {
  CHECK(wrong_architecture("80-real", 90) ==
        "gradus was compiled for sm_80, the device is sm_90: rebuild with -DCMAKE_CUDA_ARCHITECTURES=90");
  CHECK_THAT(wrong_architecture("75-real 80-real", 90), contains("compiled for sm_75, sm_80, the device is sm_90"));
  CHECK_THAT(wrong_architecture("native", 90), contains("compiled for native"));
}
