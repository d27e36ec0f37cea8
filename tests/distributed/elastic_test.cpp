// The protocol of training that survives the loss of ranks, in simulated time: every crash of one worker, and of two,
// at each point of its course.
#include <atomic>
#include <sstream>
#include <thread>

#include <gradus/core/runtime/random.h>
#include <gradus/distributed/comm/local/local_group.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/elastic_simulation.h>
#include <gradus/tests/distributed/fake_device.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

constexpr int64_t kJobSteps = 2, kBatch = 12;

struct Case {
  int ranks, spares, min_ranks;
  bool sharded = false;
};

/// One weight, and a buffer that each forward pass changes.
struct TinyImpl : nn::Module {
  TinyImpl() {
    weight = register_parameter("weight", zeros({1}, dtype(kDouble)));
    passes = register_buffer("passes", zeros({1}, dtype(kDouble)));
  }
  Tensor weight, passes;
};

/// The gradient of one sample in a step.
double sample_gradient(int64_t step, int64_t sample) { return static_cast<double>(step * 100 + sample); }

double expected_weight() {
  double weight = 0;
  for (int64_t step = 0; step < kJobSteps; ++step) {
    weight *= 0.5;
    for (int64_t sample = 0; sample < kBatch; ++sample) weight += sample_gradient(step, sample);
  }
  return weight;
}

/// How a worker ended: "trained", "spare", "crashed", or the message of an exception.
struct Outcome {
  std::vector<std::string> workers;
  std::vector<std::vector<Simulation::Point>> points;
  std::string stuck;
};

/// The simulated groups by generation.
using Worlds = std::map<int64_t, std::shared_ptr<SimulatedWorld>>;

ElasticPlace place_of(int worker, Simulation& simulation, const std::shared_ptr<StoreTable>& table, Worlds& worlds) {
  const auto connect = [&](const Members& members, int rank, std::optional<int>) {
    auto& world = worlds[members.generation];
    if (!world) world = std::make_shared<SimulatedWorld>(SimulatedWorld{members.ranks, 0, {}, {}});
    return SimulatedGroup::connect(simulation, world, rank);
  };
  return {worker, Membership(std::make_shared<SimulatedStore>(simulation, table)), connect};
}

/// `fails` is called in the middle of each update. If it returns true, the worker ends its group there.
std::string train_elastic(const ElasticPlace& place, int worker, const std::function<bool(int64_t step)>& fails = {},
                          const ElasticOptions& options = {}) {
  Generator generator(static_cast<uint64_t>(worker));
  const GeneratorGuard guard(generator);
  TinyImpl net;
  Tensor batches = zeros({}, dtype(kLong)), gradient = zeros({1}, dtype(kDouble));
  training::Checkpoint state, position;
  state.add("model", net);
  position.add("batches", batches);
  ElasticTraining elastic(net, state, position, options, place);
  const NoGradGuard no_grad;
  const bool trained = elastic.run(
      kJobSteps,
      [&](int64_t step) {
        if (batches.item<int64_t>() != step) throw std::logic_error("a step begins at another position");
        batches += 1;
        net.passes += 1;
        generator.next();
        double sum = 0;
        for (int64_t i = elastic.group()->rank(); i < kBatch; i += elastic.group()->size())
          sum += sample_gradient(step, i);
        gradient.fill_(sum);
        elastic.group()->all_reduce(gradient.array());
      },
      [&] {
        net.weight.mul_(0.5);
        if (fails && fails(elastic.step())) {
          elastic.group()->abort("in an update");
          throw CommError("in an update");
        }
        net.weight.add_(gradient);
      });
  if (!trained) return "spare";
  const bool right = net.weight.item<double>() == expected_weight() && net.passes.item<double>() == kJobSteps &&
                     batches.item<int64_t>() == kJobSteps && generator.offset() == kJobSteps &&
                     generator.seed() == static_cast<uint64_t>(worker);
  return right ? "trained" : "trained wrongly";
}

/// Each rank has its own weight, which is lost with the rank. `files` are checkpoints: each rank's weight after a step.
using Files = std::map<int64_t, std::map<int, double>>;

