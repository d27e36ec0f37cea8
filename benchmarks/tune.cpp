// Measures all algorithms of the kernels that have several on random problems, and makes the tuning table by which they
// are chosen (core/kernel_choice.h). Interrupted, it continues where it was: problems in the file are not measured
// again.
//
//   tune --measurements measurements.txt --table my_table.txt
//   GRADUS_TUNING=my_table.txt my_program
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>

#include <gradus/backends/openmp/openmp.h>
#include <gradus/backends/openmp/simd/tuning.h>
#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/benchmarks/tune/tune.h>
#include <gradus/core/error.h>
#include <gradus/core/parallel/parallel.h>

namespace {

using namespace gradus;
using namespace gradus::tune;

// Microseconds of a call: the least of the candidates' samples, which are taken in turn, so that what disturbs one
// disturbs all. A candidate that takes many times as long as the fastest has one sample.
std::map<std::string, double> measure(Problem& problem, int threads, double budget_ms) {
  constexpr int kSamples = 5;
  constexpr double kHopeless = 4, kLeastSampleMs = 0.1;
  const auto sample_us = [&](const std::string& name, int64_t calls) {
    const double start = benchmarks::now_ms();
    for (int64_t i = 0; i < calls; ++i) problem.run(name);
    return (benchmarks::now_ms() - start) * 1000 / static_cast<double>(calls);
  };
  set_num_threads(threads);
  std::map<std::string, double> us;
  double fastest = 1e30;
  for (const Candidate& each : problem.candidates(threads)) {
    const double first = sample_us(each.name, 1);
    us[each.name] = std::min(first, sample_us(each.name, 1));
    fastest = std::min(fastest, us[each.name]);
  }
  for (int i = 0; i < kSamples; ++i)
    for (auto& [name, time] : us) {
      if (time > kHopeless * fastest && i > 0) continue;
      const double sample_ms = std::max(budget_ms / kSamples, kLeastSampleMs);
      time =
          std::min(time, sample_us(name, std::clamp<int64_t>(static_cast<int64_t>(sample_ms * 1000 / time), 1, 10000)));
      fastest = std::min(fastest, time);
    }
  return us;
}

void print(const std::map<std::string, Regret>& regrets, int64_t worst) {
  std::printf("%-28s %8s %10s %10s\n", "regret", "problems", "mean", "worst");
  for (const auto& [name, each] : regrets)
    std::printf("%-28s %8zu %9.1f%% %9.1f%%\n", name.c_str(), each.problems.size(), 100 * each.mean, 100 * each.worst);
  for (const Family& family : families())
    if (const auto found = regrets.find(family.name); found != regrets.end())
      std::printf("%s", found->second.worst_problems(static_cast<size_t>(worst)).c_str());
}

// The lines of the table that are not about `device`'s factors, and the new ones.
void write_table(const std::string& path, const std::string& device, const std::string& rows) {
  std::ofstream file(path);
  file << "R\"(\n# Made by benchmarks/tune. The format is described in core/kernel_choice.h.\n";
  for (const std::string& each : openmp_detail::tuned_devices()) {
    const TuningTable::Device& limits = openmp_detail::tuning_table().device(each);
    file << "device " << each << " threads " << limits.threads << " multiply_adds_per_us "
         << limits.multiply_adds_per_us << " bytes_per_us " << limits.bytes_per_us << '\n';
  }
  file << "device " << device << '\n' << rows << ")\"\n";
  if (!file.flush()) GRADUS_FAIL(IoError, "cannot write to ", path);
}

}  // namespace

int main(int argc, char** argv) {
  int64_t problems = 500, seed = 1, worst = 1;
  double budget_ms = 5;
  std::string path = "measurements.txt", table_path;
  std::vector<std::string> wanted;
  benchmarks::Program program("tune", "Measures all algorithms of kernels and makes a tuning table");
  program.option("--measurements", path, "file of measurements, to which new ones are appended");
  program.option("--table", table_path, "write the table that fits the measurements to this file");
  program.option("--problems", problems, "random problems of each family; 0 measures nothing");
  program.option("--seed", seed, "of the random problems");
  program.option("--families", wanted, "those to measure; default: all");
  program.option("--worst", worst, "print that many problems of each family with the most regret");
  program.option("--ms", budget_ms, "time for each algorithm, problem and number of threads");
  return program.run(argc, argv, [&] {
    const std::string device = name(cpu_isa());
    const int most_threads = num_threads();
    std::vector<Measurement> measured = read_measurements(path);
    std::set<std::string> known;
    for (const Measurement& each : measured) known.insert(each.key());
    std::ofstream file(path, std::ios::app);
    for (const Family& family : families()) {
      if (!wanted.empty() && std::count(wanted.begin(), wanted.end(), family.name) == 0) continue;
      Random random(static_cast<uint64_t>(seed));
      for (int64_t i = 0; i < problems; ++i) {
        const std::string text = family.draw(random);
        const std::unique_ptr<Problem> problem = family.problem(device, text);
        for (const int threads : std::set<int>{1, most_threads}) {
          Measurement each{family.name, device, threads, text, {}};
          if (!known.insert(each.key()).second) continue;
          each.us = measure(*problem, threads, budget_ms);
          file << to_text(each) << std::endl;
          if (!file) GRADUS_FAIL(IoError, "cannot write to ", path);
          measured.push_back(std::move(each));
        }
      }
    }
    const TuningTable& builtin = openmp_detail::tuning_table();
    print(regrets(measured, builtin), worst);
    if (table_path.empty()) return;
    const std::string rows = fit(measured, builtin, device);
    write_table(table_path, device, rows);
    TuningTable fitted("");
    std::ifstream written(table_path);
    fitted.add(std::string(std::istreambuf_iterator<char>(written), {}), table_path);
    std::printf("\nwith the table of %s:\n", table_path.c_str());
    print(regrets(measured, fitted), worst);
  });
}
