#include <gradus/optim/grad_scaler.h>

#include <cmath>

#include <gradus/autograd/ops/elementwise.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus::amp {
namespace {

void check_options(const GradScalerOptions& options) {
  const OpContext context("GradScaler");
  GRADUS_CHECK(options.init_scale() > 0 && std::isfinite(options.init_scale()), ValueError,
               "init_scale must be positive and finite, got ", options.init_scale());
  GRADUS_CHECK(options.growth_factor() > 1 && std::isfinite(options.growth_factor()), ValueError,
               "growth_factor must be more than 1 and finite, got ", options.growth_factor());
  GRADUS_CHECK(options.backoff_factor() > 0 && options.backoff_factor() < 1, ValueError,
               "backoff_factor must be between 0 and 1, got ", options.backoff_factor());
  GRADUS_CHECK(options.growth_interval() > 0, ValueError, "growth_interval must be positive, got ",
               options.growth_interval());
}

/// Visits the numbers of a state dict. The scale is the init_scale of `options`.
void visit_numbers(GradScalerOptions& options, int64_t& growth_tracker, optim::NumberVisitor&& visitor) {
  visitor("scale", options.init_scale());
  visitor("growth_factor", options.growth_factor());
  visitor("backoff_factor", options.backoff_factor());
  visitor("growth_interval", options.growth_interval());
  visitor("_growth_tracker", growth_tracker);
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(std::move(options)) { check_options(options_); }

void GradScaler::make_block(Device device) {
  // If a graph captured this, each replay would reset the scale to its initial value.
  GRADUS_CHECK(!runtime(device.type()).capturing(), ValueError,
               "the scale cannot be made in a captured step: take an eager step before the capture");
  block_ = ops::full({ScaleBlock::size}, 0, DType::f64, device);
  ops::fill(block_.select(0, ScaleBlock::scale), options_.init_scale());
  ops::fill(block_.select(0, ScaleBlock::growth_tracker), first_tracker_);
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!is_enabled()) return loss;
  const OpContext context("GradScaler::scale");
  GRADUS_CHECK(loss.defined() && is_floating(loss.dtype()), ValueError, "the loss must be a tensor of a floating type");
  if (!block_.defined()) make_block(loss.device());
  // Half types are multiplied in float32, because float16 cannot represent scales above 65504.
  const DType type = loss.dtype() == kDouble ? kDouble : kFloat;
  const Tensor factor = Tensor(ops::cast(ops::to_device(block_.select(0, ScaleBlock::scale), loss.device()), type));
  return (loss.to(type) * factor).to(loss.dtype());
}

TensorList GradScaler::scale(const TensorList& losses) {
  TensorList scaled;
  for (const Tensor& loss : losses) scaled.push_back(scale(loss));
  return scaled;
}

GradScaler::Progress& GradScaler::progress_of(optim::Optimizer& optimizer) {
  Progress& progress = progress_[&optimizer];
  if (progress.captured != capturing()) progress = {Stage::ready, {}, capturing()};
  return progress;
}

std::vector<Array> GradScaler::look_at(optim::Optimizer& optimizer, bool divide) const {
  GRADUS_CHECK(block_.defined(), ValueError, "no loss was scaled yet: call scale(loss).backward() first");
  std::map<std::string, std::vector<Array>> gradients;  // by device
  for (const Tensor& parameter : optimizer.parameters()) {
    const Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    GRADUS_CHECK(!divide || gradient.dtype() != kHalf, ValueError,
                 "float16 gradients cannot be unscaled: keep the parameters in float32 and use autocast");
    gradients[gradient.device().str()].push_back(gradient.array());
  }
  GRADUS_CHECK(!gradients.empty(), ValueError, "no parameter of the optimizer has a gradient");

  std::vector<Array> scaling;
  for (const auto& [name, here] : gradients) {
    const Device device = here[0].device();
    const Array pair = Array::empty({2}, DType::f64, device);
    const Array factor = pair.select(0, 0), found_inf = pair.select(0, 1);
    const Array scale = ops::to_device(block_.select(0, ScaleBlock::scale), device);
    ops::binary_scalar(BinaryOp::div, scale, 1.0, /*scalar_first=*/true, &factor);
    ops::fill(found_inf, 0);
    ops::unscale(here, divide ? factor : Array(), found_inf);
    if (divide) ops::fill(factor, 1);
    scaling.push_back(pair);
  }
  return scaling;
}

void GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!is_enabled()) return;
  const OpContext context("GradScaler::unscale_");
  Progress& progress = progress_of(optimizer);
  GRADUS_CHECK(progress.stage != Stage::unscaled, ValueError,
               "was called for this optimizer already since the last update()");
  GRADUS_CHECK(progress.stage != Stage::stepped, ValueError, "comes after step(): call it before");
  progress.scaling = look_at(optimizer, /*divide=*/true);
  progress.stage = Stage::unscaled;
}

