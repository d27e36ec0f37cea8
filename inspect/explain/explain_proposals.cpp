// Determines which changes would save most time and memory. If a change needs no other program (one thread, another
// memory layout), it is tried and measured. The saving of other changes is estimated as the time and bytes of the work
// that they would remove.
#include <algorithm>
#include <cmath>
#include <map>

#include <gradus/core/ops/ops.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/graph/recorder.h>
#include <gradus/inspect/explain/explain_parts.h>

namespace gradus::training {
namespace {

using Proposal = Explanation::Proposal;
constexpr size_t kProposals = 3;
constexpr double kWorthwhile = 0.02;  // changes that save a smaller share of the step are not proposed

struct Proposals {
  void add() {
    add_fusions();
    add_slow_kernels();
    add_leaks();
    add_recomputation();
    add_half_types();
    if (options.proposals()) {
      add_layout();
      if (!on_gpu) add_thread_count();
      if (explanation.leaks.empty()) add_static_step();
      else explanation.notes.emplace_back("a step whose tensors are kept cannot be a StaticStep");
    }
    const auto keep_best = [](std::vector<Proposal>& list, auto figure) {
      std::ranges::stable_sort(list, std::greater(), figure);
      if (list.size() > kProposals) list.resize(kProposals);
    };
    keep_best(explanation.faster, &Proposal::seconds);
    keep_best(explanation.smaller, &Proposal::bytes);
  }

  void faster(std::string change, double seconds, std::string basis) {
    if (seconds > kWorthwhile * explanation.step_seconds)
      explanation.faster.push_back({std::move(change), seconds, 0, std::move(basis)});
  }
  void smaller(std::string change, int64_t bytes, std::string basis) {
    if (bytes > 0) explanation.smaller.push_back({std::move(change), 0, bytes, std::move(basis)});
  }

  // A fused layer computes the ReLU in the kernel of the convolution or normalisation before it, forward and backward.
  void add_fusions() {
    double convolutions = 0, normalisations = 0;
    for (size_t i = 0; i < explanation.calls.size(); ++i) {
      const Explanation::Call& call = explanation.calls[i];
      if (call.backward || call.op != "relu" || call.inputs.size() != 1) continue;
      const std::string& before = explanation.calls[call.inputs[0]].name;
      double seconds = call.seconds;
      for (const Explanation::Call& later : explanation.calls) {
        const bool reads = std::ranges::find(later.inputs, i) != later.inputs.end();
        if (later.name == "unary_backward" && reads) seconds += later.seconds;
      }
      if (before.starts_with("conv2d")) convolutions += seconds;
      if (before == "normalize") normalisations += seconds;
    }
    faster("fuse convolutions and their ReLU: nn::ConvReLU2d", convolutions, "time of the ReLUs");
    faster("fuse batch norms and their ReLU: nn::BNReLU2d", normalisations, "time of the ReLUs");
  }

  // Names the slow kernels without saying how to avoid them, because that depends on the kernel.
  void add_slow_kernels() {
    constexpr double kSlow = 0.1;
    std::map<std::string, std::pair<double, double>> slow;  // seconds beyond the roofline, and in total
    for (const Explanation::Kernel& kernel : explanation.kernels) {
      if (kernel.roofline >= kSlow) continue;
      auto& [beyond, all] = slow[kernel.name + " by " + kernel.backend + "/" + kernel.implementation];
      beyond += kernel.seconds * (1 - kernel.roofline), all += kernel.seconds;
    }
    for (const auto& [name, seconds] : slow) {
      std::string change = "a faster kernel for " + name;
      detail::print_to(change, ", at %.2g %% of the roofline", 100 * (1 - seconds.first / seconds.second));
      faster(change, seconds.first, "time beyond the roofline");
    }
  }

  void add_leaks() {
    for (const Explanation::Leak& leak : explanation.leaks)
      smaller("release " + to_string(leak.shape) + " made by " + leak.made_by +
                  ", which the program keeps from step to step",
              leak.bytes, "per step");
  }

  // Proposes to recompute the module that, with its submodules, saves most memory. Arrays that other modules computed
  // for it are not counted, because recomputing the module does not free them.
  void add_recomputation() {
    std::map<std::string, int64_t> bytes;
    for (const Explanation::Saved& saved : explanation.saved)
      for (size_t end = saved.module.find('.'); saved.at_peak && !saved.module.empty();
           end = saved.module.find('.', end + 1)) {
        bytes[saved.module.substr(0, end)] += saved.bytes;
        if (end == std::string::npos) break;
      }
    const auto most = std::ranges::max_element(bytes, [](const auto& a, const auto& b) {
      return std::pair(a.second, b.first.size()) < std::pair(b.second, a.first.size());
    });
    if (most == bytes.end()) return;
    double seconds = 0;
    for (const Explanation::Kernel& kernel : explanation.kernels)
      if (!kernel.backward && detail::is_inside(kernel.module, most->first)) seconds += kernel.seconds;
    std::string change = "recompute layer '" + most->first + "' in the backward pass: autograd::checkpoint";
    detail::print_to(change, ", for %.3g ms more", 1e3 * seconds);
    smaller(change, most->second, "saved for it at the peak");
  }