std::string train_shards(const ElasticPlace& place, Files& files) {
  double weight = 0, gradient = 0;
  int rank = 0, ranks = 0;
  ElasticOptions options;
  std::optional<ElasticTraining> elastic;
  options.on_group = [&](const std::shared_ptr<ProcessGroup>& group) {
    rank = group->rank(), ranks = group->size();
    int64_t step = 0;
    for (const auto& [saved, parts] : files)
      if (parts.size() == static_cast<size_t>(ranks)) step = saved;
    weight = step == 0 ? 0 : files.at(step).at(rank);
    elastic->set_step(step);
  };
  elastic.emplace(options, place);
  const bool trained = elastic->run(
      kJobSteps,
      [&](int64_t step) {
        const Tensor sum = full({1}, sample_gradient(step, rank), dtype(kDouble));
        elastic->group()->all_reduce(sum.array());
        gradient = sum.item<double>();
      },
      [&] {
        weight = 0.5 * weight + gradient * (rank + 1);
        files[elastic->step() + 1][rank] = weight;
        elastic->group()->barrier();
      });
  if (!trained) return "spare";
  double expected = 0;
  for (int64_t step = 0; step < kJobSteps; ++step) {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += sample_gradient(step, r);
    expected = 0.5 * expected + sum * (rank + 1);
  }
  return weight == expected ? "trained" : "trained wrongly";
}

Outcome run_schedule(const Case& job, const std::vector<SimulatedCrash>& crashes) {
  Simulation simulation(crashes);
  const auto table = std::make_shared<StoreTable>(StoreLimits{});
  Worlds worlds;
  Files files;
  table->set("members/0", Members::first(job.ranks, job.spares, job.min_ranks).str());
  const int workers = job.ranks + job.spares;
  Outcome outcome;
  outcome.workers.resize(static_cast<size_t>(workers));
  simulation.run(
      workers,
      [&](int worker) {
        const ElasticPlace place = place_of(worker, simulation, table, worlds);
        outcome.workers[static_cast<size_t>(worker)] =
            job.sharded ? train_shards(place, files) : train_elastic(place, worker);
      },
      [&](int worker) { Membership(std::make_shared<SimulatedStore>(simulation, table)).remove(worker, "crashed"); });
  for (int worker = 0; worker < workers; ++worker) {
    std::string& end = outcome.workers[static_cast<size_t>(worker)];
    if (simulation.has_crashed(worker)) end = "crashed";
    else if (!simulation.error(worker).empty()) end = simulation.error(worker);
    outcome.points.push_back(simulation.points(worker));
  }
  outcome.stuck = simulation.error(workers);
  return outcome;
}

/// Describes what is wrong with an outcome; "" if nothing is.
std::string find_fault(const Case& job, const Outcome& outcome) {
  if (!outcome.stuck.empty()) return outcome.stuck;
  int crashed = 0, trained = 0, named = 0;
  for (const std::string& end : outcome.workers) {
    crashed += end == "crashed";
    trained += end == "trained";
    named += end.find("has lost a worker") != std::string::npos ||
             end.find("no remaining worker has the state") != std::string::npos;
    if (end == "crashed" || end == "trained" || end == "spare") continue;
    if (end.find("has lost a worker") != std::string::npos && crashed <= job.ranks + job.spares) continue;
    if (end.find("no remaining worker has the state") != std::string::npos) continue;
    return end;
  }
  const int left = job.ranks + job.spares - crashed;
  // If enough workers are left and one of them has the state, all of them must have the right result.
  const bool must_go_on = left >= job.min_ranks && (job.sharded || crashed < job.ranks);
  if (must_go_on && named > 0) return "the job ended though there were enough workers";
  if (must_go_on && trained < std::max(1, job.min_ranks - crashed)) return "too few workers trained";
  if (trained > 0 && named > 0) return "some workers trained, others gave up";
  return "";
}

