// Running averages of a model's parameters.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/optim/optimizer_options.h>

namespace gradus::optim {

/// Keeps running averages of tensors and can temporarily replace the tensors' values by them:
///
///   AveragedParameters ema(model, 0.999);                // or equal_weights for SWA
///   … optimizer.step(); ema.update();                    // after each step
///   { AveragedParameters::Applied applied(ema); evaluate(model); }
///
/// update() sets average = decay average + (1 - decay) value; the first update copies, as in
/// torch.optim.swa_utils.AveragedModel. Averages of half types are kept in float32, because small changes would be
/// rounded away. Integers are copied. Only tensors that the model had at construction are averaged.
class AveragedParameters : NoCopy {
 public:
  /// Returns the decay of the next update, given the number of previous updates. Must be in [0, 1].
  using Decay = std::function<double(int64_t updates)>;
  /// Gives all updates the same weight: stochastic weight averaging (Izmailov et al., "Averaging weights leads to wider
  /// optima", 2018).
  static double equal_weights(int64_t updates) {
    return static_cast<double>(updates) / static_cast<double>(updates + 1);
  }

  /// `tensors` maps names to tensors, as the result of named_parameters() does. A decay outside of [0, 1] is a
  /// ValueError.
  AveragedParameters(const StateDict& tensors, double decay);
  AveragedParameters(const StateDict& tensors, Decay decay);
  /// Averages a module's parameters and optionally its buffers (the statistics of batch norm).
  template <class Model, class AnyDecay>
  requires requires(const Model& model) { model->named_parameters(); }
  AveragedParameters(const Model& model, AnyDecay decay, bool use_buffers = false)
      : AveragedParameters(tensors_of(*model, use_buffers), std::move(decay)) {}

  /// Updates the averages with the tensors' values. Throws a ValueError while the averages are applied.
  void update();
  int64_t updates() const { return updates_; }
  /// Copies of the averages by name.
  StateDict averages() const;

  /// apply() replaces the tensors' values by the averages, restore() undoes this. Throws a ValueError if the averages
  /// are already applied, or not applied, respectively.
  void apply();
  void restore();
  bool applied() const { return !stashed_.empty(); }
  /// Applies the averages when it is constructed and restores the tensors' values when it is destroyed.
  class Applied : NoCopy {
   public:
    explicit Applied(AveragedParameters& averages) : averages_(averages) { averages.apply(); }
    ~Applied();

   private:
    AveragedParameters& averages_;
  };

  /// The state for a checkpoint: "updates" and "average.<name>". Save it while the averages are not applied, so that
  /// the model is saved with its own values.
  StateDict state_dict() const;
  /// Unknown or missing names are a ValueError, different shapes a ShapeError. In both cases nothing is changed.
  void load_state_dict(const StateDict& state);

 private:
  struct Entry {
    std::string name;
    Tensor tensor;
    Array average;
  };
  template <class Module>
  static StateDict tensors_of(const Module& model, bool use_buffers) {
    StateDict tensors = model.named_parameters();
    if (use_buffers) tensors.update(model.named_buffers());
    return tensors;
  }

  std::vector<Entry> entries_;
  Decay decay_;
  int64_t updates_ = 0;
  std::vector<Array> stashed_;  // the tensors' own values while the averages are applied
};

}  // namespace gradus::optim
