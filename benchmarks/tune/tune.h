// What benchmarks/tune.cpp and the tests of the choices share: problems of the families as text, measurements of all
// algorithms, the regret of a choice, and the fit of a tuning table (core/kernel_choice.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gradus/core/array/dtype.h>
#include <gradus/core/kernel_choice.h>

namespace gradus::tune {

using Random = std::mt19937_64;
/// One of [low, high], whose logarithm is uniform.
int64_t log_uniform(Random& random, int64_t low, int64_t high);
template <class T>
const T& one_of(Random& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

/// The type with this name; throws a ValueError if there is none.
DType dtype_named(const std::string& name);

/// Work that is estimated by one row of the table.
struct Term {
  std::string row;  ///< "FAMILY KIND ALGORITHM"
  WorkParts parts;
  KernelWork work;
};

/// A way to solve a problem. Its estimate is the sum over `steps` of the cheapest alternative.
struct Candidate {
  std::string name;
  std::vector<std::vector<Term>> steps;

  /// The only term, from which factors can be fitted; null if there are several.
  const Term* only_term() const { return steps.size() == 1 && steps[0].size() == 1 ? &steps[0][0] : nullptr; }
};

/// The candidate of a family's algorithm, whose work is one term.
template <class Algorithm>
Candidate candidate_of(const KernelFamily<Algorithm>& family, size_t kind,
                       const typename KernelFamily<Algorithm>::Candidate& each) {
  return {each.algorithm->name, {{{family.row(kind, *each.algorithm), each.algorithm->parts, each.work}}}};
}

class Problem {
 public:
  virtual ~Problem() = default;
  virtual std::vector<Candidate> candidates(int threads) const = 0;
  /// The name of the candidate that the family's select() takes.
  virtual std::string selected() const = 0;
  /// Runs the operator by this candidate, on arrays that the first call makes.
  virtual void run(const std::string& candidate) = 0;
  /// False if times contain much that the work does not, such as conversions of types.
  virtual bool is_fitted() const { return true; }
};

struct Family {
  std::string name;
  std::function<std::string(Random&)> draw;  ///< the text of a random problem
  std::function<std::unique_ptr<Problem>(const std::string& device, const std::string& text)> problem;
};
Family openmp_gemm();
Family openmp_conv2d();
/// Those of the CPU. Programs with others append them.
std::vector<Family>& families();
const Family& family_of(const std::string& name);

/// Microseconds of all candidates of a problem. As text: "FAMILY DEVICE THREADS PROBLEM : CANDIDATE US CANDIDATE US …".
struct Measurement {
  std::string family, device;
  int threads = 1;
  std::string problem;
  std::map<std::string, double> us;

  std::string key() const { return family + ' ' + device + ' ' + std::to_string(threads) + ' ' + problem; }
};
std::string to_text(const Measurement& measurement);
/// Empty if there is no such file. A problem with several lines has the median of its times.
std::vector<Measurement> read_measurements(const std::string& path);

/// Microseconds for a unit of each part, by row.
using Costs = std::function<KernelWork(const Term&)>;
Costs costs_of(const TuningTable& table, const std::string& device);
double estimate_us(const Candidate& candidate, const Costs& costs);
/// The candidate with the lowest estimate.
const Candidate& choice_of(const std::vector<Candidate>& candidates, const Costs& costs);

/// How much longer the chosen candidates take than the fastest ones, as parts of the fastest's time.
struct Regret {
  double mean = 0, worst = 0;
  std::vector<std::pair<double, std::string>> problems;  ///< with their regrets

  /// `estimates` has the estimated times of all candidates.
  void add(const Measurement& measurement, const std::map<std::string, double>& estimates);
  /// The problems with the most regret, one a line.
  std::string worst_problems(size_t count) const;
};
/// By family, and by family and kind of problem (its first two words).
std::map<std::string, Regret> regrets(const std::vector<Measurement>& measurements, const TuningTable& table);

/// The lines of the table for all rows that the measurements have: factors for which estimates are closest to the
/// measured times, then adjusted in turn where that lowers the regret.
std::string fit(const std::vector<Measurement>& measurements, const TuningTable& table, const std::string& device);

}  // namespace gradus::tune