/// All crashes of one worker that can still happen in this course, after the point with number `order` among all
/// points.
std::vector<SimulatedCrash> crashes_after(const Outcome& course, int order, bool all_subsets) {
  std::vector<SimulatedCrash> crashes;
  const auto workers = static_cast<int>(course.points.size());
  const unsigned everybody = (1u << workers) - 1;
  for (int worker = 0; worker < workers; ++worker) {
    const auto& points = course.points[static_cast<size_t>(worker)];
    for (size_t p = 0; p < points.size(); ++p) {
      if (points[p].order <= order) continue;
      const unsigned others = everybody & ~(1u << worker);
      for (unsigned reached = others;; reached = (reached - 1) & others) {
        const bool one_or_all = reached == others || (reached & (reached - 1)) == 0;
        if (points[p].sends ? all_subsets || one_or_all : reached == 0)
          crashes.push_back({worker, static_cast<int>(p), reached});
        if (reached == 0) break;
      }
    }
  }
  return crashes;
}

/// Checks schedules with one crash if `stride` is 0, otherwise every `stride`-th pair of crashes from number `from` on.
/// Returns the number of schedules.
int check_schedules(const Case& job, int stride, int from = 0) {
  int schedules = 0, pairs = 0;
  const auto check = [&](const std::vector<SimulatedCrash>& crashes) {
    const Outcome outcome = run_schedule(job, crashes);
    ++schedules;
    const std::string fault = find_fault(job, outcome);
    if (!fault.empty())
      FAIL("GRADUS_ELASTIC_SCHEDULE=\"" << job.ranks << ' ' << job.spares << ' ' << job.min_ranks << ' ' << job.sharded
                                        << ' ' << to_line(crashes) << "\": " << fault);
    return outcome;
  };
  const Outcome unbroken = check({});
  for (const SimulatedCrash& first : crashes_after(unbroken, -1, true)) {
    const Outcome broken = check({first});
    if (stride == 0) continue;
    const int order = unbroken.points[static_cast<size_t>(first.worker)][static_cast<size_t>(first.point)].order;
    for (const SimulatedCrash& second : crashes_after(broken, order, false))
      if (second.worker != first.worker && pairs++ % stride == from) check({first, second});
  }
  return schedules;
}

}  // namespace

TEST_CASE("elastic training: after any single crash it has the results of an unbroken run", "[elastic]") {
  const Case job = GENERATE(Case{2, 1, 2}, Case{3, 1, 3}, Case{4, 1, 4}, Case{2, 0, 1}, Case{3, 0, 2}, Case{4, 0, 1},
                            Case{2, 1, 2, true}, Case{3, 1, 3, true}, Case{4, 1, 4, true});
  CAPTURE(job.ranks, job.spares, job.min_ranks, job.sharded);
  CHECK(check_schedules(job, 0) > 80);
}

TEST_CASE("elastic training: after two crashes it has the right results or says why not", "[elastic]") {
  const Case job =
      GENERATE(Case{2, 1, 2}, Case{2, 1, 1}, Case{3, 1, 3}, Case{4, 1, 4}, Case{4, 1, 1}, Case{2, 1, 2, true});
  CAPTURE(job.ranks, job.spares, job.min_ranks, job.sharded);
  CHECK(check_schedules(job, job.ranks == 2 ? 101 : 1511) > 200);
}

