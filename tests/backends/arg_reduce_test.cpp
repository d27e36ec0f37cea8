// argmax and argmin of long rows: their results, and that their memory does not grow with the rows.
#include <limits>

#include <gradus/core/runtime/runtime.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

/// The index of the first extreme element of a row, by definition.
int64_t place_of(const std::vector<double>& row, bool largest) {
  int64_t best = 0;
  for (int64_t i = 1; i < static_cast<int64_t>(row.size()); ++i) {
    if (std::isnan(row[best])) break;
    if (std::isnan(row[i]) || (largest ? row[i] > row[best] : row[i] < row[best])) best = i;
  }
  return best;
}

}  // namespace

TEST_CASE("argmax and argmin of rows longer than a buffer", "[backends]") {
  for (const std::string& name : backend_names()) {
    const BackendGuard guard(name);
    const Device device = name == "cuda" || name == "cudnn" ? kCUDA : kCPU;
    for (const int64_t size : {1, 1023, 1024, 1025, 2048, 5000})
      for (const DType dtype :
           {DType::u8, DType::boolean, DType::i32, DType::i64, DType::f16, DType::f32, DType::f64}) {
        CAPTURE(name, size, dtype);
        const Tensor x = (arange(0, 12 * size, kLong) * 7919).remainder(251).reshape({12, size}).to(dtype);
        const auto check = [&](const Tensor& rows) {  // (12, size) in any layout
          const Tensor largest = rows.argmax(1).to(kCPU), least = rows.argmin(1).to(kCPU);
          const Tensor values = std::get<0>(rows.max(1)).to(kCPU);
          for (int64_t i = 0; i < 12; ++i) {
            const Tensor row = rows[i].to(kCPU, kDouble).contiguous();
            const std::vector<double> numbers(row.data_ptr<double>(), row.data_ptr<double>() + size);
            const int64_t place = place_of(numbers, true);
            CHECK(largest[i].item<int64_t>() == place);
            CHECK(least[i].item<int64_t>() == place_of(numbers, false));
            const double value = values[i].to(kDouble).item<double>();
            CHECK((value == numbers[place] || (std::isnan(value) && std::isnan(numbers[place]))));
          }
        };
        check(x.to(device));
        check(x.to(device).t().contiguous().t());           // neighbouring rows are processed together
        check(stack({x, x}, -1).to(device).select(-1, 1));  // every second element
        if (!is_floating(dtype) || size < 3) continue;
        const Tensor holes = x.clone();  // NaN in the second part, with larger numbers before and after it
        holes.select(1, size - 2).fill_(std::numeric_limits<double>::quiet_NaN());
        check(holes.to(device));
        check(holes.to(device).t().contiguous().t());
      }
  }
}

TEST_CASE("argmax's memory does not grow with the row length", "[backends]") {
  constexpr int64_t kElements = int64_t{1} << 22, kMost = 1 << 20;
  DeviceRuntime& cpu = runtime(DeviceType::cpu);
  for (const std::string& name : backend_names()) {
    if (name == "cuda" || name == "cudnn") continue;
    const BackendGuard guard(name);
    for (const DType dtype : {DType::u8, DType::boolean, DType::i32, DType::f16, DType::f32}) {
      const Tensor x = zeros({kElements}, dtype), columns = zeros({kElements / 64, 64}, dtype);
      const auto check = [&](const char* what, const auto& run) {
        cpu.reset_peak_memory_stats(0);
        const int64_t before = cpu.memory_stats(0).allocated;
        run();
        CAPTURE(name, dtype, what);
        CHECK(cpu.memory_stats(0).peak_allocated - before < kMost);
      };
      check("argmax", [&] { x.argmax(); });
      check("argmin", [&] { x.argmin(0); });
      check("max", [&] { x.max(0); });
      check("argmax of columns", [&] { columns.argmax(0); });
      check("max of all", [&] { x.max(); });
    }
  }
}
