#include <gradus/optim/averaged_parameters.h>

#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus::optim {

namespace {

void check_decay(double decay) {
  GRADUS_CHECK(decay >= 0 && decay <= 1, ValueError, "decay must be in [0, 1], got ", decay);
}

}  // namespace

AveragedParameters::AveragedParameters(const StateDict& tensors, double decay)
    : AveragedParameters(tensors, [decay](int64_t) { return decay; }) {
  check_decay(decay);
}

AveragedParameters::AveragedParameters(const StateDict& tensors, Decay decay) : decay_(std::move(decay)) {
  GRADUS_CHECK(decay_, ValueError, "the decay is an empty function");
  GRADUS_CHECK(!tensors.is_empty(), ValueError, "there are no tensors to average");
  for (const auto& item : tensors) {
    GRADUS_CHECK(item.value().defined(), ValueError, "'", item.key(), "' is undefined");
    const Array& x = item.value().array();
    entries_.push_back({item.key(), item.value(), ops::clone(is_half(x.dtype()) ? ops::cast(x, DType::f32) : x)});
  }
}

void AveragedParameters::update() {
  GRADUS_CHECK(!applied(), ValueError, "the averages are applied: restore() before update()");
  const double keep = updates_ == 0 ? 0 : decay_(updates_);
  check_decay(keep);
  ++updates_;
  for (const Entry& entry : entries_) {
    const Array &average = entry.average, &value = entry.tensor.array();
    if (keep == 0 || !is_floating(average.dtype())) {
      ops::copy_into(average, value);
      continue;
    }
    const Array wide = ops::cast(ops::to_device(value, average.device()), average.dtype());
    const Array way = ops::binary(BinaryOp::sub, wide, average);
    ops::binary(BinaryOp::add, average, ops::binary_scalar(BinaryOp::mul, way, 1 - keep), &average);
  }
}

StateDict AveragedParameters::averages() const {
  StateDict averages("Average");
  for (const Entry& entry : entries_) averages.append(entry.name, Tensor(ops::clone(entry.average)));
  return averages;
}

void AveragedParameters::apply() {
  GRADUS_CHECK(!applied(), ValueError, "the averages are already applied");
  std::vector<Array> values;
  for (const Entry& entry : entries_) values.push_back(ops::clone(entry.tensor.array()));
  stashed_ = std::move(values);
  for (const Entry& entry : entries_) ops::copy_into(entry.tensor.array(), entry.average);
}

void AveragedParameters::restore() {
  GRADUS_CHECK(applied(), ValueError, "the averages are not applied");
  for (size_t i = 0; i < entries_.size(); ++i) ops::copy_into(entries_[i].tensor.array(), stashed_[i]);
  stashed_.clear();
}

AveragedParameters::Applied::~Applied() {
  try {
    if (averages_.applied()) averages_.restore();
  } catch (const Error&) {  // the device failed; its next use reports the error
  }
}

StateDict AveragedParameters::state_dict() const {
  StateDict state("Averages");
  NumberWriter numbers(state);
  int64_t updates = updates_;
  numbers("updates", updates);
  for (const Entry& entry : entries_) state.append("average." + entry.name, Tensor(entry.average));
  return state;
}

void AveragedParameters::load_state_dict(const StateDict& state) {
  const OpContext context("averages load_state_dict");
  StateReader reader(state);
  int64_t updates = 0;
  NumberReader numbers(reader);
  numbers("updates", updates);
  TensorList sources;
  for (const Entry& entry : entries_) {
    sources.push_back(reader.get("average." + entry.name));
    GRADUS_CHECK(sources.back().sizes() == entry.tensor.sizes(), ShapeError, "'average.", entry.name, "' has shape ",
                 sources.back().sizes(), ", the tensor ", entry.tensor.sizes());
  }
  reader.check_all_used("model's averages");
  for (size_t i = 0; i < entries_.size(); ++i) ops::copy_into(entries_[i].average, sources[i].array());
  updates_ = updates;
}

}  // namespace gradus::optim
