// Loss scaling. float16 has no numbers below 6e-8, so small gradients vanish. The loss is therefore multiplied by a
// large scale, the gradients are divided by it before the step, and steps whose gradients overflowed are skipped
// (Micikevicius et al., "Mixed precision training", 2018). Names and semantics are those of torch.amp.GradScaler.
//
//   amp::GradScaler scaler;
//   …
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);                                    // only to read or clip gradients
//   nn::utils::clip_grad_norm_on_device_(net->parameters(), 1.0);
//   scaler.step(optimizer);
//   scaler.update();
//
// The scale and the overflow flags are kept on the device of the loss and are never read back, so that a step can be
// captured in a graph. bfloat16 has float32's range and needs no loss scaling.
#pragma once

#include <map>

#include <gradus/core/options.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/optim/optimizer.h>

namespace gradus::amp {

struct GradScalerOptions {
  GRADUS_ARG(double, init_scale) = 65536;
  GRADUS_ARG(double, growth_factor) = 2;     ///< above 1; applied after `growth_interval` steps without infinities
  GRADUS_ARG(double, backoff_factor) = 0.5;  ///< below 1; applied after a step with infinities
  GRADUS_ARG(int64_t, growth_interval) = 2000;
  GRADUS_ARG(bool, enabled) = true;  ///< false: scale() and unscale_() do nothing, and step() is optimizer.step()
};

class GradScaler : NoCopy {
 public:
  using StateDict = optim::StateDict;

  /// Throws a ValueError for invalid options.
  explicit GradScaler(GradScalerOptions options = {});

  /// Returns the loss times the scale, in the loss's type.
  Tensor scale(const Tensor& loss);
  TensorList scale(const TensorList& losses);

  /// Divides the gradients of the optimizer's parameters by the scale, in place. Call it at most once for each
  /// optimizer between two calls of update(), and before the optimizer's step(); otherwise it throws a ValueError.
  /// float16 gradients are also a ValueError, because the quotient might underflow.
  void unscale_(optim::Optimizer& optimizer);

  /// Runs optimizer.step() with unscaled gradients. If a gradient contains an infinity or NaN, nothing is changed. If
  /// unscale_() was not called for this optimizer, the step divides the gradients by the scale. For an optimizer
  /// without a rule (Optimizer::has_rule), such as LBFGS, the host waits for the device to find out whether a gradient
  /// is infinite or NaN.
  void step(optim::Optimizer& optimizer);

  /// Sets the scale of the next iteration to `new_scale` or, by default, to a value that depends on whether gradients
  /// overflowed. Call it once after the steps of all optimizers.
  void update(std::optional<double> new_scale = {});

  bool is_enabled() const { return options_.enabled(); }
  const GradScalerOptions& options() const { return options_; }
  /// The scale, read back from the device.
  double get_scale() const;

  /// "scale", "growth_factor", "backoff_factor", "growth_interval" and "_growth_tracker", as in PyTorch. Empty if the
  /// scaler is disabled.
  StateDict state_dict() const;
  /// Throws a ValueError and changes nothing if the state does not match.
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage { ready, unscaled, stepped };
  struct Progress {
    Stage stage = Stage::ready;
    std::vector<Array> scaling;  // for each device: the gradients' factor and the inf-or-NaN flag
    bool captured = false;       // the calls were recorded in a graph capture
  };

  void make_block(Device device);
  bool capturing() const { return block_.defined() && runtime(block_.device().type()).capturing(); }
  /// The calls made for this optimizer since the last update(). Forgets calls that were recorded in a graph capture
  /// which has ended, and calls made before a capture that has begun.
  Progress& progress_of(optim::Optimizer& optimizer);
  /// Searches all gradients for infinities and NaN, and divides the gradients by the scale if `divide`. Returns
  /// Progress::scaling, whose factor is 1 if the gradients were divided and 1 / scale if not.
  std::vector<Array> look_at(optim::Optimizer& optimizer, bool divide) const;
  /// Reads an entry of block_, or returns its initial value if scale() has not been called yet.
  double number(int entry) const;

  GradScalerOptions options_;
  double first_tracker_ = 0;
  Array block_;  // scalars at the indices of ScaleBlock; made by the first scale()
  std::map<optim::Optimizer*, Progress> progress_;
};

}  // namespace gradus::amp
