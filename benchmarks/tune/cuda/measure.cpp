// Measures problems on a device. Several threads prepare problems, which takes long because cuDNN compiles some of its
// engines; one at a time has the device.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

#include <gradus/benchmarks/timing.h>
#include <gradus/benchmarks/tune/cuda/family.h>
#include <gradus/core/error.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/gradus.h>
#include <gradus/graph/recorder.h>

namespace gradus::cuda_detail {
const DeviceProperties& device_properties(int index);  // runtime/cuda_runtime.h, which includes headers of CUDA
}

namespace gradus::tune {
namespace {

using benchmarks::now_ms;
using cuda_detail::device_properties;

// Memory without contents, in which a thread calls operators to find out what they need. Nothing runs on the device.
class Rehearsal {
 public:
  explicit Rehearsal(Device device) : blocks_(std::make_shared<graph::RecordedBlocks>(device)) {
    detail::recorded_memory = blocks_.get();
    try {
      runtime(DeviceType::cuda).begin_capture();
    } catch (...) {
      detail::recorded_memory = nullptr;
      throw;
    }
  }
  ~Rehearsal() {
    try {
      runtime(DeviceType::cuda).end_capture();
    } catch (const std::exception&) {  // the capture is discarded anyway
    }
    detail::recorded_memory = nullptr;
  }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

 private:
  std::shared_ptr<graph::RecordedBlocks> blocks_;
};

double largest(const Tensor& x) { return x.abs().max().item<double>(); }

// Microseconds of the algorithms, which are sampled in turn. `note` takes lines about failures.
std::map<std::string, double> measure(const CudaProblem& problem, Device device,
                                      const std::function<void(const std::string&)>& note) {
  constexpr int kSamples = 5, kMostCalls = 20;
  constexpr double kHopeless = 4, kSampleUs = 150;
  struct Timed {
    std::string algorithm;
    double first_us = 0;
    int calls = 1;
    std::unique_ptr<cuda::Graph> graph = nullptr;
    std::vector<double> us = {};
  };
  const std::unique_ptr<CudaOperands> operands = problem.operands(device);
  cuda::set_matmul_allow_tf32(problem.allows_tf32());  // of the process; one thread at a time has the device
  operands->fill();
  Tensor first;
  double scale = 0, fastest = std::numeric_limits<double>::infinity();
  cuda::Event before(true), after(true);
  const auto timed_us = [&](auto&& work) {
    before.record();
    work();
    after.record();
    after.synchronize();
    return before.elapsed_time(after) * 1000;
  };
  std::vector<Timed> all;
  for (const Candidate& candidate : problem.candidates(1)) try {
      const std::string& algorithm = candidate.name;
      operands->reset();
      if (!operands->launch(algorithm)) continue;
      const Tensor result = Tensor(operands->result()).to(DType::f32);
      if (!first.defined()) {
        first = result.clone(), scale = largest(first);
        if (!std::isfinite(scale)) note("not finite " + algorithm);
      } else if (const double difference = largest(result - first); !(difference <= problem.tolerance() * scale)) {
        note("differs " + algorithm + " by " + std::to_string(difference / scale));
      }
      Timed each{algorithm};
      each.first_us = timed_us([&] { operands->launch(algorithm); });
      fastest = std::min(fastest, each.first_us);
      all.push_back(std::move(each));
    } catch (const Error& error) { note("failed " + candidate.name + ": " + error.what()); }
  const auto is_hopeless = [&](const Timed& each) { return each.first_us > kHopeless * std::max(fastest, 50.0); };
  for (Timed& each : all) {
    if (is_hopeless(each)) continue;
    each.calls = std::clamp(static_cast<int>(kSampleUs / each.first_us), 2, kMostCalls);
    each.graph = std::make_unique<cuda::Graph>();
    each.graph->capture([&] {
      for (int i = 0; i < each.calls; ++i) operands->launch(each.algorithm);
    });
  }
  for (int sample = 0; sample < kSamples; ++sample)
    for (Timed& each : all) {
      if (!each.graph) continue;
      each.graph->replay();  // hides how long the host takes to launch the next
      each.us.push_back(timed_us([&] { each.graph->replay(); }) / each.calls);
    }
  std::map<std::string, double> us;
  for (const Timed& each : all) us[each.algorithm] = each.us.empty() ? each.first_us : benchmarks::median(each.us);
  return us;
}

class Campaign {
 public:
  explicit Campaign(const CudaMeasuring& options) : options_(options) {
    start_ms_ = now_ms();
    std::set<std::string> known;
    for (const Measurement& each : read_measurements(options.path)) known.insert(each.family + ' ' + each.problem);
    std::ifstream before(options.path);  // a problem that ended the process is not tried again
    for (std::string line; std::getline(before, line);)
      for (const std::string_view ended : {kHangs, kBreaks})
        if (line.starts_with(ended)) known.insert(line.substr(ended.size()));
    for (const Family& family : options_.families) {
      Random random(options.seed);
      for (int64_t j = 0; j < options.problems; ++j)
        if (std::string text = family.draw(random); known.insert(family.name + ' ' + text).second)
          work_.push_back({&family, std::move(text), j});
    }
    std::ranges::stable_sort(work_, {}, &Work::turn);
    file_.open(options.path, std::ios::app);
    GRADUS_CHECK(file_, IoError, "cannot write to ", options.path);
  }

