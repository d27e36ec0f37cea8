#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

TEST_CASE("wrong calls say what is wrong and leave the process healthy") {
  for (const std::string& name : backend_names()) {
    if (backend(name).device_type() != DeviceType::cpu) continue;
    const BackendGuard guard(name);
    for (const WrongCalls* table : WrongCalls::all()) {
      for (size_t k = 0; k < table->calls().size(); ++k) {
        const WrongCall& call = table->calls()[k];
        const std::string here = name + ", " + table->area() + ", line " + std::to_string(call.where.line) + ": ";
        CHECK(here + verdict(call) == here);
      }
    }
  }
}

TEST_CASE("there are 200 wrong calls") {
  size_t count = 0;
  for (const WrongCalls* table : WrongCalls::all()) count += table->calls().size();
  CHECK(count >= 200);
}

TEST_CASE("tensors of two devices do not mix") {
  if (!find_runtime(DeviceType::cuda) && test::skip("1 CUDA device")) return;
  const Tensor here = f({2, 2}), there = f({2, 2}).cuda();
  CHECK_THROWS_WITH(here + there, test::contains("cpu") && test::contains("cuda:0"));
  CHECK_THROWS_AS(matmul(there, here), DeviceError);
  CHECK_THROWS_AS(linear(there, here), DeviceError);
  CHECK_THROWS_AS(cat({here, there}), DeviceError);
}
