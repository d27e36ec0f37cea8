// A worker of a job that may lose workers (experiment E13). It trains a small net and kills itself in a random step,
// with the probability for its number. Run it under gradus-run or gradus-run --spares:
//
//   gradus-run --nproc 2 --spares 1 job_loss --job 7 --probabilities 0.1,0.3,0
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <random>

#include <gradus/benchmarks/common/program.h>
#include <gradus/distributed/distributed.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;

/// Decides when a worker dies: with probability p, in a step that is drawn uniformly from all steps since the worker
/// joined.
class Fate {
 public:
  Fate(int64_t seed, int64_t job, int worker, double p) {
    std::seed_seq seeds{seed, job, static_cast<int64_t>(worker)};
    std::mt19937_64 random(seeds);
    const auto draw = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    dies_ = draw() < p;
    part_ = draw();
  }
  bool dies() const { return dies_; }
  /// Call it before each step of this worker.
  void before_step(int64_t step, int64_t steps) {
    if (!last_) last_ = step + static_cast<int64_t>(part_ * static_cast<double>(steps - step));
    if (dies_ && step == *last_) kill(getpid(), SIGKILL);
  }

 private:
  bool dies_ = false;
  double part_ = 0;
  std::optional<int64_t> last_;
};

}  // namespace

int main(int argc, char** argv) {
  int64_t job = 0, seed = 13, steps = 10;
  std::vector<std::string> probabilities;
  benchmarks::Program program("job_loss", "A worker that may kill itself");
  program.option("--job", job, "number of the job");
  program.option("--seed", seed, "seed of all jobs");
  program.option("--steps", steps, "number of steps of a job");
  program.option("--probabilities", probabilities,
                 "the probability that each worker dies: first of the ranks, then of the spares");
  return program.run(argc, argv, [&] {
    const dist::JobEnvironment environment = dist::job_environment();
    const int worker = environment.worker.value_or(environment.rank);
    GRADUS_CHECK(worker < static_cast<int>(probabilities.size()), ValueError, "worker ", worker,
                 " has no probability: ", probabilities.size(), " are given");
    Fate fate(seed, job, worker, std::stod(probabilities[static_cast<size_t>(worker)]));
    std::printf("worker %d %s\n", worker, fate.dies() ? "dies" : "lives");
    std::fflush(stdout);

    manual_seed(1);
    nn::Linear net(8, 4);
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
    std::optional<dist::DistributedDataParallel> ddp;
    int rank = 0;
    const auto join = [&](const std::shared_ptr<dist::ProcessGroup>& group) {
      ddp.emplace(*net, group);
      rank = group->rank();
    };
    Tensor loss;
    const auto compute = [&](int64_t step) {
      fate.before_step(step, steps);
      sgd.zero_grad();
      loss = cross_entropy(net->forward(randn({16, 8}) + 0.1 * rank), randint(4, {16}));  // data of this rank
      loss.backward();
    };
    training::Checkpoint state, position;
    state.add("model", *net).add("optimizer", sgd);
    const dist::InitOptions options{.backend = "tcp"};
    dist::ElasticTraining training(*net, state, position, {.group = options, .on_group = join});
    const bool finished = training.run(steps, compute, [&] { sgd.step(); });
    if (finished && rank == 0) std::printf("loss %.9g\n", loss.item<double>());
  });
}
