#include <gradus/autograd/checkpoint.h>

#include <gradus/core/runtime/random.h>

namespace gradus::autograd {
namespace {

thread_local constinit bool recomputing = false;

/// Makes this thread draw the same random numbers as an earlier run; other threads keep the default generator. While
/// the thread captures a CUDA graph, draws are counted for the capture and not in a generator, so the destructor
/// restores that count.
class GeneratorScope {
 public:
  GeneratorScope(bool active, uint64_t seed, uint64_t offset) : again_(seed), offset_(draw_position()) {
    if (!active) return;
    guard_.emplace(again_);
    set_draw_position(seed, offset);
  }
  ~GeneratorScope() {
    if (guard_) set_draw_position(again_.seed(), offset_);
  }

 private:
  Generator again_;
  const uint64_t offset_;
  std::optional<GeneratorGuard> guard_;
};

}  // namespace

bool is_recomputing() { return recomputing; }

Recomputation::Recomputation(std::function<void(const TensorList&)> run, const TensorList& inputs,
                             CheckpointOptions options)
    : run_(std::move(run)), preserve_rng_state_(options.preserve_rng_state), seed_(default_generator().seed()),
      offset_(draw_position()), autocast_(amp::Autocast::settings()) {
  owner_.set_name("checkpoint");
  for (const Tensor& input : inputs) {
    inputs_.push_back(std::make_unique<Saved>(&owner_, "input"));
    *inputs_.back() = input;  // the keeper of an enclosing checkpoint may take the data
    input_has_history_.push_back(input.requires_grad() && !input.is_leaf());
  }
}

std::optional<size_t> Recomputation::take(const Array& array, const Tensor& tensor) {
  // A parameter stays in memory in any case. Saving it directly costs nothing, and its version is checked.
  if (tensor.defined() && tensor.is_leaf() && tensor.requires_grad()) return std::nullopt;
  if (!running_again_) {
    places_.push_back({array.shape(), array.dtype(), false, {}});
    return places_.size() - 1;
  }
  GRADUS_CHECK(next_place_ < places_.size(), AutogradError, "a checkpointed function saved more than ", places_.size(),
               " tensors for backward when it ran again; it must compute the same each time");
  Place& place = places_[next_place_];
  GRADUS_CHECK(place.shape == array.shape() && place.dtype == array.dtype(), AutogradError,
               "a checkpointed function saved tensor ", next_place_, " as ", place.dtype, " of shape ", place.shape,
               " when it ran first and as ", array.dtype(), " of shape ", array.shape(),
               " when it ran again; it must compute the same each time");
  ++next_place_;
  if (!place.dropped) place.kept = {array, with_history_ ? tensor : Tensor()};
  return std::nullopt;
}

SavedKeeper::Kept Recomputation::give(size_t place) {
  const std::lock_guard lock(mutex_);
  GRADUS_CHECK(!places_[place].dropped, AutogradError,
               "the graph was already used: what a checkpointed function saved was freed by another backward pass; "
               "pass retain_graph = true");
  if (!filled_ || (GradMode::is_enabled() && !with_history_)) run_again();
  return places_[place].kept;
}

void Recomputation::drop(size_t place) {
  const std::lock_guard lock(mutex_);
  places_[place].dropped = true;
  places_[place].kept = {};
}

void Recomputation::run_again() {
  TensorList inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Tensor input = (*inputs_[i])();
    // An enclosing checkpoint has recomputed this input without a history. An empty node becomes its history, so that
    // the input requires gradients as in the first run and the same tensors are saved.
    if (input_has_history_[i] && !input.requires_grad()) {
      input = input.detach();
      input.impl()->need_meta().grad_fn = make_ref<Node>();
      input.impl()->need_meta().output_nr = input.impl()->meta->grad_fn->add_output(input.array());
    }
    inputs.push_back(std::move(input));
  }
  filled_ = false;
  with_history_ = GradMode::is_enabled();
  next_place_ = 0;
  const ScopedValue<bool> flag(recomputing, true), again(running_again_, true);
  const GeneratorScope generator(preserve_rng_state_, seed_, offset_);
  const AutoGradMode grad(true);
  const amp::Autocast autocast(autocast_);
  const Scope scope(this);
  run_(inputs);
  GRADUS_CHECK(next_place_ == places_.size(), AutogradError, "a checkpointed function saved ", places_.size(),
               " tensors for backward when it ran first and ", next_place_,
               " when it ran again; it must compute the same each time");
  filled_ = true;
}

}  // namespace gradus::autograd
