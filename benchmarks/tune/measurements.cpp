#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include <gradus/benchmarks/tune/tune.h>
#include <gradus/core/error.h>

namespace gradus::tune {

int64_t log_uniform(Random& random, int64_t low, int64_t high) {
  const double part = static_cast<double>(random() >> 11) * 0x1p-53;
  const double ratio = static_cast<double>(high + 1) / static_cast<double>(low);
  return std::min(high, static_cast<int64_t>(static_cast<double>(low) * std::pow(ratio, part)));
}

DType dtype_named(const std::string& name) {
  for (const DType each : {DType::f32, DType::f64, DType::f16, DType::bf16})
    if (gradus::name(each) == name) return each;
  GRADUS_FAIL(ValueError, "no floating type ", name);
}

std::vector<Family>& families() {
  static std::vector<Family> all = {openmp_gemm(), openmp_conv2d()};
  return all;
}

const Family& family_of(const std::string& name) {
  for (const Family& each : families())
    if (each.name == name) return each;
  GRADUS_FAIL(ValueError, "no family ", name);
}

std::string to_text(const Measurement& measurement) {
  std::ostringstream text;
  text << measurement.key() << " :";
  text.precision(4);
  for (const auto& [name, us] : measurement.us) text << ' ' << name << ' ' << us;
  return text.str();
}

std::vector<Measurement> read_measurements(const std::string& path) {
  std::vector<Measurement> all;
  std::map<std::string, size_t> known;
  std::vector<std::map<std::string, std::vector<double>>> repetitions;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(" : ");
    GRADUS_CHECK(colon != std::string::npos, ValueError, path, ": no times in '", line, "'");
    Measurement each;
    std::istringstream words(line.substr(0, colon)), times(line.substr(colon + 3));
    words >> each.family >> each.device >> each.threads;
    std::getline(words >> std::ws, each.problem);
    const size_t at = known.try_emplace(each.key(), all.size()).first->second;
    if (at == all.size()) all.push_back(std::move(each)), repetitions.emplace_back();
    std::string name;
    for (double us = 0; times >> name >> us;) {
      std::vector<double>& of_name = repetitions[at][name];
      of_name.insert(std::upper_bound(of_name.begin(), of_name.end(), us), us);
      all[at].us[name] = (of_name[(of_name.size() - 1) / 2] + of_name[of_name.size() / 2]) / 2;
    }
  }
  return all;
}

Costs costs_of(const TuningTable& table, const std::string& device) {
  return [&table, device](const Term& term) { return table.us_per_unit(device, term.row, term.parts); };
}

double estimate_us(const Candidate& candidate, const Costs& costs) {
  double sum = 0;
  for (const std::vector<Term>& alternatives : candidate.steps) {
    double least = std::numeric_limits<double>::infinity();
    for (const Term& term : alternatives) least = std::min(least, estimated_us(term.work, costs(term)));
    sum += least;
  }
  return sum;
}

const Candidate& choice_of(const std::vector<Candidate>& candidates, const Costs& costs) {
  const auto cheaper = [&](const Candidate& a, const Candidate& b) {
    return estimate_us(a, costs) < estimate_us(b, costs);
  };
  return *std::min_element(candidates.begin(), candidates.end(), cheaper);
}

void Regret::add(const Measurement& measurement, const std::map<std::string, double>& estimates) {
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  double fastest = std::numeric_limits<double>::infinity();
  for (const auto& [name, us] : measurement.us)
    if (estimates.count(name) > 0) fastest = std::min(fastest, us);
  const std::string& chosen = std::min_element(estimates.begin(), estimates.end(), less)->first;
  const auto found = measurement.us.find(chosen);
  GRADUS_CHECK(found != measurement.us.end(), ValueError, "no time of ", chosen, " for ", measurement.key());
  const double regret = found->second / fastest - 1, count = static_cast<double>(problems.size());
  mean = (mean * count + regret) / (count + 1);
  worst = std::max(worst, regret);
  std::ostringstream text;
  text.precision(4);
  text << to_text(measurement) << " estimated:";
  for (const auto& [name, us] : estimates) text << ' ' << name << ' ' << us;
  problems.emplace_back(regret, text.str());
}

std::string Regret::worst_problems(size_t count) const {
  std::vector<std::pair<double, std::string>> sorted = problems;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::ostringstream text;
  text.precision(3);
  for (size_t i = 0; i < std::min(count, sorted.size()); ++i)
    text << 100 * sorted[i].first << " %  " << sorted[i].second << '\n';
  return text.str();
}

std::map<std::string, Regret> regrets(const std::vector<Measurement>& measurements, const TuningTable& table) {
  std::map<std::string, Regret> result;
  for (const Measurement& each : measurements) {
    const std::unique_ptr<Problem> problem = family_of(each.family).problem(each.device, each.problem);
    std::map<std::string, double> estimates;
    for (const Candidate& candidate : problem->candidates(table.device(each.device).threads))
      estimates[candidate.name] = estimate_us(candidate, costs_of(table, each.device));
    std::istringstream words(each.problem);
    std::string first, second;
    words >> first >> second;
    result[each.family].add(each, estimates);
    result[each.family + ' ' + first + ' ' + second].add(each, estimates);
    result[each.family + " threads " + std::to_string(each.threads)].add(each, estimates);
  }
  return result;
}

}  // namespace gradus::tune