  void add_half_types() {
    int64_t bytes = 0;
    for (const Explanation::Saved& saved : explanation.saved)
      if (saved.at_peak && saved.dtype == DType::f32) bytes += saved.bytes / 2;
    smaller("mixed precision: amp::Autocast with kBFloat16", bytes, "half of what is saved in float32 at the peak");
  }

  // Times each call that has images among its operands twice: with all images and weights contiguous, and with all of
  // them channels-last.
  void add_layout() {
    double seconds[2] = {};
    bool is_contiguous = false;  // whether one of the images is not channels-last
    for (const auto& call : calls) {
      if (std::string_view(call->name) == "optimizer_step") continue;
      bool has_images = false;
      graph::for_each_view(*call, [&](const StridedLayout& layout, bool) {
        has_images |= is_image(layout);
        is_contiguous |= is_image(layout) && layout.strides[1] != 1;
      });
      for (const bool channels_last : {false, true})
        if (has_images) seconds[channels_last] += seconds_in(*call, channels_last);
    }
    if (is_contiguous)
      faster("channels-last: net->to(MemoryFormat::channels_last), and the images", seconds[0] - seconds[1],
             "measured, operation by operation");
  }
  static bool is_image(const StridedLayout& layout) {
    return layout.ndim() == 4 && layout.shape[1] > 1 && layout.shape[2] * layout.shape[3] > 1;
  }
  double seconds_in(graph::Call& call, bool channels_last) const {
    std::vector<Array> arrays;
    graph::for_each_view(call, [&](auto& view, bool) {
      if (is_image(view))
        view.strides = channels_last ? channels_last_strides(view.shape) : contiguous_strides(view.shape);
      arrays.push_back(ops::zeros({graph::extent_of(view).end}, DType::u8, view.device));
      view.data = arrays.back().data();
    });
    const auto run = [&] { call.run(backend); };
    if (!on_gpu) return detail::least_seconds(options.steps(), run);
    run();  // loads the kernels
    return detail::least_captured_seconds(options.steps(), run);
  }

  /// The shortest times of an eager step and of changed(), which are measured alternately.
  std::pair<double, double> compare(const std::function<void()>& changed) const {
    std::pair<double, double> least(on_gpu ? INFINITY : explanation.step_seconds, INFINITY);
    const auto seconds_of = [&](const std::function<void()>& work) {
      return detail::least_seconds(1, [&] {
        work();
        if (on_gpu) runtime(device.type()).synchronize(device.index());
      });
    };
    for (int i = 0; i < options.steps() / 2 + 1; ++i) {
      least.first = std::min(least.first, seconds_of(step));
      least.second = std::min(least.second, seconds_of(changed));
    }
    return least;
  }

  void add_thread_count() {
    if (num_threads() == 1) return;
    const auto [before, after] = compare([&] {
      struct OneThread {
        OneThread() { set_num_threads(1); }
        ~OneThread() { set_num_threads(threads); }
        const int threads = num_threads();
      } one;
      step();
    });
    faster("a small step: set_num_threads(1)", before - after, "measured");
  }

  void add_static_step() {
    try {
      graph::Recorder recorder(device);
      step();
      graph::Graph graph = recorder.finish();
      graph::run_passes(graph);
      const int64_t eager = graph.eager_peak();
      graph::Executor executor(std::move(graph));
      smaller("planned memory: training::StaticStep", eager - static_cast<int64_t>(executor.plan().bytes),
              "the plan beside the eager step");
      const auto [before, after] = compare([&] { executor.run(); });
      faster("no work between kernels: training::StaticStep", before - after, "measured");
    } catch (const Error& error) {
      explanation.notes.push_back(std::string("the step cannot be a StaticStep: ") + error.what());
    }
    step();  // the recording left gradients without values; this step replaces them
  }

  Explanation& explanation;
  const graph::Calls& calls;
  Backend& backend;
  const std::function<void()>& step;
  const ExplainOptions& options;
  const Device device = settled(options.device());
  const bool on_gpu = device.is_cuda();
};

}  // namespace

void detail::add_proposals(Explanation& explanation, const graph::Calls& calls, Backend& backend,
                           const std::function<void()>& step, const ExplainOptions& options) {
  Proposals{explanation, calls, backend, step, options}.add();
}

}  // namespace gradus::training
