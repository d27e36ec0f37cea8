#include <gradus/training/early_stopping.h>

#include <limits>

#include <gradus/autograd/ops/creation.h>
#include <gradus/layers/module/serialize.h>

namespace gradus::training {
namespace {

const std::string kModel = "model.";

}  // namespace

double detail::worst_figure(Mode mode) {
  return std::numeric_limits<double>::infinity() * (mode == Mode::min ? 1 : -1);
}

bool detail::is_better(Mode mode, double figure, double best, double min_delta) {
  return mode == Mode::min ? figure < best - min_delta : figure > best + min_delta;
}

EarlyStopping::EarlyStopping(nn::Module& model, const EarlyStoppingOptions& options)
    : model_(model), options_(options), best_(detail::worst_figure(options.mode())) {
  GRADUS_CHECK(options.patience() >= 1, ValueError, "patience must be at least 1, got ", options.patience());
  GRADUS_CHECK(options.min_delta() >= 0, ValueError, "min_delta must not be negative, got ", options.min_delta());
}

bool EarlyStopping::step(double figure) {
  if (detail::is_better(options_.mode(), figure, best_, options_.min_delta())) {
    best_ = figure;
    best_epoch_ = epochs_;
    best_weights_ = nn::detail::copy_of(model_.state_dict());
  }
  ++epochs_;
  return epochs_ - 1 - best_epoch_ >= options_.patience();
}

void EarlyStopping::restore_best() const {
  if (best_epoch_ >= 0) model_.load_state_dict(best_weights_);
}

nn::StateDict EarlyStopping::state_dict() const {
  nn::StateDict state("Key");
  state.append("best", full({}, best_, dtype(kDouble)));
  state.append("epochs", full({}, epochs_, dtype(kLong)));
  state.append("best_epoch", full({}, best_epoch_, dtype(kLong)));
  for (const auto& item : best_weights_) state.append(kModel + item.key(), item.value());
  return state;
}

void EarlyStopping::load_state_dict(const nn::StateDict& state) {
  const OpContext context("early stopping load_state_dict");
  const auto number = [&]<class T>(const char* key, T) {
    const Tensor* tensor = state.find(key);
    GRADUS_CHECK(tensor && tensor->numel() == 1, ValueError, "the state must contain one number '", key, "'");
    return tensor->item<T>();
  };
  const double best = number("best", double());
  const int64_t epochs = number("epochs", int64_t()), best_epoch = number("best_epoch", int64_t());
  nn::StateDict weights("Key");
  const nn::StateDict own = model_.state_dict();
  for (const auto& item : state) {
    if (!item.key().starts_with(kModel)) continue;
    const std::string key = item.key().substr(kModel.size());
    const Tensor* tensor = own.find(key);
    GRADUS_CHECK(tensor, ValueError, "the state has weights '", key, "' that the model does not have");
    GRADUS_CHECK(tensor->sizes() == item->sizes(), ShapeError, "the weights '", key, "' have shape ", item->sizes(),
                 " in the state and ", tensor->sizes(), " in the model");
    weights.append(key, item.value());
  }
  GRADUS_CHECK(state.size() == weights.size() + 3 && weights.size() == (best_epoch < 0 ? 0 : own.size()), ValueError,
               "the state has ", state.size(), " entries with ", weights.size(), " weights; the model has ",
               own.size());
  best_ = best, epochs_ = epochs, best_epoch_ = best_epoch;
  best_weights_ = nn::detail::copy_of(weights);
}

}  // namespace gradus::training
