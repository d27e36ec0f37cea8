// A worker for elastic_test.py, in a job that survives the loss of a worker. The ranks of each generation meet and then
// wait for the next list. They end in generation LAST or, after a restart, in the first generation in which they meet.
// usage: elastic_worker LAST [WORKER:GENERATION:EVENT]…, where events happen in the first attempt only:
//   kill           the worker is killed when the ranks of the generation have met, a spare as soon as it waits
//   fail           it ends with code 7 at the same point
//   stop           it stops (SIGSTOP) before the ranks meet
//   scribble       it writes nonsense under the key of the next list
//   finish         it says that the job's work is done, and ends unless it is killed
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/comm/store/store.h>
#include <gradus/distributed/elastic/membership.h>

using namespace gradus;

int main(int argc, char** argv) try {
  constexpr dist::Milliseconds kTimeout{20'000}, kUntilRemoved{1'000};  // the latter if a worker stops
  const dist::JobEnvironment job = dist::job_environment();
  const bool first = job.restarts == 0;
  const int worker = job.worker.value(), last = first ? std::atoi(argv[1]) : 0;
  const std::set<std::string> events(argv + 2, argv + argc);
  const dist::Token token = dist::Token::from_environment();
  dist::Membership membership(std::make_shared<dist::PrefixStore>(
      dist::Membership::prefix(job.restarts), std::make_shared<dist::TcpStore>(*job.store, token, kTimeout)));
  dist::Members members = membership.list(0);
  const auto now = [&](const char* event) {
    return first && events.count(std::to_string(worker) + ":" + std::to_string(members.generation) + ":" + event) > 0;
  };
  const bool one_stops = std::ranges::any_of(events, [](const std::string& event) { return event.ends_with("stop"); });
  const auto meet_all = [&](const std::string& point) {
    std::vector<std::string> all;
    for (size_t w = 0; w < members.ranks.size() + members.spares.size(); ++w) all.push_back(point + std::to_string(w));
    membership.store().set(point + std::to_string(worker), "yes");
    membership.store().wait(all, kTimeout);
  };
  // Waits for all workers, so that a process that is slow to start misses no deadline and no line is left out.
  meet_all("up/");
  std::printf("worker %d%s pid %d\n", worker, job.spare ? ", a spare," : "", getpid());
  std::fflush(stdout);
  meet_all("said/");
  while (true) {
    GRADUS_CHECK(members.end.empty(), Error, "the job has ended: ", members.end);
    const std::optional<int> rank = members.rank_of(worker);
    if (now("stop")) raise(SIGSTOP);
    if (rank && membership.meet(members, worker, one_stops ? kUntilRemoved : kTimeout)) {
      std::printf("generation %d: worker %d is rank %d of %zu\n", static_cast<int>(members.generation), worker, *rank,
                  members.ranks.size());
      std::fflush(stdout);
      if (members.generation >= last && !now("finish")) return 0;
    }
    if (now("finish")) membership.finish();
    if (now("scribble")) membership.store().set("members/" + std::to_string(members.generation + 1), "nonsense");
    if (now("kill")) raise(SIGKILL);
    if (now("finish")) return 0;
    if (now("fail")) return 7;
    members = membership.after(members.generation, kTimeout);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
