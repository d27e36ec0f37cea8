#include <gradus/tests/distributed/elastic_simulation.h>

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <thread>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/host_group.h>

namespace gradus::test {

using dist::Milliseconds;

namespace {

/// Keeps all threads on one core. They run one at a time, and the next thread then begins at once, even on a busy
/// machine.
void stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);  // if this is not allowed, the simulation is only slower
}

/// A virtual time that is longer than all deadlines of a job together.
constexpr Milliseconds kForEver = std::chrono::hours(24 * 365);

}  // namespace

std::string to_line(const std::vector<SimulatedCrash>& crashes) {
  std::ostringstream line;
  for (const auto& crash : crashes)
    line << (&crash == crashes.data() ? "" : " ") << crash.worker << '@' << crash.point << ':' << crash.reached;
  return line.str();
}

std::vector<SimulatedCrash> from_line(const std::string& line) {
  std::vector<SimulatedCrash> crashes;
  std::istringstream in(line);
  char at = 0, colon = 0;
  for (SimulatedCrash crash; in >> crash.worker >> at >> crash.point >> colon >> crash.reached;)
    crashes.push_back(crash);
  return crashes;
}

// ---- Turns ----

void Simulation::run(int count, const std::function<void(int)>& body, const std::function<void(int)>& on_death) {
  const auto workers = static_cast<size_t>(count);
  actors_.resize(workers + 1);
  const auto watch = [&] {
    while (true) {
      const auto all_ended = [&] {
        return std::all_of(actors_.begin(), actors_.end() - 1, [](const Actor& actor) { return actor.done; });
      };
      wait([&] { return !deaths_.empty() || all_ended(); }, kForEver);
      if (deaths_.empty()) return;
      const int dead = deaths_.front();
      deaths_.erase(deaths_.begin());
      on_death(dead);
    }
  };
  const int core = sched_getcpu();
  std::vector<std::jthread> threads;
  for (size_t i = 0; i <= workers; ++i)
    threads.emplace_back([&, i] {
      stay_on(core);
      act(i, [&] { i < workers ? body(static_cast<int>(i)) : watch(); });
    });
  actors_[0].turn.give();
}

void Simulation::act(size_t index, const std::function<void()>& body) {
  Actor& actor = actors_[index];
  actor.turn.take();
  try {
    body();
  } catch (const std::exception& error) { actor.error = error.what(); } catch (const Crash&) {
    actor.crashed = true;
  }
  actor.done = true;
  if (index + 1 < actors_.size() && (actor.crashed || !actor.error.empty())) deaths_.push_back(static_cast<int>(index));
  pass_on();
}

void Simulation::pass_on() {
  const size_t count = actors_.size();
  Actor* earliest = nullptr;
  for (size_t k = 1; k <= count; ++k) {
    const size_t index = (current_ + k) % count;
    Actor& actor = actors_[index];
    if (actor.done) continue;
    if (!actor.ready || stuck_ || actor.ready()) {
      current_ = index;
      return actor.turn.give();
    }
    if (!earliest || actor.deadline < earliest->deadline) earliest = &actor;
  }
  if (!earliest) return;  // all have ended
  now_ = earliest->deadline;
  if (now_ >= kForEver) {
    stuck_ = true;
    actors_.back().error = "nobody can go on";
  }
  current_ = static_cast<size_t>(
      std::find_if(actors_.begin(), actors_.end(), [&](const Actor& actor) { return &actor == earliest; }) -
      actors_.begin());
  earliest->turn.give();
}

void Simulation::point(const std::string& name, const std::function<void(unsigned reached)>& send) {
  Actor& actor = actors_[current_];
  const int number = static_cast<int>(actor.points.size());
  actor.points.push_back({name, bool(send), points_++});
  unsigned reached = ~0u;
  const auto crash = std::find_if(crashes_.begin(), crashes_.end(), [&](const SimulatedCrash& c) {
    return c.worker == static_cast<int>(current_) && c.point == number;
  });
  if (crash != crashes_.end()) reached = crash->reached;
  if (send) send(reached);
  if (crash != crashes_.end()) throw Crash();
  wait([] { return false; }, Milliseconds(0));
}

