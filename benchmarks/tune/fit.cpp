// Factors are found in two steps. First, the estimates of each row are brought close to the measured times: the
// Levenberg-Marquardt method minimises the squares of log(estimate / time) over the logarithms of the factors, where
// algorithms that are far from the fastest count less. Then all rows together are changed at random, and a change is
// kept if the choices cost less with it and the estimates stay close to the times.
#include <algorithm>
#include <cmath>
#include <sstream>

#include <gradus/benchmarks/tune/tune.h>

namespace gradus::tune {
namespace {

struct Sample {
  KernelWork work;
  double measured_us, weight;
  size_t problem;
  double us = measured_us;  // corrected by the speed of the processor while the problem was measured
};

// Solves a x = b by Cholesky's method for a symmetric positive definite a.
KernelWork solve(std::array<KernelWork, kMaxWorkParts> a, KernelWork b) {
  for (size_t i = 0; i < kMaxWorkParts; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      a[i][j] = i == j ? std::sqrt(sum) : sum / a[j][j];
    }
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = kMaxWorkParts; i-- > 0; b[i] /= a[i][i])
    for (size_t k = i + 1; k < kMaxWorkParts; ++k) b[i] -= a[k][i] * b[k];
  return b;
}

// Errors (of logarithms) above this count linearly. The weight with which a factor stays near its limit.
constexpr double kLarge = 0.3, kPrior = 1e-2;

// The distance of the estimates from the times. Large errors count linearly, because some times are disturbed. Factors
// that the samples hardly determine stay near `limits`.
double distance(const std::vector<Sample>& samples, const KernelWork& factors, const KernelWork& limits) {
  double sum = 0;
  for (const Sample& each : samples) {
    const double error = std::abs(std::log(estimated_us(each.work, factors) / each.us));
    sum += each.weight * (error < kLarge ? error * error : kLarge * (2 * error - kLarge));
  }
  for (size_t i = 0; i < kMaxWorkParts; ++i)
    if (limits[i] > 0) sum += kPrior * std::pow(std::log(factors[i] / limits[i]), 2);
  return sum;
}

// Factors for which estimates are close to the times. `limits`: microseconds for a unit at the limits.
KernelWork close_to_times(const std::vector<Sample>& samples, KernelWork factors, const KernelWork& limits) {
  constexpr int kSteps = 30;
  constexpr double kMostChange = 1;
  double damping = 1, best = distance(samples, factors, limits);
  for (int step = 0; step < kSteps && damping < 1e9; ++step) {
    std::array<KernelWork, kMaxWorkParts> a = {};
    KernelWork b = {};
    for (const Sample& each : samples) {
      const double estimate = estimated_us(each.work, factors), error = std::log(estimate / each.us);
      const double weight = each.weight * std::min(1.0, kLarge / std::max(std::abs(error), 1e-9));
      KernelWork slope = {};
      for (size_t i = 0; i < kMaxWorkParts; ++i) slope[i] = each.work[i] * factors[i] / estimate;
      for (size_t i = 0; i < kMaxWorkParts; ++i) {
        b[i] -= weight * error * slope[i];
        for (size_t j = 0; j <= i; ++j) a[i][j] += weight * slope[i] * slope[j];
      }
    }
    for (size_t i = 0; i < kMaxWorkParts; ++i) {
      a[i][i] += kPrior + damping;
      if (limits[i] > 0) b[i] -= kPrior * std::log(factors[i] / limits[i]);
    }
    const KernelWork change = solve(a, b);
    KernelWork changed = factors;
    for (size_t i = 0; i < kMaxWorkParts; ++i) changed[i] *= std::exp(std::clamp(change[i], -kMostChange, kMostChange));
    if (const double now = distance(samples, changed, limits); now < best) best = now, factors = changed, damping /= 3;
    else damping *= 4;
  }
  return factors;
}

// Rows of the table, by index, in microseconds per unit.
struct Row {
  std::string name;
  WorkParts parts;
  KernelWork limits, fitted, factors;
  std::vector<size_t> users;  // choices
  std::vector<Sample> samples;

  // "FAMILY ALGORITHM"
  std::string algorithm() const { return name.substr(0, name.find(' ')) + name.substr(name.rfind(' ')); }
};

// Fits all rows. A processor's speed changes, with its clock and with what its other cores do, and while one problem is
// measured it is nearly the same for all candidates. So each problem has a speed, near 1, that is fitted too.
void fit_times(std::vector<Row>& rows, size_t problems) {
  constexpr int kRounds = 20;
  constexpr double kSpeedPrior = 0.5;  // weight of the speed 1
  for (Row& row : rows) row.factors = row.limits;
  // Factors that the samples hardly determine stay near those of the same algorithm's row with most samples.
  const auto with_most_samples = [&](const Row& row) {
    const Row* most = &row;
    for (const Row& each : rows)
      if (each.algorithm() == row.algorithm() && each.samples.size() > most->samples.size()) most = &each;
    return most;
  };
  for (int round = 0; round < kRounds; ++round) {
    for (Row& row : rows) {
      if (const Row* most = with_most_samples(row); round > 0 && most != &row) row.limits = most->factors;
      row.factors = close_to_times(row.samples, row.factors, row.limits);
    }
    std::vector<double> errors(problems, 0), weights(problems, kSpeedPrior);
    for (const Row& row : rows)
      for (const Sample& each : row.samples) {
        errors[each.problem] += each.weight * std::log(estimated_us(each.work, row.factors) / each.measured_us);
        weights[each.problem] += each.weight;
      }
    for (Row& row : rows)
      for (Sample& each : row.samples)
        each.us = each.measured_us * std::exp(errors[each.problem] / weights[each.problem]);
  }
  for (Row& row : rows) row.fitted = row.factors;
}

// A measured problem, with the work for the number of threads for which algorithms are chosen.
struct Choice {
  struct Part {
    size_t row;
    KernelWork work;
  };
  struct Way {
    std::vector<std::vector<Part>> steps;
    double regret;
  };
  std::vector<Way> ways;
  double cost = 0;

