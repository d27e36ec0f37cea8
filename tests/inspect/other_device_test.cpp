// explain() and record_lab() on a device other than the CPU. The device is a fake one, with the host's memory and the
// kernels of naive. Its clock stands still, so that the measured times are 0.
#include <map>

#include <gradus/core/backend_interceptor.h>
#include <gradus/gradus.h>
#include <gradus/inspect/lab/lab.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/fake_device.h>

using namespace gradus;
using training::ExplainOptions;
using training::LabRecording;

namespace {

/// Runs naive's kernels on operands of the fake device, and counts its calls. Leaves out calls on the large arrays by
/// which explain() measures the device.
class FakeCuda final : public BackendInterceptor<FakeCuda> {
 public:
  std::string_view name() const override { return "cuda"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    ++calls[name];
    runtime(DeviceType::cuda).synchronize(0);  // waits for queued copies
    bool is_large = false;
    (for_each_operand(arguments, [&](const auto& view) { is_large = is_large || view.numel() > 1 << 19; }), ...);
    if (!is_large) (backend("naive").*method)(arguments...);
  }
  static inline std::map<std::string, int> calls;  // by name
};

/// Makes the fake device. Returns false on a machine with a GPU, whose steps tests/cuda explains.
bool has_fake_cuda() {
  if (!test::use_fake_device()) return !test::skip("a machine without CUDA devices");
  if (!has_backend("cuda")) register_backend(std::make_unique<FakeCuda>());
  FakeCuda::calls.clear();
  return true;
}

}  // namespace

TEST_CASE("a recording has the elements of arrays on another device, unless they are too far apart", "[lab]") {
  if (!has_fake_cuda()) return;
  const Tensor x = arange(0, 200, kFloat).reshape({100, 2}).to(kCUDA);
  const auto pair = [&](int64_t apart) {
    const Tensor memory = empty({apart + 1}, TensorOptions(kFloat).device(kCUDA));
    return memory.as_strided({2}, {apart}).fill_(5);
  };
  const Tensor near = pair((1 << 18) - 1), far = pair(1 << 18);  // over at most 1 MiB, and over more
  const LabRecording recording = training::record_lab(
      [&] {
        (void)x.slice(0, 2, 4).neg();
        (void)x.flip({0, 1});
        (void)near.neg();
        (void)far.neg();
      },
      nullptr, ExplainOptions().warm_up(1).steps(1).device(kCUDA));
  REQUIRE(recording.calls.size() == 4);
  const auto values = [&](size_t call, size_t operand) { return recording.calls[call].operands.at(operand).values; };
  CHECK(values(0, 0) == "4 5 6 7");
  CHECK(values(0, 1) == "-4 -5 -6 -7");
  CHECK(values(1, 0).starts_with("199 198 197 "));
  CHECK(values(1, 1).starts_with("199 198 197 "));
  CHECK(values(2, 0) == "5 5");
  CHECK(values(3, 0).empty());
  CHECK(values(3, 1) == "-5 -5");
}

TEST_CASE("explain measures another device by captured kernels, after an eager call of each", "[explain]") {
  if (!has_fake_cuda()) return;
  std::vector<int64_t> sizes;
  for (const training::Roofline::Level& level : training::measure_roofline(kCUDA).levels)
    sizes.push_back(level.bytes >> 20);
  CHECK(sizes == std::vector<int64_t>{2, 24, 768});
  CHECK(FakeCuda::calls["matmul"] == 1 + 8);
  for (const char* kernel : {"reduce", "binary"}) CHECK(FakeCuda::calls[kernel] == 3 * (1 + 8));
}

TEST_CASE("explain runs a step on another device eagerly, in two captures and in two layouts", "[explain]") {
  if (!has_fake_cuda()) return;
  const Tensor image = ones({2, 3, 4, 4}).to(kCUDA);
  for (const int steps : {1, 2, 3}) {
    FakeCuda::calls.clear();
    int eager = 0, recorded = 0;
    const training::Explanation explanation = training::explain(
        [&] {
          (gradus::detail::recorded_memory && is_recording(DeviceType::cuda) ? recorded : eager) += 1;
          (void)image.exp();
        },
        ExplainOptions().warm_up(2).steps(steps).device(kCUDA));
    const int compared = 2 * (steps / 2 + 1);  // beside the static step
    CHECK(recorded == 1);
    CHECK(eager == 2 + 3 + 1 + 2 + 1 + compared + 1);  // three are watched, two captured; one after each kind of step
    CHECK(FakeCuda::calls["unary"] == eager + 2 * 2 + 1);  // each layout, and the static step, which is captured
    CHECK(explanation.notes.empty());
    REQUIRE(explanation.kernels.size() == 1);
    CHECK(explanation.kernels[0].seconds == 0);
    CHECK(explanation.step_seconds == 0);
  }
}
