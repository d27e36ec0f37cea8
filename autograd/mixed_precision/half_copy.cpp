#include <gradus/autograd/mixed_precision/half_copy.h>

#include <mutex>
#include <utility>

#include <gradus/core/ops/ops.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::amp::detail {
namespace {

// A parameter's copy and its half gradient. The gradient is guarded by the ObjectLock on the parameter's AutogradMeta.
struct HalfState final : LeafFeature {
  std::shared_ptr<HalfCopy> copy;
  Array gradient;  // grad() converts it on demand; AutogradMeta::grad is undefined until then
  std::atomic<bool> has_gradient = false;
  bool recorded = false;  // `gradient` was stored while a step was recorded
};

// Guards HalfState::copy, because several threads may start graphs from the same parameters.
std::mutex half_copy_mutex;

bool recording(Device device) { return runtime(device.type()).capturing(); }

std::shared_ptr<HalfCopy>& slot_of(const Tensor& parameter) {
  return parameter.impl()->need_meta().features.need<HalfState>().copy;
}

bool fits(const HalfCopy& copy, const Tensor& parameter) {
  return !copy.numbers.defined() ||
         (copy.numbers.strides() == parameter.strides() && copy.numbers.device() == parameter.device());
}

bool is_current(const HalfCopy& copy, const Tensor& parameter) {
  return copy.numbers.defined() && copy.version == parameter.version() && copy.replays == replay_count();
}

void mark_current(HalfCopy& copy, const Tensor& parameter) {
  copy.version = parameter.version();
  copy.replays = replay_count();
}

void refresh(HalfCopy& copy, const Tensor& parameter) {
  if (is_current(copy, parameter)) return;
  ops::copy_into(copy.numbers, parameter.array());
  mark_current(copy, parameter);
}

}  // namespace

Array half_copy_for_cast(const Tensor& parameter, DType dtype) {
  const std::lock_guard lock(half_copy_mutex);
  std::shared_ptr<HalfCopy>& copy = slot_of(parameter);
  const bool is_known = copy && copy->dtype == dtype && fits(*copy, parameter);
  if (recording(parameter.device())) {
    if (!is_known || !copy->recorded) return {};
    copy->read = true;
  } else if (GradMode::is_enabled() && !is_known) {
    copy = std::make_shared<HalfCopy>();  // a new object, because a recorded step may use the old one
    copy->dtype = dtype;
  } else if (!is_known) {
    return {};
  }
  if (GradMode::is_enabled()) copy->wanted = true;
  return is_current(*copy, parameter) ? copy->numbers : Array();
}

Array half_copy_for_step(const Tensor& parameter) {
  const std::lock_guard lock(half_copy_mutex);
  HalfCopy* const copy = slot_of(parameter).get();
  if (!copy || !std::exchange(copy->wanted, false) || !parameter.array().is_dense()) return {};
  if (recording(parameter.device())) {
    if (!copy->recorded) return {};
  } else if (!copy->numbers.defined()) {
    copy->numbers = ops::cast(parameter.array(), copy->dtype);
    mark_current(*copy, parameter);
  } else if (copy->numbers.storage().use_count() > 1) {
    return {};
  }
  refresh(*copy, parameter);  // needed if the step writes nothing because it finds an infinity or NaN
  return copy->numbers;
}

void half_copy_written(const Tensor& parameter) { mark_current(*slot_of(parameter), parameter); }

std::shared_ptr<HalfCopy> exchange_half_copy(const Tensor& parameter, std::shared_ptr<HalfCopy> copy) {
  AutogradMeta& meta = parameter.impl()->need_meta();
  if (!copy && !meta.features.find<HalfState>()) return nullptr;
  const std::lock_guard lock(half_copy_mutex);
  return std::exchange(slot_of(parameter), std::move(copy));
}

Array gradient_for_step(const Tensor& leaf) {
  const AutogradMeta* const meta = leaf.impl()->meta.get();
  if (meta && has_half_gradient(*meta)) return meta->features.find<HalfState>()->gradient;
  return leaf.grad().defined() ? leaf.grad().array() : Array();
}

void keep_half_gradient(AutogradMeta& meta, const Array& gradient) {
  HalfState& half = meta.features.need<HalfState>();
  half.gradient = gradient;
  half.recorded = recording(gradient.device());
  half.has_gradient = true;
}

bool has_half_gradient(const AutogradMeta& meta) {
  const HalfState* const half = meta.features.find<HalfState>();
  return half && half->has_gradient;
}

void convert_stored_half_gradient(AutogradMeta& meta) {
  const gradus::detail::ObjectLock lock(&meta);
  if (!has_half_gradient(meta)) return;  // another thread has already converted it
  const HalfState& half = *meta.features.find<HalfState>();
  GRADUS_CHECK(half.recorded || !recording(half.gradient.device()), ValueError,
               "a recorded step adds to a gradient of shape ", half.gradient.shape(),
               " from before it: call zero_grad() in the step, or grad() before the recording");
  meta.grad = Tensor(ops::cast(half.gradient, DType::f32));
  drop_half_gradient(meta);
}

void drop_half_gradient(AutogradMeta& meta) {
  if (!has_half_gradient(meta)) return;
  HalfState& half = *meta.features.find<HalfState>();
  half.gradient = Array();
  half.has_gradient = false;
}

RecordedHalfCopies::RecordedHalfCopies(TensorList parameters) : parameters_(std::move(parameters)) {
  for (const Tensor& parameter : parameters_) {
    parameter.grad();  // converts the gradient to float32, before the recording adds to it
    const std::shared_ptr<HalfCopy>& half = slot_of(parameter);
    if (half && half->numbers.defined() && fits(*half, parameter)) copies_.push_back({parameter, half});
  }
  refresh();
  for (const Copy& copy : copies_) {
    copy.half->recorded = true;
    copy.half->read = false;
  }
}

RecordedHalfCopies::RecordedHalfCopies(TensorList parameters, DType dtype) {
  for (const Tensor& parameter : parameters) {
    if (parameter.dtype() != kFloat) continue;
    slot_of(parameter) = std::make_shared<HalfCopy>();
    slot_of(parameter)->dtype = dtype;
    slot_of(parameter)->numbers = Array::empty_like(parameter.array(), dtype);
    mark_current(*slot_of(parameter), parameter);
  }
  *this = RecordedHalfCopies(std::move(parameters));
}

int64_t RecordedHalfCopies::bytes() const {
  int64_t bytes = 0;
  for (const auto& [parameter, half] : copies_)
    bytes += counted_bytes(half->numbers.nbytes(), parameter.device().type());
  return bytes;
}

void RecordedHalfCopies::end_recording() {
  close();
  std::erase_if(copies_, [](const Copy& copy) { return !copy.half->read; });
  refresh();
}

void RecordedHalfCopies::close() const {
  for (const Copy& copy : copies_) copy.half->recorded = false;
}

void RecordedHalfCopies::refresh() const {
  for (const auto& [parameter, half] : copies_) detail::refresh(*half, parameter);
}

void RecordedHalfCopies::replayed() const {
  // The replay may have written parameters without increasing their versions.
  for (const Tensor& parameter : parameters_) parameter.array().bump_version();
  for (const auto& [parameter, half] : copies_) mark_current(*half, parameter);
}

}  // namespace gradus::amp::detail
