// How well the choices of matrix products and convolutions on the openmp backend do on stored measurements of all
// algorithms (benchmarks/tune made them), and that documents say what the descriptors say.
#include <algorithm>
#include <fstream>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/benchmarks/tune/tune.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::openmp_detail;

namespace {

constexpr const char* kMeasurements = "benchmarks/results/tuning_two_cores.txt";
constexpr const char* kOtherProblems = "benchmarks/results/tuning_two_cores_other_problems.txt";

// The mean regret of each family is at most `mean`, and the worst at most what `worst` has for the family.
void check_regret(const std::string& file, double mean, const std::map<std::string, double>& worst) {
  const std::vector<tune::Measurement> measurements = tune::read_measurements(test::source_path(file));
  const std::map<std::string, tune::Regret> regrets = tune::regrets(measurements, tuning_table());
  for (const tune::Family& family : tune::families()) {
    const auto found = regrets.find(family.name);
    INFO(file << ", " << family.name);
    REQUIRE(found != regrets.end());
    INFO("worst: " << found->second.worst_problems(3));
    CHECK(found->second.problems.size() >= 100);
    CHECK(found->second.mean <= mean);
    CHECK(found->second.worst <= worst.at(family.name));
  }
}

// The lines of a Markdown table, one for each name.
template <class Algorithm>
std::string table_of(const KernelFamily<Algorithm>& family) {
  std::string text = "| algorithm | when it is the right one |\n|---|---|\n";
  std::map<std::string, std::string> reasons;
  for (const Algorithm* each : family.algorithms) {
    const auto [known, is_new] = reasons.try_emplace(each->name, each->reason);
    CHECK(known->second == each->reason);
    if (is_new) text += "| `" + known->first + "` | " + known->second + " |\n";
  }
  return text;
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(test::source_path(path));
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("the README of the openmp backend lists the algorithms with the reasons that events have") {
  const std::string readme = text_of_file("backends/openmp/README.md");
  for (const std::string& table : {table_of(gemm_family()), table_of(conv2d_family())}) {
    INFO("it should contain\n" << table);
    CHECK(readme.find(table) != std::string::npos);
  }
  CHECK(text_of_file("docs/life_of_a_convolution.md").find(table_of(conv2d_family())) != std::string::npos);
  CHECK(text_of_file("docs/cpu_kernels.md").find(table_of(gemm_family())) != std::string::npos);
}

TEST_CASE("the openmp backend's tuning table has a factor for each part of the work of each algorithm") {
  const auto check = [](const std::string& row, const WorkParts& parts) {
    const auto& factors = tuning_table().device("avx512").factors;
    INFO(row);
    const auto found = factors.find(row);
    REQUIRE(found != factors.end());
    size_t count = 0;
    for (; count < kMaxWorkParts && parts[count].name; ++count) CHECK(found->second.count(parts[count].name) == 1);
    CHECK(found->second.size() == count);
  };
  std::map<std::string, WorkParts> rows;
  for (const tune::Measurement& each : tune::read_measurements(test::source_path(kMeasurements)))
    for (const tune::Candidate& candidate :
         tune::family_of(each.family).problem(each.device, each.problem)->candidates(2))
      for (const std::vector<tune::Term>& alternatives : candidate.steps)
        for (const tune::Term& term : alternatives) rows[term.row] = term.parts;
  CHECK(rows.size() > 10);
  for (const auto& [row, parts] : rows) check(row, parts);
}

#if defined(__x86_64__)

TEST_CASE("openmp operators run the algorithm with the lowest estimate") {
  int problems = 0;
  for (const tune::Measurement& each : tune::read_measurements(test::source_path(kMeasurements))) {
    if (++problems % 10 > 0) continue;
    INFO(each.key());
    const std::unique_ptr<tune::Problem> problem = tune::family_of(each.family).problem(each.device, each.problem);
    const tune::Costs costs = tune::costs_of(tuning_table(), each.device);
    CHECK(problem->selected() ==
          tune::choice_of(problem->candidates(tuning_table().device(each.device).threads), costs).name);
  }
  CHECK(problems >= 1000);
}

TEST_CASE("the openmp backend's choices cost little on the problems that its table was made from") {
  check_regret(kMeasurements, 0.01, {{"gemm", 0.37}, {"conv2d", 0.37}});
}

TEST_CASE("the openmp backend's choices cost little on other problems") {
  check_regret(kOtherProblems, 0.01, {{"gemm", 0.44}, {"conv2d", 0.15}});
}

#endif
