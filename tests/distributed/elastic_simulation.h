// Simulates the workers of an elastic job, with control over the order in which they run. The workers are threads that
// run one at a time. While a store or a group waits, other workers run; deadlines are in virtual time; and workers
// crash at the points of a schedule.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/elastic/elastic_training.h>

namespace gradus::test {

/// A worker crashes at its point number `point`, counted from 0. A message that it is sending there reaches only the
/// workers in the set `reached` (one bit each).
struct SimulatedCrash {
  int worker = 0, point = 0;
  unsigned reached = 0;
};

/// Converts crashes to text, such as "1@17:0 4@3:5", and back. The text replays a schedule.
std::string to_line(const std::vector<SimulatedCrash>& crashes);
std::vector<SimulatedCrash> from_line(const std::string& line);

class Simulation {
 public:
  /// A point that a worker has passed. `order` is its number among the points of all workers.
  struct Point {
    std::string name;
    bool sends = false;
    int order = 0;
  };

  explicit Simulation(std::vector<SimulatedCrash> crashes) : crashes_(std::move(crashes)) {}

  /// Runs body(worker) for each of `count` workers until all have ended. When a worker has crashed or thrown, calls
  /// on_death(worker) as the launcher would, in turns with the other workers.
  void run(int count, const std::function<void(int)>& body, const std::function<void(int)>& on_death);

  // ---- Called by the store and the groups, in a worker's turn ----
  /// A point: the worker may crash here, and other workers get their turn. send(reached) sends the worker's message to
  /// the workers in `reached`. These are all workers, or fewer if the worker crashes and `sends` is true.
  void point(const std::string& name, const std::function<void(unsigned reached)>& send = {});
  /// Runs other workers until `ready`. Returns false if `timeout` of virtual time passes before.
  bool wait(const std::function<bool()>& ready, dist::Milliseconds timeout);

  /// Whether the worker has ended, for whatever reason.
  bool has_ended(int worker) const { return actors_[static_cast<size_t>(worker)].done; }
  bool has_crashed(int worker) const { return actors_[static_cast<size_t>(worker)].crashed; }
  const std::vector<Point>& points(int worker) const { return actors_[static_cast<size_t>(worker)].points; }
  /// The message of the exception that a worker threw; "" if it threw none. For worker number `count`: why the
  /// simulation could not continue.
  const std::string& error(int worker) const { return actors_[static_cast<size_t>(worker)].error; }

 private:
  /// Thrown to end a worker. It is not a std::exception, so that no handler of errors catches it.
  struct Crash {};
  /// Sleeps until the turn is given. std::binary_semaphore yields first, which is slow on a busy machine.
  class Turn {
   public:
    void give() {
      const std::lock_guard lock(mutex_);
      given_ = true;
      changed_.notify_one();
    }
    void take() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return std::exchange(given_, false); });
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool given_ = false;
  };
  struct Actor {
    Turn turn;
    std::function<bool()> ready;  // empty: the worker can run
    dist::Milliseconds deadline{0};
    bool crashed = false, done = false;
    std::string error;
    std::vector<Point> points;
  };

  void act(size_t index, const std::function<void()>& body);
  /// Gives the turn to the next worker that can run.
  void pass_on();

  const std::vector<SimulatedCrash> crashes_;
  std::deque<Actor> actors_;  // the workers, and the launcher
  std::vector<int> deaths_;   // of workers, which the launcher has not seen yet
  size_t current_ = 0;
  int points_ = 0;
  dist::Milliseconds now_{0};
  bool stuck_ = false;
};

/// The job's store in a simulation. Every request is a point.
class SimulatedStore final : public dist::Store {
 public:
  SimulatedStore(Simulation& simulation, std::shared_ptr<dist::StoreTable> table)
      : simulation_(simulation), table_(std::move(table)) {}

  dist::StoreAnswer ask(dist::StoreRequest request) override {
    constexpr const char* kNames[] = {"set", "get", "wait", "check", "add", "compare_set", "delete_key", "num_keys"};
    const auto kind = static_cast<size_t>(request.kind) - static_cast<size_t>(dist::StoreMessage::set);
    simulation_.point(std::string(kNames[kind]) + (request.keys.empty() ? "" : " " + request.keys[0]));
    std::optional<dist::StoreAnswer> answer = table_->carry_out(request);
    if (!answer && !simulation_.wait([&] { return table_->missing(request.keys).empty(); }, request.timeout))
      dist::detail::fail_to_find(table_->missing(request.keys), request.timeout);
    return answer ? *answer : *table_->carry_out(request);
  }

 private:
  Simulation& simulation_;
  const std::shared_ptr<dist::StoreTable> table_;
};

/// The state that the ranks of a group share in a simulation: what each rank has sent in each collective, and to which
/// ranks.
struct SimulatedWorld {
  struct Said {
    std::vector<std::byte> bytes;
    unsigned reached = 0;
  };
  std::vector<int> workers;  // by rank
  unsigned came = 0;         // ranks that have connected, as bits
  std::map<uint64_t, std::map<int, Said>> calls;
  dist::CommStatus failure;
};

/// A group whose collectives have two points each: before a rank sends its part, and while it sends it.
class SimulatedGroup final : public dist::ProcessGroup {
 public:
  /// Returns when all ranks have connected. Throws a CommError if one has died before.
  static std::shared_ptr<SimulatedGroup> connect(Simulation& simulation, std::shared_ptr<SimulatedWorld> world,
                                                 int rank);
  SimulatedGroup(Simulation& simulation, std::shared_ptr<SimulatedWorld> world, int rank)
      : ProcessGroup(rank, static_cast<int>(world->workers.size()), 0, dist::Milliseconds(60'000)),
        simulation_(simulation), world_(std::move(world)) {}
  std::string_view backend() const override { return "simulated"; }

 protected:
  bool serves(Device device) const override { return device.is_cpu(); }
  std::string places() const override { return "the cpu"; }
  void announce(const dist::CommStatus& failure) noexcept override {
    if (world_->failure.ok()) world_->failure = failure;
  }
  std::unique_ptr<dist::ProcessGroup> make_group(const std::vector<int>&, int, uint32_t, dist::Milliseconds) override {
    throw CommError("a simulated group has no parts");
  }
  WorkPtr submit(const dist::Collective& call, const Array& in, const Array& out,
                 const dist::CollectiveOptions& options) override;

 private:
  Simulation& simulation_;
  const std::shared_ptr<SimulatedWorld> world_;
};

}  // namespace gradus::test
