// Measures all algorithms of the kernels that have several on random problems, and makes the tuning table by which they
// are chosen (core/kernel_choice.h). A run that was interrupted can be repeated: problems in the file are not measured
// again.
//
//   tune --measurements measurements.txt --table my_table.txt
//   GRADUS_TUNING=my_table.txt my_program
//
// Several processes on separate cores can share the problems. Each only measures; their files together are one file of
// measurements:
//
//   taskset -c 0,1 tune --shard 1/2 --measurements a.txt & taskset -c 2,3 tune --shard 2/2 --measurements b.txt; wait
//   cat a.txt b.txt > measurements.txt; tune --problems 0 --measurements measurements.txt --table my_table.txt
//
// The placement of operands in memory changes single times by tens of per cent from process to process. So repeat the
// measurements in new processes, with files of their own, and join these files: the medians count.
//
// Families of CUDA's kernels are measured on an H200, whose properties the fit assumes, and fitted anywhere:
//
//   tune --families cuda_conv2d,cuda_gemm --seconds 70 --measurements measurements.txt
//   tune --families cuda_conv2d --problems 0 --measurements measurements.txt --table my_table.txt
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include <gradus/backends/openmp/openmp.h>
#include <gradus/backends/openmp/simd/tuning.h>
#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#ifdef GRADUS_TUNE_CUDA
#include <gradus/backends/cuda/device/tuning.h>
#include <gradus/benchmarks/tune/cuda/family.h>
#endif
#include <gradus/benchmarks/tune/tune.h>
#include <gradus/core/error.h>
#include <gradus/core/parallel/parallel.h>

namespace {

using namespace gradus;
using namespace gradus::tune;

// Microseconds of a call for each candidate: the lower quartile of samples. The candidates' samples are taken in turn,
// so that what disturbs one disturbs all. Before each sample the candidate runs once untimed, so caches hold as much of
// its operands and of its scratch memory as fits. A candidate that takes many times as long as the fastest has one
// sample. All samples together take about `seconds`.
std::map<std::string, double> measure(Problem& problem, int threads, double seconds) {
  constexpr double kHopeless = 4, kRoundsWanted = 25, kLeastSampleUs = 200, kMostSampleUs = 2000;
  constexpr size_t kLeastRounds = 5, kMostRounds = 100;
  const auto sample_us = [&](const std::string& name, int64_t calls) {
    problem.run(name);
    const double start = benchmarks::now_ms();
    for (int64_t i = 0; i < calls; ++i) problem.run(name);
    return (benchmarks::now_ms() - start) * 1000 / static_cast<double>(calls);
  };
  const double end_ms = benchmarks::now_ms() + seconds * 1000;
  set_num_threads(threads);
  std::map<std::string, double> us;
  double fastest = std::numeric_limits<double>::infinity();
  for (const Candidate& each : problem.candidates(threads)) {
    us[each.name] = sample_us(each.name, 1);
    fastest = std::min(fastest, us[each.name]);
  }
  const double sample_length =
      std::clamp(seconds * 1e6 / kRoundsWanted / static_cast<double>(us.size()), kLeastSampleUs, kMostSampleUs);
  std::map<std::string, std::vector<double>> samples;
  for (size_t round = 0; round < kLeastRounds || (round < kMostRounds && benchmarks::now_ms() < end_ms); ++round)
    for (auto& [name, time] : us) {
      if (time > kHopeless * fastest && round > 0) continue;
      const double calls = std::clamp(sample_length / time, 1.0, 1e4);
      samples[name].push_back(sample_us(name, static_cast<int64_t>(calls)));
      time = std::min(time, samples[name].back());
      fastest = std::min(fastest, time);
    }
  for (auto& [name, time] : us) {
    std::vector<double>& each = samples[name];
    std::sort(each.begin(), each.end());
    time = each[each.size() / 4];
  }
  return us;
}

// Measures the problems whose index modulo `shards` is `shard`, and appends the measurements to the file and to
// `measured`.
struct Measuring {
  std::string path = "measurements.txt", device;
  int64_t problems = 500, seed = 1, shard = 0, shards = 1;
  double seconds = 300;
  std::vector<std::string> families;  // empty: all

