// How well the estimates of kernels on CUDA choose, on measurements of all algorithms on an H200 (benchmarks/tune made
// them), without a GPU.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gradus/backends/cuda/gemm/select.h>
#include <gradus/backends/cuda/norm/select.h>
#include <gradus/backends/cuda/sequence/select.h>
#include <gradus/backends/cudnn/select.h>
#include <gradus/benchmarks/tune/cuda/family.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::cuda_detail;

namespace {

constexpr const char* kMeasurements = "benchmarks/results/tuning_h200.txt";
constexpr const char* kOtherProblems = "benchmarks/results/tuning_h200_other_problems.txt";

void register_families() {
  [[maybe_unused]] static const bool registered = [] {
    for (const tune::Family& each : tune::cuda_families()) tune::families().push_back(each);
    return true;
  }();
}

std::vector<tune::Measurement> measurements(const char* path) {
  register_families();
  return tune::read_measurements(test::source_path(path));
}

// The mean and the worst regret are at most these.
struct Bounds {
  const char* family;
  size_t problems;
  double mean, worst;
};

void check_regret(const char* path, std::initializer_list<Bounds> all) {
  const std::map<std::string, tune::Regret> regrets = tune::regrets(measurements(path), tuning_table());
  CHECK(all.size() == tune::cuda_families().size());
  for (const Bounds& bounds : all) {
    const tune::Regret& regret = regrets.at(bounds.family);
    INFO(path << ", " << bounds.family << ", worst: " << regret.worst_problems(5));
    CHECK(regret.problems.size() >= bounds.problems);
    CHECK(regret.mean <= bounds.mean);
    CHECK(regret.worst <= bounds.worst);
  }
}

// Random problems of a family.
std::vector<std::unique_ptr<tune::Problem>> problems_of(const tune::Family& family, int count) {
  tune::Random random(5);
  std::vector<std::unique_ptr<tune::Problem>> problems;
  for (int i = 0; i < count; ++i) problems.push_back(family.problem("h200", family.draw(random)));
  return problems;
}

std::vector<std::unique_ptr<tune::Problem>> measured_problems() {
  std::vector<std::unique_ptr<tune::Problem>> problems;
  for (const tune::Measurement& each : measurements(kMeasurements))
    problems.push_back(tune::family_of(each.family).problem(each.device, each.problem));
  return problems;
}

}  // namespace

TEST_CASE("the estimates of kernels on CUDA choose well on the problems that their table was made from") {
  check_regret(kMeasurements, {{"cuda_conv2d", 5400, 0.037, 6.2},
                               {"cuda_gemm", 1500, 0.015, 0.75},
                               {"cuda_softmax", 500, 0.005, 0.2},
                               {"cuda_attention", 500, 0.02, 0.6},
                               {"cuda_recurrent", 500, 0.006, 0.6}});
}

TEST_CASE("the estimates of kernels on CUDA choose well on other problems") {
  check_regret(kOtherProblems, {{"cuda_conv2d", 1800, 0.062, 8.5},
                                {"cuda_gemm", 200, 0.02, 0.6},
                                {"cuda_softmax", 200, 0.005, 0.2},
                                {"cuda_attention", 200, 0.015, 0.4},
                                {"cuda_recurrent", 200, 0.005, 0.35}});
}

TEST_CASE("one of the convolutions that benchmark() times is hardly slower than the fastest of all") {
  for (const char* path : {kMeasurements, kOtherProblems}) {
    tune::Regret regret;
    for (const tune::Measurement& each : measurements(path)) {
      if (each.family != "cuda_conv2d") continue;
      std::map<std::string, double> estimates = each.us;  // positive, so that the choice has the lowest one
      estimates.at(tune::conv2d_by_time(each)) = 0;
      regret.add(each, estimates);
    }
    INFO(path << ", worst: " << regret.worst_problems(5));
    CHECK(regret.problems.size() >= 1800);
    CHECK(regret.mean <= 0.0005);
    CHECK(regret.worst <= 0.05);
  }
}

