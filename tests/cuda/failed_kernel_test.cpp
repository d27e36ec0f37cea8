// Errors of a failed kernel. A failed kernel destroys the CUDA context of its process, so this program runs itself as a
// child process in which a kernel fails, and reads the child's output.
#include <array>
#include <cstdio>
#include <memory>

#include <unistd.h>

#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// The output of the hidden test case below in this environment.
std::string output_of_child(const std::string& environment) {
  const std::string command =
      environment + " /proc/" + std::to_string(getpid()) + "/exe '[writes where nothing is]' 2>&1";
  std::unique_ptr<FILE, int (*)(FILE*)> child(popen(command.c_str(), "r"), pclose);
  REQUIRE(child);
  std::string text;
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), child.get())) text.append(buffer.data(), count);
  return text;
}

}  // namespace

// Hidden: runs only in the child process of the test below.
TEST_CASE("a kernel writes where nothing is", "[.][writes where nothing is]") {
  const Storage nowhere = Storage::adopt(reinterpret_cast<void*>(uintptr_t{64}), 4096, cuda_device(), {});
  const Tensor x(Array(nowhere, 0, {1024}, {1}, DType::f32));
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const DeviceError& error) { return error.what(); }
    return "nothing";
  };
  std::printf("exp: %s\n", message([&] { exp(x); }).c_str());
  std::printf("later: %s\n", message([] { cuda::synchronize(); }).c_str());
}

TEST_CASE("GRADUS_CUDA_SYNCHRONIZE names the op whose kernel failed; without it a later call meets the failure") {
  if (no_cuda_device()) return;
  const std::string at_once = output_of_child("GRADUS_CUDA_SYNCHRONIZE=1");
  CHECK_THAT(at_once, contains("exp: [exp]") && contains("cudaErrorIllegalAddress") && contains("kernel 'exp'"));
  const std::string later = output_of_child("GRADUS_CUDA_SYNCHRONIZE=0");
  CHECK_THAT(later, contains("exp: nothing") && contains("later: ") && contains("GRADUS_CUDA_SYNCHRONIZE=1"));
}
