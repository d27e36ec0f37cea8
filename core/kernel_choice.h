// How a family of kernels with several algorithms chooses one. An algorithm is a descriptor beside its kernel
// (KernelAlgorithm). It counts the work that it does for a problem, in parts: multiply-adds, bytes, calls. A tuning
// table, which benchmarks/tune fits to measurements, has a factor for each part. The estimate is the sum over the parts
// of
//   work * factor / limit      limit: the device's multiply-adds or bytes per microsecond, 1000 for calls, 1 for loops
// so a factor is "times the fastest that the device allows", nanoseconds per call, or microseconds per loop. The
// cheapest algorithm among those that can run is chosen. This depends on the problem and the table only, so results are
// the same from run to run.
//
// If the table has no factors for a device, the device's own limits are combined with the factors of the first device
// in the table. The environment variable GRADUS_TUNING names a file with a table for the user's machine; its lines
// replace those of the built-in table.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gradus/core/scope.h>

namespace gradus {

constexpr size_t kMaxWorkParts = 21;
/// The amount of each part of the work, for the thread that has most of it.
using KernelWork = std::array<double, kMaxWorkParts>;
/// The estimated time: the sum over the parts of work and microseconds for a unit of it.
inline double estimated_us(const KernelWork& work, const KernelWork& us_per_unit) {
  double sum = 0;
  for (size_t part = 0; part < kMaxWorkParts; ++part) sum += work[part] * us_per_unit[part];
  return sum;
}

/// What limits a part of the work.
enum class WorkLimit : uint8_t { multiply_adds, bytes, calls, loops };
/// A part of an algorithm's work, such as its multiply-adds.
struct WorkPart {
  const char* name = nullptr;  ///< name in the tuning table; null after the last part
  WorkLimit limit = WorkLimit::calls;
};
using WorkParts = std::array<WorkPart, kMaxWorkParts>;

/// `Problem` has shapes, strides, types and the device, `Plan` the tiles and the scratch memory, and `Launch` the
/// functions that run a plan.
template <class Problem, class Plan, class Launch>
struct KernelAlgorithm {
  const char* name;                 ///< the name in events, tests, explain and documents
  const char* reason;               ///< a clause that says when this algorithm is the right choice
  WorkParts parts;                  ///< what `work` counts
  bool (*can_run)(const Problem&);  ///< correctness only: shapes, strides, types, instruction set
  KernelWork (*work)(const Problem&);
  Plan (*plan)(const Problem&);
  Launch launch;
};

/// Devices and factors, read from lines of text. `#` begins a comment.
///   device NAME threads N multiply_adds_per_us X bytes_per_us X      (the numbers: once for each device)
///   FAMILY KIND ALGORITHM PART FACTOR PART FACTOR …        (of the device in the last such line)
class TuningTable {
 public:
  /// The limits of a device and the factors of the algorithms on it.
  struct Device {
    int threads = 1;  ///< the number for which algorithms are chosen; how many threads run changes no choice
    double multiply_adds_per_us = 1, bytes_per_us = 1;             ///< limits of one thread
    std::map<std::string, std::map<std::string, double>> factors;  ///< by "FAMILY KIND ALGORITHM", then by part

    /// What the device does in a microsecond; `loops` are of several threads or whole operators.
    double per_us(WorkLimit limit) const {
      return std::array{multiply_adds_per_us, bytes_per_us, 1000.0, 1.0}[static_cast<size_t>(limit)];
    }
  };

  /// The lines of `builtin`, then those of the file that GRADUS_TUNING names, if any.
  explicit TuningTable(std::string_view builtin);
  TuningTable(const TuningTable&) = delete;
  TuningTable& operator=(const TuningTable&) = delete;
  /// Throws a ValueError that names `source` and the line.
  void add(std::string_view text, const std::string& source);

  /// Throws a ValueError if there is no such device.
  const Device& device(const std::string& name) const;
  /// Throws a ValueError if a factor of the row is for a part that is in none of `parts`.
  void check_row(const std::string& row, const std::vector<WorkParts>& parts) const;
  /// Microseconds for a unit of each part. A part without a factor is estimated at the limit.
  KernelWork us_per_unit(const std::string& device, const std::string& row, const WorkParts& parts) const;

 private:
  std::map<std::string, Device> devices_;
  const Device* first_ = nullptr;  // the first device with factors
};

/// Within its scope, this thread chooses the algorithm of this name wherever it can run. For tests and benchmarks.
class ForcedAlgorithm : NoCopy {
 public:
  explicit ForcedAlgorithm(const char* name);
  ~ForcedAlgorithm() { current_ = outer_; }
  /// Null if no algorithm is forced.
  static const char* current() { return current_.name; }
  /// Differs for different names; 0 if no algorithm is forced.
  static uint64_t id() { return current_.id; }

