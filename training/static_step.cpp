#include <gradus/training/static_step.h>

#include <algorithm>

#include <gradus/graph/executor.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/graph/recorder.h>

namespace gradus::training {

struct StaticStep::RecordedGraph : Recording {
  std::unique_ptr<graph::Executor> executor;
};

StaticStep::StaticStep(Device device, const std::vector<optim::Optimizer*>& optimizers, Function step,
                       StaticStepOptions options)
    : ReplayedStep("StaticStep", device, optimizers, std::move(step), options.warm_up(), options.enabled()),
      options_(std::move(options)) {
  const OpContext context("StaticStep");
  GRADUS_CHECK(options_.recordings() >= 1, ValueError, "recordings must be at least 1, got ", options_.recordings());
}

StaticStep::~StaticStep() = default;

TensorList StaticStep::operator()(const TensorList& batch) {
  RecordedGraph* const recording = recording_of(batch);
  if (!recording) {
    ++eager_steps_;
    return run_eagerly(batch);
  }
  last_ = recording->executor.get();
  return replay(*recording, batch, [&] { recording->executor->run(); });
}

StaticStep::RecordedGraph* StaticStep::recording_of(const TensorList& batch) {
  if (!wanted_ || eager_steps_ < warm_up_) return nullptr;
  const Signature signature = signature_of(batch);
  const auto known = std::find_if(recordings_.begin(), recordings_.end(),
                                  [&](const auto& recording) { return recording->signature == signature; });
  if (known == recordings_.end()) {
    if (recordings_.size() == static_cast<size_t>(options_.recordings())) return nullptr;
    return recordings_.emplace_back(record_graph(batch)).get();
  }
  if (!is_valid(**known)) {
    if (last_ == (*known)->executor.get()) last_ = nullptr;
    recordings_.erase(known);
    eager_steps_ = warm_up_ - 1;  // one eager step creates the state that the next recording needs
    return nullptr;
  }
  if (!has_current_options(**known)) *known = record_graph(batch);
  return known->get();
}

std::unique_ptr<StaticStep::RecordedGraph> StaticStep::record_graph(const TensorList& batch) const {
  auto recording = std::make_unique<RecordedGraph>();
  const std::vector<const void*> gradients = gradient_addresses();
  record(*recording, batch, [&](const auto& work) {
    graph::Recorder recorder(device_);
    work();
    graph::Graph graph = recorder.finish();
    for (const void* gradient : gradients)
      GRADUS_CHECK(!graph.buffer_of(gradient), ValueError, "the step uses gradients from before it, which a recorded ",
                   "step does not have: call optimizer.zero_grad() in the step, before backward()");
    for (size_t i = 0; i < recording->inputs.size(); ++i)
      graph.set_name(recording->inputs[i].array(), "input " + std::to_string(i));
    for (const Tensor& result : recording->outputs) graph.set_result(result.array());
    graph::run_passes(graph, options_.fuse_relu());
    recording->executor = std::make_unique<graph::Executor>(std::move(graph));
    for (Tensor& result : recording->outputs) result = Tensor(recording->executor->result(result.array()));
  });
  drop_gradients();
  recording->executor->graph().check_released();
  return recording;
}

void StaticStep::reset() {
  recordings_.clear();
  last_ = nullptr;
  eager_steps_ = 0;
}

}  // namespace gradus::training
