// Factors are found in two steps, in both of which one factor after another is multiplied by the best of a few values.
// First, for each row alone, estimates are brought close to the measured times: the sum of squares of log(estimate /
// time) is made small, where algorithms that are far from the fastest count less. Then the choices are made to cost
// little.
#include <algorithm>
#include <cmath>
#include <sstream>

#include <gradus/benchmarks/tune/tune.h>

namespace gradus::tune {
namespace {

using Factors = std::map<std::string, KernelWork>;  // by row, in microseconds per unit

struct Sample {
  KernelWork work;
  double us, weight;
};

constexpr double kChanges[] = {1, 0.25, 0.5, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.25, 2, 4};

// Multiplies `factor` by the change for which `cost` is least.
template <class Cost>
void improve(double& factor, Cost&& cost) {
  double least = std::numeric_limits<double>::infinity(), best = factor;
  const double before = factor;
  for (const double change : kChanges) {
    factor = before * change;
    if (const double now = cost(); now < least) least = now, best = factor;
  }
  factor = best;
}

// Factors for which estimates are close to the times. `limits`: microseconds for a unit at the limits.
KernelWork close_to_times(const std::vector<Sample>& samples, const KernelWork& limits) {
  constexpr int kSweeps = 60;
  constexpr double kLeast = 1e-3;  // of the limit
  KernelWork factors = limits;
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (size_t part = 0; part < kMaxWorkParts; ++part) {
      std::vector<double> others;  // the estimate without this part
      for (const Sample& each : samples) {
        others.push_back(0);
        for (size_t i = 0; i < kMaxWorkParts; ++i) others.back() += i == part ? 0 : each.work[i] * factors[i];
      }
      improve(factors[part], [&] {
        double cost = 0;
        for (size_t i = 0; i < samples.size(); ++i) {
          const double estimate = others[i] + samples[i].work[part] * factors[part];
          cost += samples[i].weight * std::pow(std::log(estimate / samples[i].us), 2);
        }
        return cost;
      });
      factors[part] = std::max(factors[part], kLeast * limits[part]);
    }
  return factors;
}

// A measured problem, with the work for the number of threads for which algorithms are chosen.
struct Choice {
  std::vector<Candidate> candidates;
  const Measurement* measurement;
  double fastest;

  // The cost of a choice grows faster than its regret, because the worst counts too. Candidates whose estimates are
  // close to the lowest count in part, so that a small error of the estimates does not change much.
  double cost(const Factors& factors) const {
    constexpr double kSharpness = 16, kMostRegret = 3;
    double sum = 0, weights = 0, least = 0;
    for (const Candidate& each : candidates) {
      const double estimate = estimate_us(each, [&](const Term& term) { return factors.at(term.row); });
      if (weights == 0) least = estimate;
      const double weight = std::pow(least / estimate, kSharpness);
      const double regret = std::min(measurement->us.at(each.name) / fastest - 1, kMostRegret);
      sum += weight * (regret + 4 * regret * regret), weights += weight;
    }
    return sum / weights;
  }
};

void lower_regret(Factors& factors, const std::vector<Choice>& choices) {
  const Factors fitted = factors;
  std::map<std::string, std::vector<const Choice*>> users;
  for (const Choice& each : choices) {
    std::vector<std::string> rows;
    for (const Candidate& candidate : each.candidates)
      for (const std::vector<Term>& alternatives : candidate.steps)
        for (const Term& term : alternatives) rows.push_back(term.row);
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    for (const std::string& row : rows) users[row].push_back(&each);
  }
  for (int sweep = 0; sweep < 12; ++sweep)
    for (auto& [row, used_by] : users)
      for (size_t part = 0; part < kMaxWorkParts; ++part) {
        double& factor = factors[row][part];
        const double middle = fitted.at(row)[part];
        if (middle == 0) continue;
        improve(factor, [&] {
          const double distance = std::log(factor / middle);
          double cost = 0.02 * distance * distance;  // prefers what the times say
          for (const Choice* each : used_by) cost += each->cost(factors);
          return cost;
        });
      }
}

}  // namespace

std::string fit(const std::vector<Measurement>& measurements, const TuningTable& table, const std::string& device) {
  std::map<std::string, std::vector<Sample>> samples;
  std::map<std::string, WorkParts> parts;
  std::vector<Choice> choices;
  for (const Measurement& each : measurements) {
    if (each.device != device) continue;
    const std::unique_ptr<Problem> problem = family_of(each.family).problem(each.device, each.problem);
    double fastest = std::numeric_limits<double>::infinity();
    for (const auto& [name, us] : each.us) fastest = std::min(fastest, us);
    choices.push_back({problem->candidates(table.device(device).threads), &each, fastest});
    for (const Candidate& candidate : choices.back().candidates)
      for (const std::vector<Term>& alternatives : candidate.steps)
        for (const Term& term : alternatives) parts[term.row] = term.parts;
    if (!problem->is_fitted()) continue;
    for (const Candidate& candidate : problem->candidates(each.threads)) {
      const Term* term = candidate.only_term();
      if (!term) continue;
      const double us = each.us.at(candidate.name), weight = std::max(0.05, std::pow(fastest / us, 2));
      samples[term->row].push_back({term->work, us, weight});
    }
  }
  const TuningTable::Device& device_limits = table.device(device);
  const double per_us[] = {device_limits.multiply_adds_per_us, device_limits.bytes_per_us, 1000};
  Factors factors;
  for (const auto& [row, its_parts] : parts) {
    KernelWork limits = {};
    for (size_t i = 0; i < kMaxWorkParts && its_parts[i].name; ++i)
      limits[i] = (its_parts[i].limit == WorkLimit::calls ? 100 : 1) / per_us[static_cast<size_t>(its_parts[i].limit)];
    factors[row] = close_to_times(samples[row], limits);
  }
  lower_regret(factors, choices);

  std::ostringstream text;
  text.precision(3);
  for (const auto& [row, its_parts] : parts) {
    text << row;
    for (size_t i = 0; i < kMaxWorkParts && its_parts[i].name; ++i)
      text << ' ' << its_parts[i].name << ' ' << factors[row][i] * per_us[static_cast<size_t>(its_parts[i].limit)];
    text << '\n';
  }
  return text.str();
}

}  // namespace gradus::tune
