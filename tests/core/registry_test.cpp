#include <algorithm>
#include <thread>

#include <gradus/backends/naive/naive.h>
#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using gradus::test::contains;

namespace {

// A user-defined backend: naive under another name.
class OtherBackend final : public NaiveBackend {
 public:
  std::string_view name() const override { return "other"; }
};

}  // namespace

TEST_CASE("the built-in backends are registered, naive first, and the last one of a device is its default") {
  const auto names = backend_names();
  REQUIRE_FALSE(names.empty());
  CHECK(names[0] == "naive");
  CHECK(has_backend("naive"));
  CHECK_FALSE(has_backend("none"));
  std::string last;
  for (const std::string& name : names)
    if (backend(name).device_type() == DeviceType::cpu && name != "other") last = name;
  CHECK(current_backend(DeviceType::cpu).name() == last);
  CHECK_THROWS_AS(backend("none"), DeviceError);
  std::string known = names[0];
  for (size_t i = 1; i < names.size(); ++i) known += ", " + names[i];
  CHECK_THROWS_WITH(backend("none"), contains("no backend 'none' in this build; there are: " + known));
}

TEST_CASE("guards nest, are undone by exceptions, and belong to their thread") {
  const std::string before(current_backend(DeviceType::cpu).name());
  {
    BackendGuard outer("naive");
    CHECK(current_backend(DeviceType::cpu).name() == "naive");
    std::string seen;
    std::thread([&] { seen = current_backend(DeviceType::cpu).name(); }).join();
    CHECK(seen == before);
    try {
      BackendGuard inner(backend_names().back());
      throw 1;
    } catch (int) {}
    CHECK(current_backend(DeviceType::cpu).name() == "naive");
    CHECK_THROWS_AS(BackendGuard("none"), DeviceError);
    CHECK(current_backend(DeviceType::cpu).name() == "naive");
  }
  CHECK(current_backend(DeviceType::cpu).name() == before);
}

TEST_CASE("users add backends; set_backend chooses for this and all undecided threads") {
  const std::string before(current_backend(DeviceType::cpu).name());
  register_backend(std::make_unique<OtherBackend>());
  CHECK(has_backend("other"));
  set_backend("other");
  CHECK(current_backend(DeviceType::cpu).name() == "other");
  std::string seen;
  std::thread([&] { seen = current_backend(DeviceType::cpu).name(); }).join();
  CHECK(seen == "other");
  set_backend(before);
  CHECK(current_backend(DeviceType::cpu).name() == before);
}

TEST_CASE("a missing device type says what is missing and what to do") {
  if (find_runtime(DeviceType::cuda) && test::skip("a machine without CUDA devices")) return;
  CHECK_THROWS_AS(runtime(DeviceType::cuda), DeviceError);
  CHECK_THROWS_WITH(runtime(DeviceType::cuda), contains("CUDA") && contains("--device cpu"));
  CHECK_THROWS_AS(current_backend(DeviceType::cuda), DeviceError);
  CHECK_THROWS_AS(Array::empty({2}, DType::f32, "cuda"), DeviceError);
  explain_missing_runtime(DeviceType::cuda, "no driver here");
  CHECK_THROWS_WITH(runtime(DeviceType::cuda), contains("no driver here"));
  CHECK_THROWS_WITH(current_backend(DeviceType::cuda), contains("no driver here"));
  explain_missing_runtime(DeviceType::cuda, "");
}