 private:
  struct Forced {
    const char* name = nullptr;
    uint64_t id = 0;
  };
  static constinit thread_local Forced current_;
  Forced outer_;
};

/// A thread's last plans, so that a step that repeats its shapes does not choose again.
template <class Problem, class Plan>
class RecentPlans {
 public:
  /// The plan for `problem`, from choose() if it is not known. `hash` should differ for different problems.
  template <class Choose>
  const Plan& get(const Problem& problem, uint64_t hash, Choose&& choose) {
    if (sets_.empty()) sets_.resize(64);
    std::array<Entry, 2>& set = sets_[hash * 0x9E3779B97F4A7C15 >> 58];
    const uint64_t forced = ForcedAlgorithm::id();
    for (const Entry& entry : set)
      if (entry.forced == forced && entry.problem == problem) return entry.plan;
    set[1] = set[0];
    set[0] = {forced, problem, choose()};
    return set[0].plan;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Entry {
    uint64_t forced = kEmpty;  ///< ForcedAlgorithm::id() when the plan was made
    Problem problem = {};
    Plan plan = {};
  };
  std::vector<std::array<Entry, 2>> sets_;  // empty in a thread that has not chosen yet
};

/// The algorithms of a family. A problem's kind() is an index in `kinds`, and its device_index() one in `devices`.
template <class Algorithm>
class KernelFamily {
 public:
  /// An algorithm that can run.
  struct Candidate {
    const Algorithm* algorithm = nullptr;
    size_t index = 0;
    double estimated_us = std::numeric_limits<double>::infinity();
    KernelWork work = {};
  };

  KernelFamily(std::string name, std::vector<std::string> kinds, std::vector<const Algorithm*> algorithms,
               const std::vector<std::string>& devices, const TuningTable& table)
      : name(std::move(name)), kinds(std::move(kinds)), algorithms(std::move(algorithms)) {
    for (const Algorithm* each : this->algorithms) {
      std::vector<WorkParts> parts;  // of all algorithms with this name; no two of them run for the same kind
      for (const Algorithm* other : this->algorithms)
        if (std::string_view(other->name) == each->name) parts.push_back(other->parts);
      for (size_t kind = 0; kind < this->kinds.size(); ++kind) table.check_row(row(kind, *each), parts);
    }
    for (const std::string& device : devices) {
      threads_.push_back(table.device(device).threads);
      for (size_t kind = 0; kind < this->kinds.size(); ++kind)
        for (const Algorithm* each : this->algorithms)
          us_per_unit_.push_back(table.us_per_unit(device, row(kind, *each), each->parts));
      for (const Algorithm* each : this->algorithms) implementations_.push_back(each->name + ('_' + device));
    }
  }

  /// Calls f(candidate) for each algorithm that can run, except those whose bit in `without` is set. The estimate of a
  /// forced one is tiny.
  template <class Problem, class F>
  void for_candidates(const Problem& problem, F&& f, uint32_t without = 0) const {
    const char* const forced = ForcedAlgorithm::current();
    const KernelWork* us_per_unit =
        &us_per_unit_[(problem.device_index() * kinds.size() + problem.kind()) * algorithms.size()];
    for (size_t i = 0; i < algorithms.size(); ++i) {
      if ((without >> i & 1) || !algorithms[i]->can_run(problem)) continue;
      const bool is_forced = forced && std::string_view(forced) == algorithms[i]->name;
      Candidate candidate{algorithms[i], i, 0, algorithms[i]->work(problem)};
      candidate.estimated_us = gradus::estimated_us(candidate.work, us_per_unit[i]) * (is_forced ? 1e-12 : 1);
      f(candidate);
    }
  }

  /// The candidate with the lowest estimate; without an algorithm if none can run.
  template <class Problem>
  Candidate select(const Problem& problem) const {
    Candidate best;
    for_candidates(problem, [&](const Candidate& each) {
      if (each.estimated_us < best.estimated_us) best = each;
    });
    return best;
  }

  /// An algorithm's row in the tuning table.
  std::string row(size_t kind, const Algorithm& algorithm) const {
    return name + ' ' + kinds[kind] + ' ' + algorithm.name;
  }
  /// The number of threads for which the table compares algorithms on this device.
  int threads(size_t device) const { return threads_[device]; }
  /// The algorithm's name with the device, for observers.
  const char* implementation(size_t device, size_t algorithm) const {
    return implementations_[device * algorithms.size() + algorithm].c_str();
  }

  const std::string name;
  const std::vector<std::string> kinds;  ///< passes and types that differ in factors
  const std::vector<const Algorithm*> algorithms;

 private:
  std::vector<int> threads_;
  std::vector<KernelWork> us_per_unit_;  // [device][kind][algorithm]
  std::vector<std::string> implementations_;
};

}  // namespace gradus
