#include <algorithm>

#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/decisions.h>
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

TEST_CASE("each wrong call has the message that is listed for it") {
  std::vector<const WrongCalls*> tables = WrongCalls::all();  // in the order in which the linker lists their files
  // These messages name temporary files, or the devices and backends of the build.
  std::erase_if(tables, [](const WrongCalls* table) {
    return table->area() == "files" || table->area() == "data" || table->area() == "devices";
  });
  std::ranges::sort(tables, {}, &WrongCalls::area);
  std::string messages;
  for (const std::string name : {"naive", "openmp"}) {
    if (!has_backend(name)) continue;
    const BackendGuard guard(name);
    std::string text;
    for (const WrongCalls* table : tables)
      for (const WrongCall& call : table->calls()) text += table->area() + ": " + message_of(call) + "\n";
    if (messages.empty()) check_decisions("wrong_calls/messages.txt", messages = text);
    CHECK(text == messages);
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
