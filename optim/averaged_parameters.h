// Running averages of a model's parameters.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/optim/number_visitor.h>

namespace gradus::optim {

/// Keeps an average of tensors beside them, and puts it in their place for a while:
///
///   AveragedParameters ema(model, 0.999);                // or equal_weights for SWA
///   … optimizer.step(); ema.update();                    // after each step
///   { AveragedParameters::Applied applied(ema); evaluate(model); }
///
/// update() sets average = decay average + (1 - decay) value; the first one copies, as
/// torch.optim.swa_utils.AveragedModel does. Averages of half types are kept in float32, since they would stand still;
/// integers are copied. The tensors are those that the model had when this was made.
class AveragedParameters {
 public:
  /// The decay of update number n + 1, from n. Must be in [0, 1].
  using Decay = std::function<double(int64_t updates)>;
  /// All updates count alike: stochastic weight averaging (Izmailov et al., "Averaging weights leads to wider optima",
  /// 2018).
  static double equal_weights(int64_t updates) {
    return static_cast<double>(updates) / static_cast<double>(updates + 1);
  }

  /// Tensors by name, such as named_parameters(). A decay outside [0, 1] is a ValueError.
  AveragedParameters(const StateDict& tensors, double decay);
  AveragedParameters(const StateDict& tensors, Decay decay);
  /// A module's parameters, and its buffers (the statistics of batch norm) where wanted.
  template <class Model, class AnyDecay>
  requires requires(const Model& model) { model->named_parameters(); }
  AveragedParameters(const Model& model, AnyDecay decay, bool use_buffers = false)
      : AveragedParameters(tensors_of(*model, use_buffers), std::move(decay)) {}
  AveragedParameters(const AveragedParameters&) = delete;
  AveragedParameters& operator=(const AveragedParameters&) = delete;

  /// Takes the tensors' values into the averages. A ValueError while these are applied.
  void update();
  int64_t updates() const { return updates_; }
  /// Copies of the averages, by name.
  StateDict averages() const;

  /// Puts the averages into the tensors, and back what was there. Applying twice, or restoring what is not applied, is
  /// a ValueError.
  void apply();
  void restore();
  bool applied() const { return !stashed_.empty(); }
  /// Applies them while it lives.
  class Applied {
   public:
    explicit Applied(AveragedParameters& averages) : averages_(averages) { averages.apply(); }
    ~Applied();
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    AveragedParameters& averages_;
  };

  /// What a checkpoint needs: "updates" and "average.<name>". Save while they are not applied, for the model's sake.
  StateDict state_dict() const;
  /// Other names are a ValueError, other shapes a ShapeError; nothing changes then.
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
  std::vector<Array> stashed_;  // the tensors' own values while averages are applied
};

}  // namespace gradus::optim
