// Random collectives with random faults, for as long as one likes: every result is right or a named error, and neither
// descriptors nor memory grow.
// usage: soak [SECONDS [SEED]]
#include <dirent.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include <gradus/core/runtime/random.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/tests/distributed/fault_proxy.h>
#include <gradus/tests/distributed/processes.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;
using std::chrono::steady_clock;

namespace {

/// Numbers of a stream, which all ranks of a round draw alike.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}
  int64_t below(int64_t end) {
    return static_cast<int64_t>(philox(seed_, stream_, next_++).word[0] % static_cast<uint64_t>(end));
  }
  template <class T, size_t n>
  T one_of(const T (&choices)[n]) {
    return choices[below(n)];
  }

 private:
  uint64_t seed_, stream_, next_ = 0;
};

enum class Fault {
  none,
  abort,       // a rank ends the group
  mismatch,    // calls it for one element more
  leave,       // goes before the others
  silence,     // does not call in time
  delay,       // local: comes late
  drop,        // local: its messages are lost
  crash,       // local: it ends
  trickle,     // tcp: single bytes
  flip,        // tcp: a bit
  reset,       // tcp
  half_close,  // tcp
  swallow,     // tcp: bytes are lost
  kill,        // processes: SIGKILL
  stop,        // processes: SIGSTOP
  pause,       // processes: SIGSTOP, and SIGCONT in time
};
constexpr const char* kNames[] = {"none",    "abort", "mismatch", "leave",      "silence", "delay", "drop", "crash",
                                  "trickle", "flip",  "reset",    "half_close", "swallow", "kill",  "stop", "pause"};

const std::map<std::string, std::vector<Fault>> kFaults = {
    {"local",
     {Fault::none, Fault::abort, Fault::mismatch, Fault::leave, Fault::silence, Fault::delay, Fault::drop,
      Fault::crash}},
    {"shm", {Fault::none, Fault::abort, Fault::mismatch, Fault::leave, Fault::silence}},
    {"tcp",
     {Fault::none, Fault::abort, Fault::mismatch, Fault::leave, Fault::silence, Fault::trickle, Fault::flip,
      Fault::reset, Fault::half_close, Fault::swallow}},
    {"shm processes", {Fault::kill, Fault::stop, Fault::pause}},
    {"tcp processes", {Fault::kill, Fault::stop, Fault::pause}},
};

struct Round {
  uint64_t seed = 0;
  std::string transport;
  int size = 2, victim = 0, steps = 0, at = 0;  // the step of the fault
  Fault fault = Fault::none;
  Milliseconds timeout{20'000};
};

/// How a rank that is not at fault itself has to end. A fault of the wire may never come to pass.
bool is_right(const Round& round, const CommStatus& status, bool struck) {
  const auto about_victim = [&](CommFailure failure) {
    return status.failure == failure && status.rank == round.victim;
  };
  switch (round.fault) {
    case Fault::none:
    case Fault::delay:
    case Fault::pause:
    case Fault::trickle: return status.ok();
    case Fault::abort: return about_victim(CommFailure::aborted);
    case Fault::mismatch: return status.failure == CommFailure::mismatch;
    case Fault::leave:
    case Fault::crash:
    case Fault::kill: return about_victim(CommFailure::peer_lost);
    case Fault::silence:
    case Fault::stop: return about_victim(CommFailure::timeout);
    case Fault::drop:  // it may be the first to time out, or the others meet its next call, or miss it when it has gone
      return !status.ok() && status.failure != CommFailure::aborted;
    case Fault::swallow: return struck ? status.failure == CommFailure::timeout : status.ok();
    case Fault::flip:
    case Fault::reset:
    case Fault::half_close: return struck ? status.failure == CommFailure::peer_lost : status.ok();
  }
  return false;
}

/// What rank r contributes: small numbers, whose sums and products are exact in every type.
template <class T>
T element(int rank, int64_t i) {
  return static_cast<T>(static_cast<float>((i * 7 + rank * 3) % 5));
}

template <class T>
compute_t<T> reduced(ReduceKind kind, int ranks, int64_t i) {
  using Sum = compute_t<T>;
  Sum result = static_cast<Sum>(element<T>(0, i));
  for (int r = 1; r < ranks; ++r) {
    const Sum next = static_cast<Sum>(element<T>(r, i));
    if (kind == ReduceKind::min) result = std::min(result, next);
    else if (kind == ReduceKind::max) result = std::max(result, next);
    else if (kind == ReduceKind::prod) result = static_cast<Sum>(result * next);
    else result = static_cast<Sum>(result + next);
  }
  return kind == ReduceKind::avg ? static_cast<Sum>(result / static_cast<Sum>(ranks)) : result;
}

/// One collective of random kind, type and size, whose result is compared with what it has to be.
void communicate(ProcessGroup& group, Random random, int64_t more) {
  constexpr CollectiveKind kKinds[] = {
      CollectiveKind::all_reduce,   CollectiveKind::all_reduce,   CollectiveKind::reduce,
      CollectiveKind::broadcast,    CollectiveKind::all_gather,   CollectiveKind::reduce_scatter,
      CollectiveKind::gather,       CollectiveKind::scatter,      CollectiveKind::all_to_all,
      CollectiveKind::all_to_all_v, CollectiveKind::all_gather_v, CollectiveKind::send,
      CollectiveKind::barrier};
  constexpr ReduceKind kReductions[] = {ReduceKind::sum, ReduceKind::avg, ReduceKind::min, ReduceKind::max,
                                        ReduceKind::prod};
  constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8};
  const CollectiveKind kind = more > 0 ? CollectiveKind::all_reduce : random.one_of(kKinds);
  const ReduceKind reduction = random.one_of(kReductions);
  const DType dtype = random.one_of(kTypes);
  const int64_t count = random.below(int64_t{1} << random.below(18)) + (more > 0 ? more : 0);
  const int rank = group.rank(), n = group.size(), root = static_cast<int>(random.below(n));
  const CollectiveOptions options{.async = random.below(4) == 0, .strict = random.below(4) == 0};