TEST_CASE("a choice by time is that of a few promising algorithms, which select() repeats") {
  const ConvFamily& family = cudnn_detail::conv_family();
  ConvProblem problem;
  // select() remembers a choice by time, so each section has a problem with another number of images.
  static int64_t images = 32;
  const Shape shape = {++images, 64, 14, 14};
  problem.x = problem.y = ConvOperand(shape, contiguous_strides(shape));
  problem.w = ConvOperand({64, 64, 3, 3}, {576, 9, 3, 1});
  problem.geometry = {{1, 1}, {1, 1}};
  const std::string by_estimate = select(problem, family).algorithm->name;
  std::vector<std::string> timed;
  // The later an algorithm is timed, the faster it is.
  const auto time_of = [&](const ConvChoice& choice) {
    timed.push_back(choice.algorithm->name);
    return 10.0 - static_cast<double>(timed.size());
  };
  problem.switches.timed = true;
  CHECK(is_untimed(problem, family));
  CHECK(select(problem, family).algorithm->name == by_estimate);

  const std::string fastest = select_by_time(problem, family, time_of).algorithm->name;
  INFO(by_estimate << ", then " << fastest);
  CHECK((timed.size() > 1 && timed.size() <= 4));
  CHECK(timed.front() == by_estimate);
  CHECK(timed.back() == fastest);
  CHECK_FALSE(is_untimed(problem, family));
  CHECK(select(problem, family).algorithm->name == fastest);
  CHECK(select(problem, family, 1u << select(problem, family).index).algorithm->name == by_estimate);

  SECTION("other problems, families and users that do not ask for times are chosen by estimate") {
    CHECK(is_untimed(problem, conv_family()));
    ConvProblem other = problem;
    other.y.alignment = 4;
    CHECK(is_untimed(other, family));
    problem.switches.timed = false;
    CHECK_FALSE(is_untimed(problem, family));
    CHECK(select(problem, family).algorithm->name == by_estimate);
  }
  SECTION("nothing is timed where nothing has to be computed") {
    problem.x.shape[0] = problem.y.shape[0] = 0;
    CHECK_FALSE(is_untimed(problem, family));
  }
  SECTION("a forced algorithm is not timed") {
    const ForcedAlgorithm forced("implicit_gemm_generic");
    CHECK_FALSE(is_untimed(problem, family));
    CHECK(select(problem, family).algorithm->name == std::string("implicit_gemm_generic"));
  }
  SECTION("where cuDNN is preferred, only its algorithms are timed") {
    problem.switches.small_convolutions = true;
    std::vector<bool> of_library;
    select_by_time(problem, family, [&](const ConvChoice& choice) {
      of_library.push_back(choice.algorithm->is_library);
      return 1.0;
    });
    CHECK(of_library == std::vector<bool>(of_library.size(), true));
    CHECK_FALSE(of_library.empty());
  }
  SECTION("if none can be timed, the estimate decides") {
    problem.switches.workspace_limit = 1;  // another problem
    const auto never = [](const ConvChoice&) { return std::numeric_limits<double>::infinity(); };
    CHECK(select_by_time(problem, family, never).algorithm == select(problem, family).algorithm);
    CHECK_FALSE(is_untimed(problem, family));
  }
}

TEST_CASE("select() for CUDA runs the algorithm with the lowest estimate") {
  const tune::Costs costs = tune::costs_of(tuning_table(), "h200");
  for (const tune::Measurement& each : measurements(kOtherProblems)) {
    INFO(each.key());
    const std::unique_ptr<tune::Problem> problem = tune::family_of(each.family).problem(each.device, each.problem);
    CHECK(problem->selected() == tune::choice_of(problem->candidates(1), costs).name);
  }
}