// 725,000 schedules, 300 in a second. Run test_distributed "[enumerate]"; GRADUS_ELASTIC_PART="3/32" runs one of 32
// parts.
TEST_CASE("elastic training: after any two crashes it has the right results or says why not", "[.][enumerate]") {
  const Case job = GENERATE(Case{2, 1, 2}, Case{2, 1, 1}, Case{3, 1, 3}, Case{3, 1, 1}, Case{4, 1, 4}, Case{4, 1, 1},
                            Case{2, 1, 2, true}, Case{3, 1, 3, true}, Case{4, 1, 4, true});
  CAPTURE(job.ranks, job.spares, job.min_ranks, job.sharded);
  int part = 0, parts = 1;
  if (const char* text = std::getenv("GRADUS_ELASTIC_PART"))
    REQUIRE((std::sscanf(text, "%d/%d", &part, &parts) == 2 && part >= 0 && part < parts));
  const int schedules = check_schedules(job, parts, part);
  std::printf("%d ranks, %d spare, at least %d%s: %d schedules\n", job.ranks, job.spares, job.min_ranks,
              job.sharded ? ", sharded" : "", schedules);
  std::fflush(stdout);
  CHECK(schedules > 10'000 / parts);
}

namespace {

/// A job of workers that run in a simulation.
struct SimulatedJob {
  Simulation simulation{{}};
  std::shared_ptr<StoreTable> table = std::make_shared<StoreTable>(StoreLimits{});
  Worlds worlds;

  explicit SimulatedJob(const Members& members) { table->set("members/0", members.str()); }
  ElasticPlace place(int worker) { return place_of(worker, simulation, table, worlds); }
};

}  // namespace

TEST_CASE("elastic training: a worker whose update failed takes its state from another", "[elastic]") {
  const unsigned failing = GENERATE(1u, 2u, 3u);  // the workers whose update of the last step fails, as bits
  SimulatedJob job(Members::first(2, 0, 1));
  std::vector<std::string> ends(2);
  job.simulation.run(
      2,
      [&](int worker) {
        bool fails = failing >> worker & 1;
        const auto once = [&](int64_t step) { return step == kJobSteps - 1 && std::exchange(fails, false); };
        ends[static_cast<size_t>(worker)] = train_elastic(job.place(worker), worker, once);
      },
      [](int) {});
  for (const int worker : {0, 1}) {
    CAPTURE(worker);
    CHECK(ends[static_cast<size_t>(worker)] == (failing == 3 ? "" : "trained"));
    CHECK_THAT(job.simulation.error(worker), contains(failing == 3 ? "no remaining worker has the state" : ""));
  }
}

TEST_CASE("elastic training: a place that survives no losses is not connected twice", "[elastic]") {
  const auto store = std::make_shared<HashStore>();
  Membership(store).begin(Members::first(1, 0, 1));
  int connections = 0;
  const auto connect = [&](const Members&, int, std::optional<int>) -> GroupPtr {
    ++connections;
    throw CommError("no network");
  };
  ElasticOptions options;
  options.on_group = [](const GroupPtr&) {};
  ElasticTraining training(options, ElasticPlace{0, Membership(store), connect, /*survives_losses=*/false});
  CHECK_THROWS_WITH(training.run(
                        1, [](int64_t) {}, [] {}),
                    contains("no network"));
  CHECK(connections == 1);
}

TEST_CASE("elastic training: without a state to copy, on_group is needed", "[elastic]") {
  const auto store = std::make_shared<HashStore>();
  Membership(store).begin(Members::first(1, 0, 1));
  CHECK_THROWS_WITH(ElasticTraining({}, ElasticPlace{0, Membership(store), {}}), contains("on_group is needed"));
}

TEST_CASE("elastic training: a worker gets its rank once, and a group after each failure", "[elastic]") {
  const auto store = std::make_shared<HashStore>();
  Membership membership(store);
  membership.begin(Members::first(1, 0, 1));
  int failures = 2, ranks = 0, groups = 0, updates = 0, devices = 0;
  const auto connect = [&](const Members&, int, std::optional<int> device) -> GroupPtr {
    devices += device.has_value();
    return std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), 0);
  };
  ElasticOptions options;
  options.on_rank = [&](int local_rank) { ranks += 1 + local_rank; };
  options.on_group = [&](const GroupPtr&) { ++groups; };
  ElasticTraining training(options, ElasticPlace{0, Membership(store), connect});
  const auto compute = [&](int64_t) {
    if (failures-- <= 0) return;
    membership.renew(training.generation());  // the list of the next group, so that the worker need not wait for it
    training.group()->abort("lost");
  };
  CHECK(training.run(2, compute, [&] { ++updates; }));
  CHECK((ranks == 1 && groups == 3 && updates == 2 && training.step() == 2));
  CHECK(devices == 0);  // the CPU is no device that a group would have to know
}