  visit(dtype, [&]<class T> {
    const auto expect = [&](const Array& x, int64_t begin, const auto& value) {
      for (int64_t i = 0; i < count; ++i)
        if (!(x.data<T>()[begin + i] == static_cast<T>(value(i))))
          throw ValueError(std::string("a wrong result of ") + name(kind));
    };
    const auto own = [&](int r, int64_t elements) {
      const Array x = Array::empty({elements}, dtype);
      for (int64_t i = 0; i < elements; ++i) x.data<T>()[i] = element<T>(r, i);
      return x;
    };
    const auto done = [](const ProcessGroup::WorkPtr& work) { work->wait(); };
    const auto sum = [&](int64_t i) { return reduced<T>(reduction, n, i); };
    const auto of = [&](int r) { return [r](int64_t i) { return element<T>(r, i); }; };
    const Array x = own(rank, count), all = Array::empty({count * n}, dtype);
    switch (kind) {
      case CollectiveKind::all_reduce: done(group.all_reduce(x, reduction, options)); return expect(x, 0, sum);
      case CollectiveKind::reduce:
        done(group.reduce(x, root, reduction, options));
        if (rank == root) return expect(x, 0, sum);
        return expect(x, 0, of(rank));
      case CollectiveKind::broadcast: done(group.broadcast(x, root, options)); return expect(x, 0, of(root));
      case CollectiveKind::all_gather:
        done(group.all_gather(x, all, options));
        for (int r = 0; r < n; ++r) expect(all, r * count, of(r));
        return;
      case CollectiveKind::reduce_scatter:
        done(group.reduce_scatter(own(rank, count * n), x, reduction, options));
        return expect(x, 0, [&](int64_t i) { return sum(rank * count + i); });
      case CollectiveKind::gather:
        done(group.gather(x, rank == root ? all : Array(), root, options));
        for (int r = 0; rank == root && r < n; ++r) expect(all, r * count, of(r));
        return;
      case CollectiveKind::scatter:
        done(group.scatter(rank == root ? own(root, count * n) : Array(), x, root, options));
        return expect(x, 0, [&](int64_t i) { return element<T>(root, rank * count + i); });
      case CollectiveKind::all_to_all:
        done(group.all_to_all(own(rank, count * n), all, options));
        for (int r = 0; r < n; ++r) expect(all, r * count, [&](int64_t i) { return element<T>(r, rank * count + i); });
        return;
      case CollectiveKind::all_to_all_v: {  // everything to the root
        const auto parts = [n](int only, int64_t elements) {
          std::vector<int64_t> counts(static_cast<size_t>(n), only < 0 ? elements : 0);
          if (only >= 0) counts[static_cast<size_t>(only)] = elements;
          return counts;
        };
        const Array arrived = rank == root ? all : Array::empty({0}, dtype);
        done(group.all_to_all_v(x, parts(root, count), arrived, parts(-1, rank == root ? count : 0), options));
        for (int r = 0; rank == root && r < n; ++r) expect(all, r * count, of(r));
        return;
      }
      case CollectiveKind::all_gather_v:
        done(group.all_gather_v(x, all, std::vector<int64_t>(static_cast<size_t>(n), count), options));
        for (int r = 0; r < n; ++r) expect(all, r * count, of(r));
        return;
      case CollectiveKind::send: {
        const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
        const Array arrived = Array::empty({count}, dtype);
        const bool first = options.async || rank % 2 == 0;
        const ProcessGroup::WorkPtr sent = first ? group.send(x, next, options) : nullptr;
        done(group.recv(arrived, previous, options));
        done(first ? sent : group.send(x, next, options));
        return expect(arrived, 0, of(previous));
      }
      case CollectiveKind::barrier: return done(group.barrier(options));
    }
  });
}