  void run() {
    std::atomic<bool> done = false;
    std::thread guard([&] {
      while (!done) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        check_for_hang();
      }
    });
    std::vector<std::thread> workers;
    for (int64_t i = 0; i < options_.jobs; ++i) workers.emplace_back([&] { work(); });
    for (std::thread& each : workers) each.join();
    done = true;
    guard.join();
    std::printf("measured %lld of %zu problems in %.1f s, %.1f s of which had the device; %lld failed\n",
                static_cast<long long>(measured_), work_.size(), (now_ms() - start_ms_) / 1000, device_ms_ / 1000,
                static_cast<long long>(failures_));
  }

 private:
  // Lines about problems that ended the process.
  static constexpr std::string_view kHangs = "# hangs ", kBreaks = "# breaks the device ";

  bool is_late() const { return options_.seconds > 0 && now_ms() - start_ms_ > options_.seconds * 1000; }

  void write(const std::string& line) {
    std::lock_guard lock(file_mutex_);
    file_ << line << std::endl;
  }

  void work() {
    constexpr int64_t kMostFailures = 20;
    const Device device(DeviceType::cuda, 0);
    while (!is_late() && failures_ < kMostFailures) {
      const size_t index = next_++;
      if (index >= work_.size()) return;
      const Work& each = work_[index];
      const auto note = [&](const std::string& about) {
        std::string line = "# " + about + ": " + each.text();
        std::replace(line.begin(), line.end(), '\n', ' ');
        write(line);
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
      };
      try {
        const std::unique_ptr<Problem> made = each.family->problem("h200", each.problem);
        auto& problem = dynamic_cast<CudaProblem&>(*made);
        problem.use(device_properties(0));
        rehearse(problem, device);
        std::lock_guard lock(device_mutex_);
        if (is_late()) return;
        const double begun_ms = now_ms();
        current_ = index, begun_ms_ = begun_ms;
        Measurement result{each.family->name, "h200", 1, each.problem, {}};
        std::exception_ptr failure;
        try {
          result.us = measure(problem, device, note);
        } catch (const std::exception&) { failure = std::current_exception(); }
        begun_ms_ = 0;
        device_ms_ += now_ms() - begun_ms;
        if (!device_works()) give_up(kBreaks, each.text());
        if (failure) std::rethrow_exception(failure);
        if (!result.us.empty()) write(to_text(result)), ++measured_;
      } catch (const std::exception& error) {
        ++failures_;
        note(std::string("failed: ") + error.what());
      }
    }
  }

  // Lets cuDNN find the engines, which this thread then has.
  static void rehearse(const CudaProblem& problem, Device device) {
    for (const Candidate& each : problem.candidates(1)) try {
        if (!problem.is_prepared_slowly(each.name)) continue;
        const Rehearsal rehearsal(device);
        problem.operands(device)->launch(each.name);
      } catch (const Error&) {  // measure() reports it
      }
  }

  void check_for_hang() {
    constexpr double kMostMs = 20000;
    const double begun = begun_ms_, now = now_ms();
    const bool hangs = begun > 0 && now - begun > kMostMs;
    if (!hangs && !(options_.seconds > 0 && now - start_ms_ > options_.seconds * 1000 + kMostMs)) return;
    give_up(hangs ? kHangs : "# a thread does not end, last problem: ", work_[current_].text());
  }

  // False after a kernel that failed, because CUDA then refuses all later calls of the process. Waits for this thread's
  // stream alone: CUDA refuses to wait for the device while another thread captures its rehearsal.
  static bool device_works() {
    try {
      cuda::Event end;
      end.record();
      end.synchronize();
      return true;
    } catch (const Error&) { return false; }
  }

  [[noreturn]] void give_up(std::string_view why, const std::string& problem) {
    write(std::string(why) + problem);
    std::printf("gave up %s%s\n", why.data(), problem.c_str());
    std::fflush(stdout);
    std::_Exit(3);
  }

  struct Work {
    const Family* family;
    std::string problem;
    int64_t turn;

    std::string text() const { return family->name + ' ' + problem; }
  };
  const CudaMeasuring options_;
  std::vector<Work> work_;
  std::ofstream file_;
  std::mutex file_mutex_, device_mutex_;
  std::atomic<size_t> next_ = 0, current_ = 0;
  std::atomic<int64_t> failures_ = 0;
  std::atomic<double> begun_ms_ = 0;  // time at which the problem on the device began; 0 if there is none
  double start_ms_ = 0, device_ms_ = 0;
  int64_t measured_ = 0;
};

}  // namespace

void measure_cuda(const CudaMeasuring& options) {
  GRADUS_CHECK(cudnn::is_available(), DeviceError, "a GPU, and a build with CUDA and cuDNN, are needed");
  Campaign(options).run();
}

}  // namespace gradus::tune