TEST_CASE("elastic training: a state that was copied counts, although its group failed afterwards", "[elastic]") {
  SimulatedJob job(Members::first(2, 0, 1));
  std::vector<std::string> ends(2);
  job.simulation.run(
      2,
      [&](int worker) {
        bool fails = worker == 1;
        int groups = 0;
        ElasticOptions options;
        options.on_group = [&](const GroupPtr&) {  // comes after the copy
          if (++groups == 2 && worker == 0) throw std::runtime_error("lost with the only other state");
        };
        const auto once = [&](int64_t step) { return step == kJobSteps - 1 && std::exchange(fails, false); };
        ends[static_cast<size_t>(worker)] = train_elastic(job.place(worker), worker, once, options);
      },
      [&](int worker) {
        Membership(std::make_shared<SimulatedStore>(job.simulation, job.table)).remove(worker, "crashed");
      });
  CHECK(job.simulation.error(0) == "lost with the only other state");
  CHECK(job.simulation.error(1) == "");
  CHECK(ends[1] == "trained");
}

TEST_CASE("elastic training: a step may fail three times in a row although all workers are alive", "[elastic]") {
  const auto [first, second, expected] = GENERATE(table<int, int, std::string>(
      {{0, 0, ""}, {3, 0, ""}, {3, 3, ""}, {4, 0, "step 0 failed 4 times"}, {3, 4, "step 1 failed 4 times"}}));
  CAPTURE(first, second);
  SimulatedJob job(Members::first(1, 0, 1));
  int failures[] = {first, second};
  std::vector<int64_t> computed, updated;
  int groups = 0;
  job.simulation.run(
      1,
      [&](int worker) {
        ElasticOptions options;
        options.on_group = [&](const GroupPtr&) { ++groups; };
        ElasticTraining training(options, job.place(worker));
        const auto compute = [&](int64_t step) {
          computed.push_back(step);
          if (failures[step]-- > 0) training.group()->abort("bad luck");
        };
        training.run(2, compute, [&] { updated.push_back(training.step()); });
      },
      [](int) {});
  if (expected.empty()) {
    CHECK(job.simulation.error(0) == "");
    CHECK(updated == std::vector<int64_t>{0, 1});
    CHECK(computed.size() == static_cast<size_t>(first + second + 2));
    CHECK(groups == first + second + 1);
  } else {
    CHECK_THAT(job.simulation.error(0),
               contains("[ElasticTraining] " + expected + " although all workers are alive: ") &&
                   contains("rank 0 ended the group: bad luck"));
    CHECK(groups == first + second);
  }
}

namespace {

/// The store of a job with one worker, and places in it.
struct LoneWorker {
  std::shared_ptr<HashStore> store = std::make_shared<HashStore>();
  int groups = 0;
  std::vector<std::optional<int>> devices;

  explicit LoneWorker(const Members& members = Members::first(1, 0, 1)) { Membership(store).begin(members); }
  ElasticPlace place(int worker = 0) {
    const auto connect = [this](const Members&, int, std::optional<int> device) -> GroupPtr {
      ++groups;
      devices.push_back(device);
      return std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), 0);
    };
    return {worker, Membership(store), connect};
  }
  /// Ends the group of a training as the loss of a rank does. The list of the next group is there at once.
  void lose(const ElasticTraining& training) const {
    Membership(store).renew(training.generation());
    training.group()->abort("lost");
  }
};

}  // namespace

TEST_CASE("elastic training: a step that failed is repeated from the numbers before it", "[elastic]") {
  Generator generator(1);
  const GeneratorGuard guard(generator);
  LoneWorker job;
  TinyImpl net;
  Tensor batches = zeros({}, dtype(kLong));
  training::Checkpoint state, position;
  state.add("model", net);
  position.add("batches", batches);
  ElasticTraining training(net, state, position, {}, job.place());
  int calls = 0, updates = 0;
  const auto compute = [&](int64_t step) {
    CHECK(batches.item<int64_t>() == step);
    CHECK(net.passes.item<double>() == static_cast<double>(step));
    CHECK(generator.offset() == static_cast<uint64_t>(step));
    batches += 1, net.passes += 1;
    generator.next();
    const Tensor gradient = full({1}, 3.0, dtype(kDouble));
    Tensor& sum = net.weight.mutable_grad();  // backward passes add to what is there
    sum = sum.defined() ? sum + gradient : gradient;
    if (++calls % 2 == 1) job.lose(training);  // the first attempt of each step
  };
  const bool trained = training.run(2, compute, [&] {
    ++updates;
    CHECK(net.weight.grad().item<double>() == 3);
    net.zero_grad();
  });
  CHECK(trained);
  CHECK((calls == 4 && updates == 2 && job.groups == 3));
}

