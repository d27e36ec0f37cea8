#include <gradus/inspect/lockstep.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include <gradus/core/io/npy.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/random.h>
#include <gradus/graph/recorder.h>

namespace gradus::graph {
namespace {

/// Copies bytes to the same or another device.
Storage copy_of(const void* data, size_t bytes, Device from, Device to) {
  const Storage copy = Storage::allocate(bytes, to);
  runtime(from.is_cuda() ? from.type() : to.type()).copy(copy.data(), copy.device(), data, from, bytes, false);
  return copy;
}

/// Copies the elements of an array on a device to the host, as float64. Booleans are read as bytes, because memory that
/// no call has written may hold values other than 0 and 1.
Array as_double(const StridedLayout& layout, const void* data, Device device) {
  const Array dense = Array::empty(layout.shape, DType::f64);
  const auto [begin, end] = extent_of(layout);
  const Storage here =
      copy_of(static_cast<const char*>(data) + begin, static_cast<size_t>(end - begin), device, Device());
  const DType dtype = layout.dtype == DType::boolean ? DType::u8 : layout.dtype;
  const int64_t first = -begin / static_cast<int64_t>(size_of(dtype));
  backend("naive").copy(Array(here, first, layout.shape, layout.strides, dtype), dense);
  return dense;
}

/// The largest |a - b|, divided by the larger of 1/1000 and the largest finite |b|.
double error(const Array& a, const Array& b) {
  if (!(a.shape() == b.shape())) return INFINITY;
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

/// The elements of a call's operands in order. Operands that the call only reads are undefined arrays if `results` is
/// set.
std::vector<Array> elements_of(Call& call, bool results = false) {
  std::vector<Array> arrays;
  for_each_view(call, [&](const auto& view, bool is_written) {
    arrays.push_back(is_written || !results ? as_double(view, view.data, view.device) : Array());
  });
  return arrays;
}

/// Compares the results `a` and `b` of call `number`, except those that neither a later call nor the program after the
/// step reads. Returns the first pair that differs by more than `tolerance`.
std::optional<Mismatch> compare(const Graph& graph, size_t number, const std::vector<Array>& inputs,
                                const std::vector<Array>& a, const std::vector<Array>& b,
                                const LockstepTolerance& tolerance) {
  const Call& call = *graph.calls()[number];
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const Operand& operand = call.operands[i];
    if (operand.buffer < 0 || !operand.is_written) continue;
    const Buffer& buffer = graph.buffers()[static_cast<size_t>(operand.buffer)];
    if (!buffer.external && !buffer.kept && buffer.last_use <= static_cast<int>(number)) continue;
    const double apart = error(a.at(i), b.at(i)), limit = allowed(operand.layout.dtype, tolerance);
    if (apart > limit) return Mismatch{&call, number, apart, limit, inputs, a[i], b[i]};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Mismatch> lockstep(Executor& executor, const std::function<void()>& step) {
  const Graph& graph = executor.graph();
  const Device device = graph.device();
  Backend& backend = current_backend(device.type());
  // The values of external buffers (parameters, optimizer states) and the generator's offset from before the steps.
  std::vector<std::pair<const Buffer*, Storage>> before;
  for (const Buffer& buffer : graph.buffers())
    if (buffer.external) before.emplace_back(&buffer, copy_of(buffer.memory, buffer.bytes, device, device));
  const uint64_t draws_before = default_generator().offset();
  std::vector<std::vector<Array>> eager;  // eager[i][k]: operand k of call i, if the call writes it
  const std::unique_ptr<Backend> calls = call_backend(backend, [&](const std::unique_ptr<Call>& call) {
    call->run(backend);
    eager.push_back(elements_of(*call, /*results=*/true));
  });
  {
    const BackendGuard guard(*calls);
    step();
  }
  default_generator().set_state(default_generator().seed(), draws_before);
  for (const auto& [buffer, bytes] : before)
    runtime(device.type()).copy(buffer->memory, device, bytes.data(), device, buffer->bytes, false);
  std::optional<Mismatch> found;
  size_t number = 0;
  executor.for_each_call([&](Call& call) {
    const bool is_compared = !found && call.number >= 0;
    const std::vector<Array> inputs = is_compared ? elements_of(call) : std::vector<Array>();
    call.run(backend);
    if (is_compared)
      found = compare(graph, number, inputs, eager.at(static_cast<size_t>(call.number)), elements_of(call, true),
                      LockstepTolerance{0, 0, 0, 0});
    ++number;
  });
  return found;
}

std::optional<Mismatch> lockstep(Executor& executor, Backend& a, Backend& b, const LockstepTolerance& tolerance) {
  const Graph& graph = executor.graph();
  const Device device_a = graph.device(), device_b = settled(b.device_type());
  GRADUS_CHECK(a.device_type() == device_a.type(), DeviceError, "the recorded step is on ", device_a, ", '", a.name(),
               "' is not");
  std::optional<Mismatch> found;
  size_t number = 0;
  executor.for_each_call([&](Call& call) {
    if (found) return;
    const std::vector<Array> before = elements_of(call);
    std::map<int, Storage> of_b;  // copies, for `b`, of the buffers that the call uses
    for (const Operand& operand : call.operands) {
      if (operand.buffer < 0 || of_b.contains(operand.buffer)) continue;
      const Buffer& buffer = graph.buffers()[static_cast<size_t>(operand.buffer)];
      of_b[operand.buffer] = copy_of(buffer.memory, buffer.bytes, device_a, device_b);
    }
    const Storage offset = copy_of(executor.offset().data(), sizeof(int64_t), device_a, device_b);
    call.run(a);
    const std::vector<Array> results = elements_of(call, /*results=*/true);
    struct PlaceBack {
      Call& call;
      const Executor& executor;
      ~PlaceBack() { executor.place(call); }
    } const back{call, executor};
    const auto memory = [&](int buffer) { return static_cast<char*>(of_b.at(buffer).data()); };
    Executor::place(call, device_b, memory, offset.data());
    call.run(b);
    found = compare(graph, number++, before, results, elements_of(call, true), tolerance);
  });
  return found;
}

std::optional<Mismatch> lockstep_in_float32(Executor& executor, Backend& a, const LockstepTolerance& tolerance) {
  const std::unique_ptr<Backend> wide = call_backend(a, [&](const std::unique_ptr<Call>& call) {
    // Copies in float32 of the operands of half types. A result that is two operands has one copy.
    std::map<std::pair<const void*, std::string>, Array> copies;
    std::vector<std::pair<Array, MutableView>> results;
    for_each_view(*call, [&]<class V>(V& view, bool) {
      if (view.dtype != DType::f16 && view.dtype != DType::bf16) return;
      Array& copy = copies[{view.data, to_string(view.shape) + to_string(view.strides)}];
      if (!copy.defined()) a.copy(view, copy = Array::empty(view.shape, DType::f32, view.device));
      if constexpr (std::is_same_v<V, MutableView>) results.emplace_back(copy, view);
      view = copy;
    });
    call->run(a);
    for (const auto& [copy, view] : results) a.copy(copy, view);
  });
  return lockstep(executor, a, *wide, tolerance);
}

std::string Mismatch::str() const {
  char text[64];
  std::snprintf(text, sizeof text, " differs by %.3g, allowed: %.3g", error, allowed);
  const auto holds_anomaly = [](const Array& x) {
    return std::any_of(x.data<double>(), x.data<double>() + x.numel(),
                       [](double value) { return !std::isfinite(value); });
  };
  bool given = false;
  for (size_t i = 0; i < inputs.size(); ++i)
    given = given || (!call->operands[i].is_written && holds_anomaly(inputs[i]));
  return "call " + std::to_string(number) + ", " + call->name + " (" + call->origin.str() +
         "): " + to_string(a.shape()) + text + (given ? "; its inputs hold a NaN or inf" : "");
}

void Mismatch::save(const std::string& folder) const {
  for (size_t i = 0; i < inputs.size(); ++i) io::save_npy(folder + "/input" + std::to_string(i) + ".npy", inputs[i]);
  io::save_npy(folder + "/a.npy", a);
  io::save_npy(folder + "/b.npy", b);
}

}  // namespace gradus::graph
