#include <gradus/backends/cudnn/engine.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/backends/cudnn/library.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus::cudnn_detail {
namespace {

// The number of an engine of cuDNN 9.14 whose float32 weight gradients of one channel have relative errors of 5e-4 (our
// kernels: 1e-7). No numerical note of cuDNN mentions this, so is_allowed() excludes the engine by number.
constexpr int64_t kInaccurateWeightEngine = 17;

// Returns true if, according to cuDNN's numerical notes, the engine obeys the problem's switches `tf32` and
// `deterministic` and neither rounds float32 operands nor sums in reduced precision.
bool is_allowed(const Descriptor& config, const EngineRequest& problem) {
  const auto engines = config.parts(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  const Descriptor& engine = engines.at(0);
  const bool f32 = problem.dtype == DType::f32;
  if (f32 && !problem.tf32 && problem.pass == ConvPass::backward_weight &&
      engine.values<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1).at(0) == kInaccurateWeightEngine)
    return false;
  for (const cudnnBackendNumericalNote_t note :
       engine.values<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)) {
    const bool refused = (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && problem.deterministic) ||
                         (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && f32 && !problem.tf32) ||
                         (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS && f32) ||
                         note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    if (refused) return false;
  }
  return true;
}

// The engines for the graph; cuDNN expects the first one to be the fastest.
std::vector<Descriptor> engines_for(const ConvGraph& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (!heuristics.finalize()) return {};
  return heuristics.parts(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                          heuristics.count_parts(CUDNN_ATTR_ENGINEHEUR_RESULTS));
}

// The first allowed engine that supports the problem or, if problem.timed is set, the fastest of the first kMostTimed.
// cuDNN's heuristic mode B is tried before mode A, because it finds faster engines for wgrad and equally fast engines
// for fprop and dgrad.
std::unique_ptr<Engine> choose_engine(const EngineRequest& problem, const EngineOperands& operands, bool addend) {
  constexpr int kMostTimed = 10;
  const cudnnHandle_t handle = handle_of(problem.device);
  const std::shared_ptr<const ConvGraph> graph = make_graph(problem, handle, addend);
  if (!graph) return nullptr;
  std::unique_ptr<Engine> best;
  double best_time = std::numeric_limits<double>::infinity();
  int timed = 0;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (Descriptor& config : engines_for(*graph, mode)) {
      if (!is_allowed(config, problem)) continue;
      auto engine = std::make_unique<Engine>(problem, graph, std::move(config), handle);
      if (!engine->supported()) continue;
      if (!problem.timed) return engine;
      const double time = cuda_detail::fastest_ms(problem.device, [&] { return engine->run(operands), true; });
      if (time < best_time) best_time = time, best = std::move(engine);
      if (++timed == kMostTimed) return best;
    }
    if (best) break;
  }
  return best;
}

std::unique_ptr<Engine> make_engine(const EngineRequest& problem, const EngineOperands& operands) {
  const cuda_detail::RelaxedCapture relaxed;  // loading an engine's code is otherwise forbidden during a capture
  auto engine = choose_engine(problem, operands, false);
  if (!engine && problem.bias && problem.relu) engine = choose_engine(problem, operands, true);
  return engine;
}

}  // namespace

// The engines of one thread. Threads do not share engines, because some engines cannot be run by two threads at the
// same time.
class EngineCache {
 public:
  /// The engine for a problem, or null if no engine supports it. Both results are cached.
  const Engine* find(EngineRequest problem, const EngineOperands& operands) {
    const bool captures = cuda_detail::this_thread_captures();
    auto found = entries_.find(problem);
    if (found == entries_.end() && problem.timed && captures) {
      problem.timed = false;  // nothing runs during a capture, so engines cannot be timed
      found = entries_.find(problem);
    }
    if (found == entries_.end()) {
      Entry entry{make_engine(problem, operands)};
      if (entries_.size() >= kCapacity) drop_oldest();
      found = entries_.emplace(problem, std::move(entry)).first;
    }
    Entry& entry = found->second;
    entry.last_use = ++uses_;
    entry.captured = entry.captured || captures;
    return entry.engine.get();
  }

 private:
  static constexpr size_t kCapacity = 512;
  struct Entry {
    std::unique_ptr<const Engine> engine;
    uint64_t last_use = 0;
    bool captured = false;
  };

  // Captured engines are kept, because a captured graph contains launches of their code.
  void drop_oldest() {
    const auto rank = [](const auto& entry) { return std::pair(entry.second.captured, entry.second.last_use); };
    const auto oldest = std::ranges::min_element(entries_, {}, rank);
    if (!oldest->second.captured) entries_.erase(oldest);
  }

  std::map<EngineRequest, Entry> entries_;
  uint64_t uses_ = 0;
};

std::string describe(const EngineRequest& problem) {
  const auto list = [](const auto& values) { return to_string(Dims(values.data(), values.size())); };
  const char* results[] = {"y", "dx", "dw"};
  return std::string(results[static_cast<int>(problem.pass)]) + " of x " + list(problem.x) + ", w " + list(problem.w) +
         ", y " + list(problem.y) + ", stride " + list(problem.stride) + ", padding " + list(problem.padding) +
         ", dilation " + list(problem.dilation) + ", " + std::string(name(problem.dtype)) +
         (problem.channels_last ? ", channels-last" : "");
}

Engine::Engine(const EngineRequest& problem, std::shared_ptr<const ConvGraph> graph, Descriptor config,
               cudnnHandle_t handle)
    : problem_(problem), graph_(std::move(graph)), config_(std::move(config)),
      plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config_);
  // After any error supported_ stays false, and choose_engine() tries the next engine.
  if (cudnnBackendFinalize(plan_.get()) != CUDNN_STATUS_SUCCESS) return;
  workspace_ = static_cast<size_t>(plan_.values<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1).at(0));
  supported_ = workspace_ <= problem.workspace_limit;
}

void Engine::run(const EngineOperands& operands) const {
  const Subject subject(problem_);
  const cuda_detail::DeviceGuard guard(problem_.device);
  const cuda_detail::Scratch workspace(workspace_, Device(DeviceType::cuda, problem_.device));
  if (is_recording(DeviceType::cuda)) return;  // a recorded step only measures memory
  std::vector<int64_t> ids = {kX, kW, kY};
  std::vector<void*> data;
  for (const void* each : {operands.x, operands.w, operands.y}) data.push_back(const_cast<void*>(each));
  if (problem_.bias) ids.push_back(kBias), data.push_back(const_cast<void*>(operands.bias));
  if (graph_->addend) ids.push_back(kAddend), data.push_back(const_cast<void*>(operands.y));

  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set_all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack.set_all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace.data());
  GRADUS_CUDNN_CHECK(cudnnBackendFinalize(pack.get()));
  GRADUS_CUDNN_CHECK(cudnnBackendExecute(handle_of(problem_.device), plan_.get(), pack.get()));
}

const Engine* find_engine(const EngineRequest& problem, const EngineOperands& operands) {
  const Subject subject(problem);
  const cuda_detail::DeviceGuard guard(problem.device);
  std::shared_ptr<EngineCache>& engines = context_of(problem.device).engines;
  if (!engines) engines = std::make_shared<EngineCache>();
  return engines->find(problem, operands);
}

}  // namespace gradus::cudnn_detail