std::atomic<int64_t> collectives{0};

/// What a rank that is a thread does in a round.
void take_part(const Round& round, ProcessGroup& group) {
  const bool is_victim = group.rank() == round.victim;
  for (int step = 0; step < round.steps; ++step) {
    const bool now = step == round.at, disagree = now && round.fault == Fault::mismatch;
    if (now && is_victim) {
      if (round.fault == Fault::leave) return;
      if (round.fault == Fault::abort) group.abort("soak");
      if (round.fault == Fault::silence) return std::this_thread::sleep_for(round.timeout + Milliseconds(800));
    }
    communicate(group, Random(round.seed, static_cast<uint64_t>(step) + 1), disagree ? 1 + is_victim : 0);
    ++collectives;
  }
}

/// "" if every rank ended as it had to.
std::string judge(const Round& round, int rank, const RankResult& result, bool struck) {
  const bool at_fault = rank == round.victim &&
                        (round.fault == Fault::leave || round.fault == Fault::silence || round.fault == Fault::crash ||
                         round.fault == Fault::drop || round.fault == Fault::kill || round.fault == Fault::stop);
  const bool named = result.status.ok() == result.error.empty();
  if (named && (at_fault || is_right(round, result.status, struck))) return "";
  return "rank " + std::to_string(rank) + ": '" + result.error + "'";
}