bool Simulation::wait(const std::function<bool()>& ready, Milliseconds timeout) {
  if (ready()) return true;
  Actor& actor = actors_[current_];
  const bool yields = timeout == Milliseconds(0);  // the worker can continue at its next turn
  actor.deadline = std::min(now_ + timeout, kForEver);
  if (!yields) actor.ready = ready;
  pass_on();
  actor.turn.take();
  actor.ready = nullptr;
  if (stuck_) throw Crash();
  return ready();
}

// ---- The group ----

std::shared_ptr<SimulatedGroup> SimulatedGroup::connect(Simulation& simulation, std::shared_ptr<SimulatedWorld> world,
                                                        int rank) {
  simulation.point("connect");
  world->came |= 1u << rank;
  const auto all_came = [&] { return world->came == (1u << world->workers.size()) - 1; };
  const auto has_lost = [&] {
    for (size_t r = 0; r < world->workers.size(); ++r)
      if (!(world->came >> r & 1) && simulation.has_ended(world->workers[r])) return true;
    return false;
  };
  simulation.wait([&] { return all_came() || has_lost(); }, Milliseconds(5000));
  GRADUS_CHECK(all_came(), CommError, "not all ranks came");
  return std::make_shared<SimulatedGroup>(simulation, std::move(world), rank);
}

dist::ProcessGroup::WorkPtr SimulatedGroup::submit(const dist::Collective& call, const Array& in, const Array& out,
                                                   const dist::CollectiveOptions&) {
  using enum dist::CollectiveKind;
  dist::Collective numbered = call;
  take_number(&numbered);
  const uint64_t number = numbered.descriptor.sequence;
  const std::string name = std::string(dist::name(call.descriptor.kind)) + " #" + std::to_string(number);
  auto& said = world_->calls[number];
  simulation_.point("before " + name);
  simulation_.point(name, [&](unsigned reached) {
    SimulatedWorld::Said& own = said[rank()];
    if (in.defined()) {
      const auto* bytes = static_cast<const std::byte*>(in.data());
      own.bytes.assign(bytes, bytes + in.nbytes());
    }
    own.reached = reached;
  });

  const int worker = world_->workers[static_cast<size_t>(rank())];
  const auto has_heard = [&](int r) { return r == rank() || (said.contains(r) && (said[r].reached >> worker & 1)); };
  const auto first_lost = [&] {
    for (int r = 0; r < size(); ++r)
      if (!has_heard(r) && simulation_.has_ended(world_->workers[static_cast<size_t>(r)])) return r;
    return -1;
  };
  const auto is_complete = [&] {
    for (int r = 0; r < size(); ++r)
      if (!has_heard(r)) return false;
    return true;
  };
  simulation_.wait([&] { return is_complete() || !world_->failure.ok() || first_lost() >= 0; }, timeout());
  if (!is_complete()) {
    const int lost = first_lost();
    dist::CommStatus status = world_->failure;
    if (status.ok() && lost >= 0)
      status = {dist::CommFailure::peer_lost, lost, "rank " + std::to_string(lost) + " was lost"};
    if (status.ok()) status = {dist::CommFailure::timeout, -1, "some rank did not come"};
    throw dist::CollectiveError(fail(status));
  }

  auto* result = out.defined() ? static_cast<std::byte*>(out.data()) : nullptr;
  switch (call.descriptor.kind) {
    case barrier: break;
    case broadcast:
      if (result) std::copy_n(said[call.descriptor.root].bytes.data(), out.nbytes(), result);
      break;
    case all_gather:
      for (int r = 0; r < size(); ++r) result = std::copy(said[r].bytes.begin(), said[r].bytes.end(), result);
      break;
    case all_reduce:
      GRADUS_CHECK(out.dtype() == DType::f64, CommError, "a simulated group sums float64");
      for (int64_t i = 0; i < out.numel(); ++i) {
        double sum = 0;
        for (int r = 0; r < size(); ++r) {
          double part;
          std::memcpy(&part, said[r].bytes.data() + i * int64_t{sizeof part}, sizeof part);
          sum += part;
        }
        static_cast<double*>(out.data())[i] = sum;
      }
      break;
    default: throw CommError("a simulated group does no " + name);
  }
  const auto work = std::make_shared<dist::HostWork>(number);
  work->finish({});
  return work;
}

}  // namespace gradus::test