  // The cost of a choice grows faster than its regret, because the worst counts too. Candidates whose estimates are
  // close to the lowest count in part, so that a small error of the estimates does not change much.
  double cost_with(const std::vector<Row>& rows) const {
    constexpr double kSharpness = 10, kMostRegret = 4;
    double sum = 0, weights = 0, first = 0;
    for (const Way& each : ways) {
      double estimate = 0;
      for (const std::vector<Part>& alternatives : each.steps) {
        double least = std::numeric_limits<double>::infinity();
        for (const Part& part : alternatives) least = std::min(least, estimated_us(part.work, rows[part.row].factors));
        estimate += least;
      }
      if (weights == 0) first = estimate;
      const double weight = std::pow(first / estimate, kSharpness), regret = std::min(each.regret, kMostRegret);
      sum += weight * (regret + 20 * regret * regret), weights += weight;
    }
    return sum / weights;
  }
};

// Changes factors at random and keeps the changes with which the sum of the choices' costs and of the estimates'
// distances from the times is less.
void lower_regret(std::vector<Row>& rows, std::vector<Choice>& choices) {
  constexpr int kChanges = 10000;  // of each row
  constexpr double kDistance = 6;
  Random random(3);
  for (Choice& each : choices) each.cost = each.cost_with(rows);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<double> costs(choices.size()), distances;
  for (const Row& row : rows) distances.push_back(distance(row.samples, row.factors, row.fitted));
  for (int round = 0; round < kChanges; ++round)
    for (size_t i = 0; i < rows.size(); ++i) {
      Row& row = rows[i];
      const KernelWork factors = row.factors;
      const double size = std::exp(-5 * uniform());
      for (double& factor : row.factors)
        if (uniform() < 0.3) factor *= std::exp(size * (2 * uniform() - 1));
      const double far = distance(row.samples, row.factors, row.fitted);
      double change = kDistance * (far - distances[i]);
      for (const size_t user : row.users) {
        costs[user] = choices[user].cost_with(rows);
        change += costs[user] - choices[user].cost;
      }
      if (change < 0) {
        for (const size_t user : row.users) choices[user].cost = costs[user];
        distances[i] = far;
      } else {
        row.factors = factors;
      }
    }
}

}  // namespace

std::string fit(const std::vector<Measurement>& measurements, const TuningTable& table, const std::string& device) {
  const TuningTable::Device& limits = table.device(device);
  std::vector<Row> rows;
  std::map<std::string, size_t> row_of;
  const auto index_of = [&](const Term& term) {
    const auto [found, is_new] = row_of.try_emplace(term.row, rows.size());
    if (is_new) {
      Row& row = rows.emplace_back(Row{term.row, term.parts, {}, {}, {}, {}, {}});
      for (size_t i = 0; i < kMaxWorkParts && term.parts[i].name; ++i)
        row.limits[i] = (term.parts[i].limit == WorkLimit::calls ? 10 : 1) / limits.per_us(term.parts[i].limit);
    }
    return found->second;
  };
  std::vector<Choice> choices;
  for (const Measurement& each : measurements) {
    if (each.device != device) continue;
    const std::unique_ptr<Problem> problem = family_of(each.family).problem(each.device, each.problem);
    double fastest = std::numeric_limits<double>::infinity();
    for (const auto& [name, us] : each.us) fastest = std::min(fastest, us);
    Choice& choice = choices.emplace_back();
    for (const Candidate& candidate : problem->candidates(limits.threads)) {
      Choice::Way& way = choice.ways.emplace_back(Choice::Way{{}, each.us.at(candidate.name) / fastest - 1});
      for (const std::vector<Term>& alternatives : candidate.steps) {
        std::vector<Choice::Part>& step = way.steps.emplace_back();
        for (const Term& term : alternatives) {
          step.push_back({index_of(term), term.work});
          std::vector<size_t>& users = rows[step.back().row].users;
          if (users.empty() || users.back() != choices.size() - 1) users.push_back(choices.size() - 1);
        }
      }
    }
    if (!problem->is_fitted()) continue;
    for (const Candidate& candidate : problem->candidates(each.threads))
      if (const Term* term = candidate.only_term()) {
        const double us = each.us.at(candidate.name);
        rows[index_of(*term)].samples.push_back({term->work, us, std::max(0.05, fastest / us), choices.size() - 1});
      }
  }
  fit_times(rows, choices.size());
  lower_regret(rows, choices);

  std::ostringstream text;
  text.precision(3);
  for (const auto& [name, index] : row_of) {
    const Row& row = rows[index];
    text << name;
    for (size_t i = 0; i < kMaxWorkParts && row.parts[i].name; ++i)
      text << ' ' << row.parts[i].name << ' ' << row.factors[i] * limits.per_us(row.parts[i].limit);
    text << '\n';
  }
  return text.str();
}

}  // namespace gradus::tune