std::string run_threads(const Round& round, Random& random) {
  std::vector<LocalFault> script;
  const auto sequence = static_cast<uint64_t>(1 + random.below(10));
  if (round.fault == Fault::delay) script = {{round.victim, sequence, LocalFault::Kind::delay, Milliseconds(30)}};
  if (round.fault == Fault::drop) script = {{round.victim, sequence, LocalFault::Kind::drop, {}}};
  if (round.fault == Fault::crash) script = {{round.victim, sequence, LocalFault::Kind::crash, {}}};
  WireFault wire;
  if (Fault::trickle <= round.fault && round.fault <= Fault::swallow)
    wire.kind = static_cast<WireFault::Kind>(static_cast<int>(round.fault) - static_cast<int>(Fault::trickle) +
                                             static_cast<int>(WireFault::Kind::trickle));
  wire.from = 1 + static_cast<int>(random.below(round.size - 1));
  wire.upwards = random.below(2) == 0;
  wire.after =
      48 + static_cast<size_t>(random.below(int64_t{1} << (1 + random.below(21))));  // behind the first barrier
  if (round.fault == Fault::trickle) wire.after = static_cast<size_t>(random.below(20'000));
  wire.bit = static_cast<int>(random.below(8));

  HashStore store;
  ProxiedStore proxied(store, wire);
  Store& meeting_place = wire.kind == WireFault::Kind::none ? static_cast<Store&>(store) : proxied;
  const TcpOptions options{.timeout = round.timeout, .checksum = true};
  const auto body = [&](ProcessGroup& group) {
    if (round.transport == "tcp") group.barrier();
    take_part(round, group);
  };
  const std::vector<RankResult> results = run_ranks(round.transport, round.size, body, options, script, &meeting_place);
  std::string wrong;
  for (int rank = 0; rank < round.size; ++rank)
    wrong += judge(round, rank, results[static_cast<size_t>(rank)], proxied.has_struck());
  return wrong;
}

std::string run_processes(const Round& round, Random& random) {
  const std::string kind = round.transport.substr(0, 3);
  Processes processes(kind, round.size, round.timeout, [&](ProcessGroup& group, Store& store) {
    const bool ends = round.fault == Fault::pause;
    for (int step = 0; !ends || step < round.steps; ++step) {
      communicate(group, Random(round.seed, static_cast<uint64_t>(step) + 1), 0);
      if (step == 3) store.add("running", 1);
    }
  });
  while (processes.store().add("running", 0) < round.size) std::this_thread::sleep_for(Milliseconds(1));
  std::this_thread::sleep_for(std::chrono::microseconds(random.below(50'000)));
  processes.signal(round.victim, round.fault == Fault::kill ? SIGKILL : SIGSTOP);
  if (round.fault == Fault::pause) {
    std::this_thread::sleep_for(Milliseconds(random.below(100)));
    processes.signal(round.victim, SIGCONT);
  }
  std::string wrong;
  for (int rank = 0; rank < round.size; ++rank)
    if (rank != round.victim || round.fault == Fault::pause) wrong += judge(round, rank, processes.result(rank), true);
  return wrong;
}

Round random_round(uint64_t number, Random& random) {
  Round round;
  round.seed = number;
  constexpr const char* kTransports[] = {"local", "shm", "tcp", "tcp", "shm processes", "tcp processes"};
  round.transport = random.one_of(kTransports);
  round.size = 2 + static_cast<int>(random.below(4));  // five: a ring
  round.victim = static_cast<int>(random.below(round.size));
  round.steps = 30 + static_cast<int>(random.below(60));
  round.at = static_cast<int>(random.below(round.steps - 1));
  const std::vector<Fault>& faults = kFaults.at(round.transport);
  round.fault = faults[static_cast<size_t>(random.below(static_cast<int64_t>(faults.size())))];
  for (Fault fault : {Fault::silence, Fault::swallow, Fault::stop, Fault::drop})
    if (round.fault == fault) round.timeout = Milliseconds(1500);
  return round;
}

int64_t resident_kib() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4;
}

/// Number and target of each: "5 socket:[123]".
std::set<std::string> open_descriptors() {
  std::set<std::string> descriptors;
  DIR* directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    char target[256] = {};
    const std::string number = entry->d_name;
    if (number[0] == '.' || std::stoi(number) == dirfd(directory)) continue;
    if (readlink(("/proc/self/fd/" + number).c_str(), target, sizeof target - 1) < 0) continue;
    descriptors.insert(number + " " + target);
  }
  closedir(directory);
  return descriptors;
}

/// "" if these are the descriptors that there were, else the difference.
std::string changes(const std::set<std::string>& before) {
  std::string text;
  const std::set<std::string> now = open_descriptors();
  for (const std::string& one : now)
    if (!before.contains(one)) text += "; descriptor " + one + " is left";
  for (const std::string& one : before)
    if (!now.contains(one)) text += "; descriptor " + one + " is gone";
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 60;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  constexpr auto kLongestRound = std::chrono::seconds(10);  // half the deadline of rounds whose faults need none
  constexpr int64_t kGrowthKib = 16 << 10, kWarmUp = 60;    // rounds, behind which memory is reused
  mallopt(M_ARENA_MAX, 1);  // or each of many short-lived threads keeps memory of its own
  const auto begin = steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(steady_clock::now() - begin).count(); };
  std::map<std::string, int> rounds;
  // The first use of any runtime looks for GPUs, whose driver opens descriptors and keeps them.
  runtime(DeviceType::cpu).empty_cache();
  const std::set<std::string> descriptors = open_descriptors();
  int64_t memory = 0, most_memory = 0, number = 0;
  double next_report = 60, longest = 0;
  for (; passed() < seconds; ++number) {
    Random random(seed, static_cast<uint64_t>(number));
    const Round round = random_round(seed * 1'000'000 + static_cast<uint64_t>(number), random);
    const auto start = steady_clock::now();
    const bool forks = round.transport.size() > 5;
    std::string wrong = forks ? run_processes(round, random) : run_threads(round, random);
    const auto took = steady_clock::now() - start;
    runtime(DeviceType::cpu).empty_cache();  // of arrays: it keeps some of each of the many sizes
    malloc_trim(0);
    longest = std::max(longest, std::chrono::duration<double>(took).count());
    if (took > kLongestRound) wrong += "the round took too long";
    wrong += changes(descriptors);
    if (waitpid(-1, nullptr, WNOHANG) != -1) wrong += "processes are left";
    if (number == kWarmUp) memory = resident_kib();
    if (number > kWarmUp && resident_kib() > memory + kGrowthKib) wrong += "memory grows";
    most_memory = std::max(most_memory, resident_kib());
    ++rounds[round.transport + ", " + kNames[static_cast<int>(round.fault)]];
    if (!wrong.empty()) {
      std::cout << "round " << number << " (seed " << seed << "): " << round.transport << ", " << round.size
                << " ranks, " << kNames[static_cast<int>(round.fault)] << " of rank " << round.victim << " at step "
                << round.at << ": " << wrong << std::endl;
      return 1;
    }
    if (passed() >= next_report) {
      std::cout << static_cast<int>(passed()) << " s: " << number + 1 << " rounds, " << resident_kib() << " KiB, "
                << open_descriptors().size() << " descriptors" << std::endl;
      next_report += 60;
    }
  }
  for (const auto& [name, count] : rounds) std::cout << name << ": " << count << "\n";
  std::cout << number << " rounds in " << static_cast<int>(passed()) << " s, the longest " << longest << " s; "
            << collectives << " collectives of rank threads. Descriptors " << descriptors.size() << " before, "
            << open_descriptors().size() << " after; memory " << memory << " KiB after " << kWarmUp << " rounds, "
            << resident_kib() << " KiB after the last, " << most_memory << " KiB at most\nall right\n";
}
