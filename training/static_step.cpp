#include <gradus/training/static_step.h>

#include <algorithm>

#include <gradus/graph/executor.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/graph/recorder.h>

namespace gradus::training {

struct StaticStep::Recording {
  Signature signature;
  std::vector<double> options;  // those of the optimizers
  StepParts parts;
  StepConditions conditions;
  TensorList inputs, outputs;
  amp::detail::RecordedHalfCopies half_copies;
  std::unique_ptr<graph::Executor> executor;
};

StaticStep::StaticStep(Device device, const std::vector<optim::Optimizer*>& optimizers, Function step,
                       StaticStepOptions options)
    : ReplayedStep("StaticStep", device, optimizers, std::move(step)), options_(std::move(options)),
      wanted_(options_.enabled()) {
  const OpContext context("StaticStep");
  GRADUS_CHECK(options_.warm_up() >= 1, ValueError, "warm_up must be at least 1, got ", options_.warm_up());
  GRADUS_CHECK(options_.recordings() >= 1, ValueError, "recordings must be at least 1, got ", options_.recordings());
}

StaticStep::~StaticStep() = default;

TensorList StaticStep::operator()(const TensorList& batch) {
  Recording* const recording = recording_of(batch);
  if (!recording) {
    ++eager_steps_;
    return run_eagerly(batch);
  }
  copy_batch(batch, recording->inputs);
  upload_learning_rates();
  last_ = recording->executor.get();
  recording->half_copies.replay([&] { recording->executor->run(); });
  return recording->outputs;
}

StaticStep::Recording* StaticStep::recording_of(const TensorList& batch) {
  if (!wanted_ || eager_steps_ < options_.warm_up()) return nullptr;
  const Signature signature = signature_of(batch);
  const auto known = std::find_if(recordings_.begin(), recordings_.end(),
                                  [&](const auto& recording) { return recording->signature == signature; });
  if (known == recordings_.end()) {
    if (recordings_.size() == static_cast<size_t>(options_.recordings())) return nullptr;
    return recordings_.emplace_back(record(batch)).get();
  }
  if (!hold((*known)->conditions, (*known)->parts)) {
    if (last_ == (*known)->executor.get()) last_ = nullptr;
    recordings_.erase(known);
    eager_steps_ = options_.warm_up() - 1;  // one eager step creates the state that the next recording needs
    return nullptr;
  }
  if ((*known)->options != options_of_optimizers()) *known = record(batch);
  return known->get();
}

std::unique_ptr<StaticStep::Recording> StaticStep::record(const TensorList& batch) const {
  upload_learning_rates();
  auto recording = std::make_unique<Recording>();
  recording->signature = signature_of(batch), recording->options = options_of_optimizers();
  recording->inputs = make_inputs(batch);
  recording->half_copies = amp::detail::RecordedHalfCopies(parameters());
  const std::vector<const void*> gradients = gradient_addresses();
  try {
    graph::Recorder recorder(device_);
    StepPartsCollector collector;
    const TensorList results = step_(recording->inputs);
    recording->parts = collector.finish();
    recording->half_copies.end_recording();
    graph::Graph graph = recorder.finish();
    for (const void* gradient : gradients)
      GRADUS_CHECK(!graph.buffer_of(gradient), ValueError, "the step uses gradients from before it, which a recorded ",
                   "step does not have: call optimizer.zero_grad() in the step, before backward()");
    for (size_t i = 0; i < recording->inputs.size(); ++i)
      graph.set_name(recording->inputs[i].array(), "input " + std::to_string(i));
    for (const Tensor& result : results) graph.set_result(result.array());
    graph::run_passes(graph, options_.fuse_relu());
    recording->executor = std::make_unique<graph::Executor>(std::move(graph));
    for (const Tensor& result : results) recording->outputs.emplace_back(recording->executor->result(result.array()));
  } catch (...) {
    drop_gradients();
    throw;
  }
  drop_gradients();
  recording->conditions = conditions(recording->parts);
  recording->executor->graph().check_released();
  return recording;
}

void StaticStep::reset() {
  recordings_.clear();
  last_ = nullptr;
  eager_steps_ = 0;
}

void StaticStep::give_up() {
  reset();
  wanted_ = false;
}

}  // namespace gradus::training