TEST_CASE("the tuning table of CUDA has a factor for each part of the work") {
  const auto& factors = tuning_table().device("h200").factors;
  for (const std::unique_ptr<tune::Problem>& problem : measured_problems())
    for (const tune::Candidate& candidate : problem->candidates(1)) {
      const tune::Term& term = *candidate.only_term();
      INFO(term.row);
      const auto found = factors.find(term.row);
      REQUIRE(found != factors.end());
      for (size_t i = 0; i < kMaxWorkParts && term.parts[i].name; ++i)
        CHECK(found->second.count(term.parts[i].name) == 1);
    }
}

TEST_CASE("the tuning table of CUDA has rows of known algorithms alone") {
  std::set<std::string> rows;
  const auto add_rows = [&](const auto& family) {
    for (size_t kind = 0; kind < family.kinds.size(); ++kind)
      for (const auto* algorithm : family.algorithms) rows.insert(family.row(kind, *algorithm));
  };
  add_rows(cudnn_detail::conv_family()), add_rows(gemm_family()), add_rows(softmax_family());
  add_rows(attention_family()), add_rows(recurrent_family());
  for (const auto& row : tuning_table().device("h200").factors) {
    INFO(row.first);
    CHECK(rows.count(row.first) == 1);
  }
}

TEST_CASE("estimates of kernels on CUDA are positive numbers on every device, whose choice is one of the candidates") {
  register_families();
  const tune::Costs costs = tune::costs_of(tuning_table(), "h200");
  for (const tune::Family& family : tune::cuda_families())
    for (const std::unique_ptr<tune::Problem>& problem : problems_of(family, 300))
      for (const int capability : {75, 80, 86, 89, 90}) {
        INFO(family.name << " on sm_" << capability);
        dynamic_cast<tune::CudaProblem&>(*problem).use(limited(kH200, 90, capability));
        const std::vector<tune::Candidate> candidates = problem->candidates(1);
        bool found = false;
        for (const tune::Candidate& each : candidates) {
          INFO(each.name);
          const double us = tune::estimate_us(each, costs);
          CHECK((us > 0 && std::isfinite(us)));
          CHECK(std::ranges::all_of(each.only_term()->work, [](double amount) { return amount >= 0; }));
          found = found || each.name == problem->selected();
        }
        CHECK(found);
      }
}

TEST_CASE("another device scales the estimates of kernels on CUDA by its arithmetic and bandwidth") {
  register_families();
  DeviceProperties slow = kH200;
  slow.multiply_adds_per_us /= 2, slow.bytes_per_us /= 4;
  const std::unique_ptr<tune::Problem> problems[] = {
      tune::cuda_conv2d().problem("h200", "fprop float32 nchw 32 64 28 28 64 3 1 1 1 1 plain"),
      tune::cuda_gemm().problem("h200", "float32 nt 1 64 100 784 bias"),
      tune::cuda_softmax().problem("h200", "forward float32 rows 128 1000"),
      tune::cuda_attention().problem("h200", "backward float32 heads 16 8 64 64 64 masked"),
      tune::cuda_recurrent().problem("h200", "forward float32 32 64 128 gru")};
  for (const std::unique_ptr<tune::Problem>& problem : problems) {
    const std::vector<tune::Candidate> before = problem->candidates(1);
    dynamic_cast<tune::CudaProblem&>(*problem).use(slow);
    const std::vector<tune::Candidate> after = problem->candidates(1);
    REQUIRE(after.size() == before.size());
    for (size_t i = 0; i < after.size(); ++i) {
      const tune::Term &fast = *before[i].only_term(), &slower = *after[i].only_term();
      INFO(fast.row);
      for (size_t part = 0; part < kMaxWorkParts && fast.parts[part].name; ++part) {
        const WorkLimit limit = fast.parts[part].limit;
        const int times = limit == WorkLimit::calls ? 1 : limit == WorkLimit::bytes ? 4 : 2;
        CHECK(slower.work[part] == Approx(fast.work[part] * times));
      }
    }
  }
}