  void run(std::vector<Measurement>& measured) const {
    struct Work {
      const Family* family;
      Measurement measurement;
    };
    std::set<std::string> known;
    for (const Measurement& each : measured) known.insert(each.key());
    std::vector<Work> work;
    for (const Family& family : tune::families()) {
      if (!families.empty() && std::count(families.begin(), families.end(), family.name) == 0) continue;
      Random random(static_cast<uint64_t>(seed));
      const int threads = openmp_detail::tuning_table().device(device).threads;
      for (int64_t i = 0; i < problems; ++i) {
        Measurement each{family.name, device, threads, family.draw(random), {}};
        if (i % shards == shard && known.insert(each.key()).second) work.push_back({&family, std::move(each)});
      }
    }
    std::ofstream file(path, std::ios::app);
    const double end_ms = benchmarks::now_ms() + seconds * 1000;
    for (size_t i = 0; i < work.size(); ++i) {
      Measurement& each = work[i].measurement;
      // The time that is left, in equal parts; a few milliseconds of each go for making the operands.
      const double left = (end_ms - benchmarks::now_ms()) / 1000 / static_cast<double>(work.size() - i);
      each.us = measure(*work[i].family->problem(device, each.problem), each.threads, std::max(0.0, 0.95 * left));
      file << to_text(each) << std::endl;
      if (!file) GRADUS_FAIL(IoError, "cannot write to ", path);
      measured.push_back(std::move(each));
    }
  }
};

void print(const std::map<std::string, Regret>& regrets, int64_t worst) {
  std::printf("%-28s %8s %10s %10s\n", "regret", "problems", "mean", "worst");
  for (const auto& [name, each] : regrets)
    std::printf("%-28s %8zu %9.1f%% %9.1f%%\n", name.c_str(), each.problems.size(), 100 * each.mean, 100 * each.worst);
  for (const Family& family : families())
    if (const auto found = regrets.find(family.name); found != regrets.end())
      std::printf("%s", found->second.worst_problems(static_cast<size_t>(worst)).c_str());
}

// The lines of the built-in table, but with `rows` as the factors of `device`.
void write_table(const std::string& path, const std::string& device, const std::string& rows) {
  std::ofstream file(path);
  file << "R\"(\n# Made by benchmarks/tune. The format is described in core/kernel_choice.h.\n";
  const TuningTable& builtin = openmp_detail::tuning_table();
  for (const std::string& each : openmp_detail::tuned_devices()) {
    const TuningTable::Device& limits = builtin.device(each);
    file << "device " << each << " threads " << limits.threads << " multiply_adds_per_us "
         << limits.multiply_adds_per_us << " bytes_per_us " << limits.bytes_per_us << '\n';
  }
  file << "device " << device << '\n' << rows;
  for (const std::string& each : openmp_detail::tuned_devices()) {
    if (each == device || builtin.device(each).factors.empty()) continue;
    file << "device " << each << '\n';
    for (const auto& [row, factors] : builtin.device(each).factors) {
      file << row;
      for (const auto& [part, factor] : factors) file << ' ' << part << ' ' << factor;
      file << '\n';
    }
  }
  file << ")\"\n";
  if (!file.flush()) GRADUS_FAIL(IoError, "cannot write to ", path);
}

#ifdef GRADUS_TUNE_CUDA
// Those of the names that are families of CUDA's kernels.
std::vector<Family> cuda_families_among(const std::vector<std::string>& names, bool of_nets) {
  std::vector<Family> found;
  for (const Family& each : cuda_families())
    if (std::count(names.begin(), names.end(), each.name) > 0)
      found.push_back(of_nets && each.name == cuda_net_conv2d().name ? cuda_net_conv2d() : each);
  return found;
}

// Those of the problems that all algorithms could run.
std::vector<Measurement> complete_measurements(const std::string& path) {
  std::vector<Measurement> all = read_measurements(path);
  const size_t removed = std::erase_if(all, [](const Measurement& each) {
    for (const Candidate& candidate : family_of(each.family).problem(each.device, each.problem)->candidates(1))
      if (each.us.count(candidate.name) == 0) return true;
    return false;
  });
  if (removed > 0) std::printf("without %zu problems that an algorithm failed to run\n", removed);
  return all;
}

// Writes the built-in table in which the factors of the measured algorithms are replaced by new ones.
void write_cuda_table(const std::string& path, const std::vector<Measurement>& measured) {
  const TuningTable::Device& builtin = cuda_detail::tuning_table().device("h200");
  const std::string rows = '\n' + fit(measured, cuda_detail::tuning_table(), "h200");
  std::ofstream file(path);
  file << "R\"(\n# Made by benchmarks/tune. The format is described in core/kernel_choice.h.\ndevice h200 threads 1"
       << " multiply_adds_per_us " << builtin.multiply_adds_per_us << " bytes_per_us " << builtin.bytes_per_us << rows;
  for (const auto& [row, factors] : builtin.factors) {
    if (rows.find('\n' + row + ' ') != std::string::npos) continue;
    file << row;
    for (const auto& [part, factor] : factors) file << ' ' << part << ' ' << factor;
    file << '\n';
  }
  file << ")\"\n";
  if (!file.flush()) GRADUS_FAIL(IoError, "cannot write to ", path);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  int64_t worst = 1, jobs = 8;
  Measuring measuring;
  std::string table_path, shard;
  bool nets = false;
  benchmarks::Program program("tune", "Measures all algorithms of kernels and makes a tuning table");
  program.option("--measurements", measuring.path, "file of measurements, to which new measurements are appended");
  program.option("--table", table_path, "file for the table that is fitted to the measurements");
  program.option("--problems", measuring.problems,
                 "number of random problems to measure for each family; 0 measures nothing");
  program.option("--seed", measuring.seed, "seed of the random problems");
  program.option("--families", measuring.families, "families to measure; default: all");
  program.option("--seconds", measuring.seconds, "time for all measurements");
  program.option("--shard", shard, "I/N: measure only part I, counted from 1, of N parts of the problems");
  program.option("--worst", worst, "number of problems with the largest regret to print for each family");
  program.option("--jobs", jobs, "CUDA: number of threads that prepare problems");
  program.flag("--nets", nets, "cuda_conv2d: measure the layers of nets");
  return program.run(argc, argv, [&] {
#ifdef GRADUS_TUNE_CUDA
    if (const std::vector<Family> of_cuda = cuda_families_among(measuring.families, nets); !of_cuda.empty()) {
      for (const Family& each : cuda_families()) families().push_back(each);
      if (measuring.problems > 0)
        measure_cuda({measuring.path, of_cuda, measuring.problems, static_cast<uint64_t>(measuring.seed),
                      measuring.seconds, jobs});
      const std::vector<Measurement> measured = complete_measurements(measuring.path);
      std::printf("what select() chooses:\n");
      print(regrets_of_selected(measured), 0);
      std::printf("\nwhat the estimates would choose:\n");
      print(regrets(measured, cuda_detail::tuning_table()), worst);
      if (!table_path.empty()) write_cuda_table(table_path, measured);
      return;
    }
#endif
    measuring.device = name(cpu_isa());
    std::vector<Measurement> measured = read_measurements(measuring.path);
    if (!shard.empty()) {
      char slash = 0;
      std::istringstream words(shard);
      words >> measuring.shard >> slash >> measuring.shards;
      GRADUS_CHECK(words && slash == '/' && measuring.shard >= 1 && measuring.shard <= measuring.shards, ValueError,
                   "--shard is ", shard, ", not I/N with I from 1 to N");
      --measuring.shard;
      return measuring.run(measured);
    }
    measuring.run(measured);
    const TuningTable& builtin = openmp_detail::tuning_table();
    print(regrets(measured, builtin), worst);
    if (table_path.empty()) return;
    const std::string rows = fit(measured, builtin, measuring.device);
    write_table(table_path, measuring.device, rows);
    TuningTable fitted("");
    std::ifstream written(table_path);
    fitted.add(std::string(std::istreambuf_iterator<char>(written), {}), table_path);
    std::printf("\nwith the table of %s:\n", table_path.c_str());
    print(regrets(measured, fitted), worst);
  });
}
