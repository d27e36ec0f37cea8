// A worker for elastic_test.py, of a job that goes on when one of them dies. Ranks meet in each generation of their
// list and then wait for the next; in generation LAST, or after a restart in the first that they meet in, they end.
// usage: elastic_worker LAST [WORKER:GENERATION:EVENT]…, in the first attempt:
//   kill           is killed when those of the generation have met, a spare as soon as it waits
//   fail           ends with code 7 likewise
//   stop           stops (SIGSTOP) before they meet
//   scribble       writes nonsense where the next list is to be
//   finish         says that the job's work is done, and ends unless it is killed
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/comm/store/tcp_store.h>
#include <gradus/distributed/elastic/membership.h>

using namespace gradus;

int main(int argc, char** argv) try {
  constexpr dist::Milliseconds kTimeout{20'000}, kUntilRemoved{1'000};  // the latter where somebody stops
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
  // No deadline is missed, and no line left out, because a process is slow to start.
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