void GradScaler::step(optim::Optimizer& optimizer) {
  if (!is_enabled()) {
    optimizer.step();
    return;
  }
  const OpContext context("GradScaler::step");
  Progress& progress = progress_of(optimizer);
  GRADUS_CHECK(progress.stage != Stage::stepped, ValueError,
               "was called for this optimizer already since the last update()");
  if (progress.stage == Stage::ready) progress.scaling = look_at(optimizer, /*divide=*/!optimizer.has_rule());
  if (optimizer.has_rule()) {
    optimizer.step_scaled(progress.scaling);
  } else {
    bool found_inf = false;
    for (const Array& pair : progress.scaling) found_inf = found_inf || ops::item(pair.select(0, 1)).to_bool();
    if (!found_inf) optimizer.step();
  }
  progress.stage = Stage::stepped;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!is_enabled()) return;
  const OpContext context("GradScaler::update");
  GRADUS_CHECK(!new_scale || (*new_scale > 0 && std::isfinite(*new_scale)), ValueError,
               "the new scale must be positive and finite, got ", new_scale.value_or(0));
  GRADUS_CHECK(block_.defined(), ValueError, "no loss was scaled yet");
  if (new_scale) {
    ops::fill(block_.select(0, ScaleBlock::scale), *new_scale);
  } else {
    bool looked = false;
    const Array found_inf = block_.select(0, ScaleBlock::found_inf);
    for (const auto& [optimizer, progress] : progress_) {
      if (progress.captured != capturing()) continue;
      for (const Array& pair : progress.scaling) {
        ops::binary(BinaryOp::add, found_inf, ops::to_device(pair.select(0, 1), block_.device()), &found_inf);
        looked = true;
      }
    }
    GRADUS_CHECK(looked, ValueError, "no gradients were looked at since the last update(): call step() first");
    ops::update_scale(block_, {options_.growth_factor(), options_.backoff_factor(), options_.growth_interval()});
  }
  progress_.clear();
}

double GradScaler::number(int entry) const {
  if (block_.defined()) return ops::item(block_.select(0, entry)).to_double();
  return entry == ScaleBlock::scale ? options_.init_scale() : first_tracker_;
}

double GradScaler::get_scale() const { return is_enabled() ? number(ScaleBlock::scale) : 1; }

GradScaler::StateDict GradScaler::state_dict() const {
  StateDict state("GradScaler state");
  if (!is_enabled()) return state;
  GradScalerOptions current = options_;
  current.init_scale(get_scale());
  auto growth_tracker = static_cast<int64_t>(number(ScaleBlock::growth_tracker));
  visit_numbers(current, growth_tracker, optim::NumberWriter(state));
  return state;
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!is_enabled()) return;
  const OpContext context("GradScaler load_state_dict");
  optim::StateReader reader(state);
  GradScalerOptions loaded = options_;
  int64_t growth_tracker = 0;
  visit_numbers(loaded, growth_tracker, optim::NumberReader(reader));
  reader.check_all_used("GradScaler");
  check_options(loaded);
  options_ = loaded;
  first_tracker_ = static_cast<double>(growth_tracker);
  if (!block_.defined()) return;
  ops::fill(block_.select(0, ScaleBlock::scale), options_.init_scale());
  ops::fill(block_.select(0, ScaleBlock::growth_tracker), first_tracker_);
}

}  // namespace gradus::amp
