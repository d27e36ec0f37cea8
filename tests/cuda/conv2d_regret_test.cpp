// How well the estimates of convolution kernels on CUDA choose, on measurements of all algorithms on an H200
// (benchmarks/tune made them), without a GPU.
#include <gradus/backends/cudnn/select.h>
#include <gradus/benchmarks/tune/cuda/conv2d.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::cuda_detail;

namespace {

constexpr const char* kMeasurements = "benchmarks/results/tuning_h200.txt";
constexpr const char* kOtherProblems = "benchmarks/results/tuning_h200_other_problems.txt";

std::vector<tune::Measurement> measurements(const char* path) {
  [[maybe_unused]] static const bool registered = (tune::families().push_back(tune::cuda_conv2d()), true);
  return tune::read_measurements(test::source_path(path));
}

// The mean and the worst regret are at most these.
void check_regret(const char* path, size_t problems, double mean, double worst) {
  const std::map<std::string, tune::Regret> regrets = tune::regrets(measurements(path), tuning_table());
  const tune::Regret& all = regrets.at("cuda_conv2d");
  INFO("worst: " << all.worst_problems(5));
  CHECK(all.problems.size() >= problems);
  CHECK(all.mean <= mean);
  CHECK(all.worst <= worst);
}

}  // namespace

TEST_CASE("the estimates of convolutions on CUDA choose well on the problems that their table was made from") {
  check_regret(kMeasurements, 1500, 0.04, 9.5);
}

TEST_CASE("the estimates of convolutions on CUDA choose well on other problems") {
  check_regret(kOtherProblems, 600, 0.11, 7.5);
}

TEST_CASE("convolutions on CUDA run the algorithm with the lowest estimate") {
  const tune::Costs costs = tune::costs_of(tuning_table(), "h200");
  for (const tune::Measurement& each : measurements(kOtherProblems)) {
    INFO(each.key());
    const std::unique_ptr<tune::Problem> problem = tune::family_of(each.family).problem(each.device, each.problem);
    CHECK(problem->selected() == tune::choice_of(problem->candidates(1), costs).name);
  }
}

TEST_CASE("the tuning table of CUDA has a factor for each part of the work that was measured") {
  const auto& factors = tuning_table().device("h200").factors;
  for (const tune::Measurement& each : measurements(kMeasurements))
    for (const tune::Candidate& candidate :
         tune::family_of(each.family).problem(each.device, each.problem)->candidates(1)) {
      const tune::Term& term = *candidate.only_term();
      INFO(term.row);
      const auto found = factors.find(term.row);
      REQUIRE(found != factors.end());
      for (size_t i = 0; i < kMaxWorkParts && term.parts[i].name; ++i)
        CHECK(found->second.count(term.parts[i].name) == 1);
    }
}

TEST_CASE("another device scales the estimates of convolutions by its arithmetic and bandwidth") {
  ConvProblem problem = tune::CudaConv2d("fprop float32 nchw 32 64 28 28 64 3 1 1 1 1 plain").problem;
  const KernelWork work = kImplicitGemmAsync.work(problem);
  problem.device.multiply_adds_per_us /= 2, problem.device.bytes_per_us /= 4;
  const KernelWork slower = kImplicitGemmAsync.work(problem);
  for (size_t i = 0; i < kMaxWorkParts && kImplicitGemmAsync.parts[i].name; ++i) {
    const WorkLimit limit = kImplicitGemmAsync.parts[i].limit;
    CHECK(slower[i] == work[i] * (limit == WorkLimit::calls ? 1 : limit == WorkLimit::bytes ? 4 : 2));
  }
}
