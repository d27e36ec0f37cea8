// Loss scaling: float16 has no numbers below 6e-8, so that small gradients vanish. The loss is multiplied by a large
// number, the gradients are divided by it before the step, and steps whose gradients overflowed are left out
// (Micikevicius et al., "Mixed precision training", 2018). Names and semantics are those of torch.amp.GradScaler.
//
//   amp::GradScaler scaler;
//   …
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);                                    // only to look at gradients or to clip them
//   nn::utils::clip_grad_norm_on_device_(net->parameters(), 1.0);
//   scaler.step(optimizer);
//   scaler.update();
//
// The scale and what was found live on the device of the loss and are never read back, so that a step can be captured
// in a graph. bfloat16 has float32's range and needs none of this.
#pragma once

#include <map>

#include <gradus/core/options.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/optim/optimizer.h>

namespace gradus::amp {

struct GradScalerOptions {
  GRADUS_ARG(double, init_scale) = 65536;
  GRADUS_ARG(double, growth_factor) = 2;     ///< more than 1: after `growth_interval` steps without inf
  GRADUS_ARG(double, backoff_factor) = 0.5;  ///< less than 1: after a step with one
  GRADUS_ARG(int64_t, growth_interval) = 2000;
  GRADUS_ARG(bool, enabled) = true;  ///< false: scale() and unscale_() do nothing, step() is the optimizer's
};

class GradScaler {
 public:
  using StateDict = optim::StateDict;

  /// Options that make no sense are a ValueError.
  explicit GradScaler(GradScalerOptions options = {});
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  /// The loss times the scale, in the loss's type.
  Tensor scale(const Tensor& loss);
  TensorList scale(const TensorList& losses);

  /// Divides the gradients of the optimizer's parameters by the scale, in place. At most once for each optimizer
  /// between two calls of update(), and before its step(); else a ValueError, as are float16 gradients, in which the
  /// quotient might not be a number.
  void unscale_(optim::Optimizer& optimizer);

  /// optimizer.step() with unscaled gradients; where one of them is inf or NaN nothing changes. Gradients that
  /// unscale_() has not seen stay multiplied; the step divides. For an optimizer without a rule (has_rule()), the host
  /// waits for the device.
  void step(optim::Optimizer& optimizer);

  /// To be called once after the steps of all optimizers: the scale of the next iteration, or a given one.
  void update(std::optional<double> new_scale = {});

  bool is_enabled() const { return options_.enabled(); }
  const GradScalerOptions& options() const { return options_; }
  /// The scale, read back from the device.
  double get_scale() const;

  /// "scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker", as in PyTorch; empty when
  /// disabled.
  StateDict state_dict() const;
  /// What does not fit is a ValueError, and nothing changes.
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage { ready, unscaled, stepped };
  struct Progress {
    Stage stage = Stage::ready;
    std::vector<Array> scaling;  // by device: what multiplies the gradients, and whether an inf was found
    bool captured = false;       // recorded in a graph, not computed
  };

  void make_block(Device device);
  bool capturing() const { return block_.defined() && runtime(block_.device().type()).capturing(); }
  /// What was done for the optimizer since the last update(); nothing where a capture did it that failed since.
  Progress& progress_of(optim::Optimizer& optimizer);
  /// Looks at all gradients, and divides them where `divide`.
  std::vector<Array> look_at(optim::Optimizer& optimizer, bool divide) const;
  /// An entry of the block, or what it will hold at first.
  double number(int entry) const;

  GradScalerOptions options_;
  double first_tracker_ = 0;
  Array block_;  // ScaleBlock, made by the first scale()
  std::map<optim::Optimizer*, Progress> progress_;
};

}  // namespace gradus::amp
