#include <gradus/core/graph/lockstep.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <gradus/core/io/npy.h>
#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>

namespace gradus::graph {
namespace {

Array as_double(const Array& x) {
  const Array dense = Array::empty(x.shape(), DType::f64);
  if (x.numel() > 0) backend("naive").copy(x, dense);
  return dense;
}

/// The largest |a - b| relative to the largest finite |b|, to 1/1000 where that is less.
double error(const Array& a, const Array& b) {
  const double *const x = a.data<double>(), *const y = b.data<double>();
  double largest = 1e-3, difference = 0;
  for (int64_t i = 0; i < b.numel(); ++i) {
    if (std::isfinite(y[i])) largest = std::max(largest, std::abs(y[i]));
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double apart = std::abs(x[i] - y[i]);
    difference = std::isnan(apart) ? INFINITY : std::max(difference, apart);
  }
  return difference / largest;
}

double allowed(DType dtype, const LockstepTolerance& tolerance) {
  switch (dtype) {
    case DType::f64: return tolerance.f64;
    case DType::f32: return tolerance.f32;
    case DType::f16: return tolerance.f16;
    case DType::bf16: return tolerance.bf16;
    default: return 0;
  }
}

}  // namespace

std::optional<Mismatch> lockstep(Executor& executor, Backend& a, Backend& b, const LockstepTolerance& tolerance) {
  for (const Backend* backend : {&a, &b})
    GRADUS_CHECK(backend->device_type() == DeviceType::cpu, DeviceError, "the recorded step is on the cpu, '",
                 backend->name(), "' is not");
  std::optional<Mismatch> found;
  int number = -1;
  executor.for_each_call([&](const Call& call) {
    ++number;
    if (found) return;
    const auto is_compared = [&](const Operand& operand) {
      const Buffer& buffer = executor.graph().buffers()[static_cast<size_t>(operand.buffer)];
      return operand.is_written && (buffer.external || buffer.last_use > number);
    };
    std::vector<Array> arrays, before, of_a;
    for (const Operand& operand : call.operands) {
      arrays.push_back(operand.buffer < 0 ? Array::empty(operand.layout.shape, operand.layout.dtype)
                                          : executor.array_of(operand));
      before.push_back(ops::clone(arrays.back()));
    }
    call.run(a);
    for (size_t i = 0; i < arrays.size(); ++i) {
      of_a.push_back(ops::clone(arrays[i]));
      if (call.operands[i].is_written) ops::copy_into(arrays[i], before[i]);
    }
    call.run(b);
    for (size_t i = 0; i < arrays.size() && !found; ++i) {
      if (call.operands[i].buffer < 0 || !is_compared(call.operands[i])) continue;
      const Array result_a = as_double(of_a[i]), result_b = as_double(arrays[i]);
      const double apart = error(result_a, result_b), limit = allowed(arrays[i].dtype(), tolerance);
      if (apart <= limit) continue;
      found = Mismatch{&call, static_cast<size_t>(number), apart, limit, {}, result_a, result_b};
      for (const Array& input : before) found->inputs.push_back(as_double(input));
    }
    for (size_t i = 0; i < arrays.size(); ++i)
      if (call.operands[i].is_written) ops::copy_into(arrays[i], of_a[i]);
  });
  return found;
}

std::string Mismatch::str() const {
  char text[64];
  std::snprintf(text, sizeof text, " differs by %.3g, allowed: %.3g", error, allowed);
  return "call " + std::to_string(number) + ", " + call->name + " (" + call->origin.str() +
         "): " + to_string(a.shape()) + text;
}

void Mismatch::save(const std::string& folder) const {
  for (size_t i = 0; i < inputs.size(); ++i) io::save_npy(folder + "/input" + std::to_string(i) + ".npy", inputs[i]);
  io::save_npy(folder + "/a.npy", a);
  io::save_npy(folder + "/b.npy", b);
}

}  // namespace gradus::graph