TEST_CASE("elastic training: only the loss of a rank repeats a step", "[elastic]") {
  const bool in_update = GENERATE(false, true);
  const auto throws = GENERATE(as<std::string>(), "out of memory", "a communication error of another group");
  CAPTURE(in_update, throws);
  LoneWorker job;
  ElasticOptions options;
  options.on_group = [](const GroupPtr&) {};
  ElasticTraining training(options, job.place());
  int calls = 0;
  const auto fail = [&] {
    ++calls;
    if (throws == "out of memory") throw std::runtime_error(throws);
    throw CommError(throws);
  };
  const auto nothing = [] {};
  CHECK_THROWS_WITH(training.run(
                        2, [&](int64_t) { (in_update ? std::function<void()>(nothing) : fail)(); }, fail),
                    contains(throws));
  CHECK((calls == 1 && job.groups == 1 && training.step() == 0));
}

TEST_CASE("elastic training: ranks that disagree about a call end the training", "[elastic]") {
  const uint64_t sequence = GENERATE(1u, 2u);  // the numbers of the steps that are compared, and the vote
  CAPTURE(sequence);
  const auto store = std::make_shared<HashStore>();
  Membership(store).begin(Members::first(2, 0, 1));
  const auto world = std::make_shared<LocalWorld>(
      2, std::vector<LocalFault>{{.rank = 1, .sequence = sequence, .kind = LocalFault::Kind::mismatch}});
  std::atomic<int> groups = 0;
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 2; ++worker)
    threads.emplace_back([&, worker] {
      const auto connect = [&](const Members&, int rank, std::optional<int>) -> GroupPtr {
        ++groups;
        return std::make_shared<LocalGroup>(world, rank);
      };
      ElasticOptions options;
      options.on_group = [](const GroupPtr&) {};
      try {
        ElasticTraining training(options, ElasticPlace{worker, Membership(store), connect});
        training.run(
            1, [](int64_t) {}, [] {});
      } catch (const CommError& error) { errors[static_cast<size_t>(worker)] = error.what(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) CHECK_THAT(error, contains("ranks disagree: "));
  CHECK(groups == 2);
}

TEST_CASE("elastic training: ranks that on_group sets to different steps are an error on all", "[elastic]") {
  const auto store = std::make_shared<HashStore>();
  Membership(store).begin(Members::first(2, 0, 1));
  const auto world = std::make_shared<LocalWorld>(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 2; ++worker)
    threads.emplace_back([&, worker] {
      const auto connect = [&](const Members&, int rank, std::optional<int>) -> GroupPtr {
        return std::make_shared<LocalGroup>(world, rank);
      };
      std::optional<ElasticTraining> training;
      ElasticOptions options;
      options.on_group = [&](const GroupPtr& group) { training->set_step(7 + group->rank()); };
      training.emplace(options, ElasticPlace{worker, Membership(store), connect});
      try {
        training->run(
            9, [](int64_t) {}, [] {});
      } catch (const ValueError& error) { errors[static_cast<size_t>(worker)] = error.what(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (const size_t worker : {size_t{0}, size_t{1}})
    CHECK_THAT(errors[worker], contains("ranks would continue from different steps, this one from " +
                                        std::to_string(7 + worker) + ": on_group must set the same step on all"));
}

TEST_CASE("elastic training: on_finish comes after the last step, before the job counts as finished", "[elastic]") {
  LoneWorker job;
  int steps = 0, ends = 0;
  std::optional<ElasticTraining> training;
  ElasticOptions options;
  options.on_group = [](const GroupPtr&) {};
  options.on_finish = [&] {
    CHECK(steps == 3);
    CHECK(training->step() == 3);
    CHECK_FALSE(Membership(job.store).is_finished());
    if (++ends == 1) job.lose(*training);  // the call is repeated, and no step is
  };
  training.emplace(options, job.place());
  CHECK(training->run(
      3, [](int64_t) {}, [&] { ++steps; }));
  CHECK((steps == 3 && ends == 2 && job.groups == 2));
  CHECK(Membership(job.store).is_finished());
}

TEST_CASE("elastic training: a worker of a finished job says whether it has the trained state", "[elastic]") {
  const int worker = GENERATE(0, 1);  // a rank, and a spare, which never had a rank
  LoneWorker job(Members::first(1, 1, 1));
  Membership(job.store).finish();
  ElasticOptions options;
  options.on_group = [](const GroupPtr&) {};
  ElasticTraining training(options, job.place(worker));
  const auto run = [&](int64_t steps) {
    return training.run(
        steps, [](int64_t) { throw std::logic_error("there is nothing to do"); }, [] {});
  };
  CHECK(run(0) == (worker == 0));
  CHECK_FALSE(run(5));
  training.set_step(5);
  CHECK(run(5) == (worker == 0));
  CHECK(job.groups == 0);
}

TEST_CASE("elastic training: a worker without a place in its job says why", "[elastic]") {
  ElasticOptions options;
  options.on_group = [](const GroupPtr&) {};
  options.group.timeout = Milliseconds(1234);
  const auto error_of = [&](LoneWorker& job, int worker) -> std::string {
    ElasticTraining training(options, job.place(worker));
    try {
      training.run(
          1, [](int64_t) {}, [] {});
    } catch (const CommError& error) { return error.what(); }
    return "";
  };
  LoneWorker of_others(Members::first(1, 1, 1));
  CHECK(error_of(of_others, 2) ==
        "[ElasticTraining] worker 2 was removed from the job because it did not answer for 1234 ms");
  LoneWorker ended(Members::first(3, 0, 3));
  Membership(ended.store).remove(1, "was killed");
  for (const int worker : {0, 1})
    CHECK(error_of(ended, worker) ==
          "[ElasticTraining] the job has lost a worker (was killed) and has no spare; it needs at least 3 ranks");
  CHECK((of_others.groups == 0 && ended.groups == 0));
}

TEST_CASE("elastic training: a net on a device is trained by a group of that device", "[elastic]") {
  if (!use_fake_device() && skip("a machine without CUDA devices")) return;
  LoneWorker job;
  TinyImpl net;
  training::Checkpoint state;
  state.add("model", net);
  ElasticOptions options;
  options.on_rank = [&](int) { net.to(Device(DeviceType::cuda, 1)); };
  ElasticTraining training(net, state, state, options, job.place());
  CHECK(training.run(
      0, [](int64_t) {}, [] {}));
  CHECK(job.devices == std::vector<std::optional<int>>{1});
}

TEST_CASE("elastic training: a line of text replays a schedule", "[elastic]") {
  const std::string line = "1@17:5 2@3:0";
  CHECK(to_line(from_line(line)) == line);
  // For example GRADUS_ELASTIC_SCHEDULE="4 1 4 0 1@17:5 2@3:0".
  if (const char* schedule = std::getenv("GRADUS_ELASTIC_SCHEDULE")) {
    std::istringstream in(schedule);
    Case job{};
    std::string crashes;
    in >> job.ranks >> job.spares >> job.min_ranks >> job.sharded;
    std::getline(in, crashes);
    const Outcome outcome = run_schedule(job, from_line(crashes));
    for (size_t worker = 0; worker < outcome.workers.size(); ++worker) {
      std::printf("worker %zu: %s\n", worker, outcome.workers[worker].c_str());
      for (const auto& point : outcome.points[worker]) std::printf("  %3d %s\n", point.order, point.name.c_str());
    }
    CHECK(find_fault(job, outcome) == "");
  }
}
