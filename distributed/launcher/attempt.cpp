#include <gradus/distributed/launcher/attempt.h>

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <gradus/distributed/elastic/membership.h>
#include <gradus/distributed/launcher/worker.h>

namespace gradus::dist {
namespace {

/// A rank that is killed is seen by its peers before it is by its parent, and they may have ended by then.
constexpr Milliseconds kUntilFirstIsKnown{100};
/// Of killed processes that are not gone (in a call of the kernel that does not end), and of output that nobody takes.
constexpr Milliseconds kUntilGivenUp{5000};
/// Between two looks at the list of an elastic job's workers, and for an answer of the store of this process.
constexpr Milliseconds kLook{500}, kRequest{10'000};
/// Of a worker that others have removed, as if it had ended with code 1.
constexpr int kRemoved = 1 << 8;

std::string describe_signal(int number) {
  return std::string(strsignal(number)) + " (signal " + std::to_string(number) + ")";
}

std::string describe(int status) {
  if (WIFEXITED(status)) return "ended with code " + std::to_string(WEXITSTATUS(status));
  return "was killed by " + describe_signal(WTERMSIG(status)) +
         (WTERMSIG(status) == SIGKILL ? ", possibly out of memory" : "");
}

/// Not by itself: abort() is also how the uncaught exception of a rank that misses another ends.
bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT; }

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

class Attempt {
 public:
  Attempt(Job& job, int number) : job_(job), options_(job.options), number_(number) {}

  Outcome run() {
    if (job_.interrupted == 0) start();
    if (options_.nodes > 1) nodes_.emplace(options_.node_rank, options_.nodes, job_.address, job_.token, number_);
    while (std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.running(); })) step();
    look_at_.reset();
    for (const Deadline deadline(kUntilGivenUp); job_.orphans->kill_all() && !deadline.passed();) step(deadline.left());
    const Outcome outcome = agree();
    if (!outcome.restart || !drain()) flush();
    report();
    if (outcome.restart) return outcome;
    if (const std::string losses = job_.writers[0]->losses(); !losses.empty()) job_.say("of stdout " + losses);
    flush();
    return outcome;
  }

 private:
  void start() {
    if (number_ > 0) job_.say(job_.restart(number_));
    if (job_.is_elastic()) {
      members_ =
          Members::first(options_.processes, options_.spares, options_.min_processes.value_or(options_.processes));
      membership_.emplace(std::make_shared<PrefixStore>(
          Membership::prefix(number_), std::make_shared<TcpStore>(job_.address, job_.token, kRequest)));
      membership_->begin(members_);
      look_at_.emplace(kLook);
    }
    for (int local = 0; local < options_.processes + options_.spares; ++local)
      workers_.emplace_back(job_, local, number_);
  }

  /// Waits for output, the end of a rank, a signal or news of other nodes, at most for `at_most`, and deals with it.
  void step(Milliseconds at_most = std::chrono::hours(1)) {
    std::vector<pollfd> entries = {{job_.signals.number(), POLLIN, 0}, {nodes_ ? nodes_->changed() : -1, POLLIN, 0}};
    for (const auto& writer : job_.writers) entries.push_back({writer->emptied(), POLLIN, 0});
    for (const Worker& worker : workers_)
      for (int stream : {0, 1}) entries.push_back({full(stream) ? -1 : worker.output(stream), POLLIN, 0});
    for (const std::optional<Deadline>& next : {first_known_at_, kill_at_, look_at_})
      if (next) at_most = std::min(at_most, next->left());
    poll(entries.data(), entries.size(), static_cast<int>(at_most.count()));
    for (const auto& writer : job_.writers) writer->acknowledge();
    read_output();
    read_signals();
    collect();
    if (look_at_) look();
    if (nodes_) listen();
    if (first_known_at_ && first_known_at_->passed()) {
      first_known_at_.reset();
      announce();
      end_ranks();
    }
    if (kill_at_ && kill_at_->passed()) {
      kill_at_.reset();
      kill_all(SIGKILL);
    }
  }

  void read_signals() {
    while (const std::optional<int> number = job_.next_signal()) {
      if (number == SIGCHLD) continue;
      kill_all(*number);
      if (number == SIGUSR1 || number == SIGUSR2) continue;
      job_.interrupted = *number;
      ++job_.interruptions;
      if (!kill_at_) kill_at_.emplace(options_.grace);
      announce();
    }
  }

  void kill_all(int signal_number) const {
    for (const Worker& worker : workers_) worker.kill(signal_number);
  }

  void end_ranks() {
    kill_all(SIGTERM);
    if (!kill_at_) kill_at_.emplace(options_.grace);
  }

  void collect() {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      job_.orphans->forget(pid);
      const auto worker = std::find_if(workers_.begin(), workers_.end(),
                                       [&](const Worker& w) { return w.running() && w.pid() == pid; });
      if (worker != workers_.end()) ended(*worker, status);
    }
  }

  void ended(Worker& worker, int status) {
    worker.ended();
    if (job_.interrupted != 0 || ended_by_others_ || done_ || (membership_ && go_on_without(worker, status))) return;
    if (code_of(status) == 0) return;
    const bool explains = first_known_at_ && was_killed(status) && !was_killed(failed_status_);
    if (failed_ && !explains) return;
    fail(worker, status, describe(status));
  }

  void fail(const Worker& worker, int status, const std::string& cause) {
    failed_ = &worker;
    failed_status_ = status;
    failed_cause_ = cause;
    if (was_killed(status)) announce();  // those on other nodes that miss it come later
    if (!first_known_at_) first_known_at_.emplace(kUntilFirstIsKnown);
  }

  /// Whether an elastic job does so, in which case that has been said.
  bool go_on_without(const Worker& worker, int status) {
    follow();
    const bool well = code_of(status) == 0 && !members_.has_spare(worker.number());
    if (well || !members_.has(worker.number())) return true;  // in the latter case it was killed for that
    if (membership_->is_finished()) {
      if (code_of(status) != 0) job_.say(worker.name() + " " + describe(status) + "; the job's work was done by then");
      return true;
    }
    if (!members_.end.empty()) return false;
    give_ranks(members_, members_.without(worker.number(), ""));  // before workers can know of it
    membership_->remove(worker.number(), describe(status));
    follow(&worker, describe(status));
    return members_.end.empty();
  }

  /// Reads the lists of workers that are newer than the one it knows. `ended` has, from the cause that is given.
  void follow(const Worker* ended = nullptr, const std::string& cause = "") {
    while (membership_->has(members_.generation + 1)) {
      const Members before = std::exchange(members_, membership_->list(members_.generation + 1));
      for (Worker& worker : workers_)
        if (before.has(worker.number()) && !members_.has(worker.number())) {
          worker.kill(SIGKILL);
          const std::string told = membership_->cause_of(worker.number());
          lose(worker, before, &worker == ended ? cause : told);
          if (!members_.end.empty() && &worker != ended && !failed_) fail(worker, kRemoved, told);
        }
      give_ranks(before, members_);
    }
  }

  void give_ranks(const Members& before, const Members& after) {
    if (!after.end.empty()) return;
    for (Worker& worker : workers_)
      if (const std::optional<int> rank = after.rank_of(worker.number()); rank != before.rank_of(worker.number())) {
        for (int stream : {0, 1})
          if (!full(stream)) worker.read_some(stream);  // what it wrote before
        if (rank) worker.set_rank(*rank);
      }
  }

  /// Says what comes of it that a member of the list `before` is none any more.
  void lose(const Worker& worker, const Members& before, const std::string& cause) {
    if (!members_.end.empty()) return;
    const size_t rank = static_cast<size_t>(before.rank_of(worker.number()).value_or(-1));
    std::string next = "ranks that are left: " + std::to_string(members_.ranks.size());
    if (before.has_spare(worker.number())) next = "spares that are left: " + std::to_string(members_.spares.size());
    else if (rank < members_.ranks.size() && before.has_spare(members_.ranks[rank]))
      next = "worker " + std::to_string(members_.ranks[rank]) + ", a spare, takes its place";
    job_.say(worker.name() + " " + cause + "; " + next);
  }

  /// In an elastic job: for workers that the others have removed, and for its end.
  void look() {
    const auto ranks_run = [&] {
      return std::any_of(workers_.begin(), workers_.end(),
                         [&](const Worker& worker) { return worker.running() && members_.rank_of(worker.number()); });
    };
    if (ranks_run() && !look_at_->passed()) return;
    look_at_.reset();
    if (job_.interrupted != 0 || failed_) return;
    follow();
    if (failed_) return;
    if (ranks_run()) {
      look_at_.emplace(kLook);
    } else {
      done_ = true;
      end_ranks();  // spares
    }
  }

  /// How this node's part of the attempt ended, or is about to.
  Outcome own_outcome() const {
    const bool may_restart = job_.interrupted == 0 && number_ < options_.max_restarts;
    if (failed_) return {code_of(failed_status_), failed_->name() + " " + failed_cause_, may_restart};
    if (job_.interrupted == 0) return {};
    return {128 + job_.interrupted,
            "node " + std::to_string(options_.node_rank) + " was asked to end: " + describe_signal(job_.interrupted)};
  }

  void announce() {
    if (nodes_ && own_outcome().code != 0) nodes_->failed(own_outcome());
  }

  /// When the job has failed elsewhere, it ends here.
  void listen() {
    nodes_->acknowledge();
    if (ended_by_others_ || !nodes_->failure()) return;
    ended_by_others_ = true;
    end_ranks();
  }

  /// Of the attempt: of all nodes, unless somebody is asking for the second time that it ends.
  Outcome agree() {
    if (!nodes_) return own_outcome();
    announce();
    nodes_->ended();
    while (!nodes_->outcome() && job_.interruptions < 2) step();
    const Outcome own = own_outcome(), outcome = nodes_->outcome().value_or(own);
    if (outcome.cause != own.cause) job_.say("the job failed: " + outcome.cause);
    return outcome;
  }

  bool full(int stream) const { return job_.writers[stream]->full(); }

  /// One piece of what each rank has written: none keeps the others, or a signal, waiting. While nobody takes it, ranks
  /// are not read, so that their own writes wait.
  void read_output() {
    const bool open[] = {!full(0), !full(1)};
    something_read_ = false;
    for (Worker& worker : workers_)
      for (int stream : {0, 1})
        if (open[stream] && worker.read_some(stream)) something_read_ = true;
  }

  /// Reads the rest of the output. While nobody takes it the next attempt waits, as ranks would; false if somebody asks
  /// to end meanwhile.
  bool drain() {
    something_read_ = true;
    while ((something_read_ || full(0) || full(1)) && job_.interrupted == 0)
      step(something_read_ ? Milliseconds(0) : std::chrono::hours(1));
    return job_.interrupted == 0;
  }

  /// Reads and writes the rest of the output, but drops what nobody takes for a while, or until somebody asks to end.
  void flush() {
    LineWriter &out = *job_.writers[0], &err = *job_.writers[1];
    int interruptions = job_.interruptions;
    size_t gone = 0;
    Deadline patience(kUntilGivenUp);
    something_read_ = true;
    while (something_read_ || out.waiting() + err.waiting() > 0) {
      step(something_read_ ? Milliseconds(0) : patience.left());
      const bool interrupted = std::exchange(interruptions, job_.interruptions) < job_.interruptions;
      const size_t before = std::exchange(gone, out.gone() + err.gone());
      if (gone > before && !interrupted) patience = Deadline(kUntilGivenUp);
      if (!patience.passed() && !interrupted) continue;
      if (out.waiting() + err.waiting() == 0) return;
      for (const auto& writer : job_.writers)
        if (writer->waiting() > 0) writer->give_up("nobody took them");
      patience = Deadline(kUntilGivenUp);
      something_read_ = true;  // the ranks' pipes, which were not read while nobody took anything
    }
  }

  void report() {
    if (failed_) {
      std::string text = own_outcome().cause;
      if (membership_) text += "; fewer than " + std::to_string(members_.min_ranks) + " ranks do not go on";
      text += "; the others were ended. Its last lines:";
      for (const std::string& line : failed_->last_lines()) text += "\n  " + line;
      job_.say(text);
    }
    for (const Worker& worker : workers_)
      if (const std::string losses = worker.losses(); !losses.empty()) job_.say(losses);
  }

  Job& job_;
  const LaunchOptions& options_;
  const int number_;
  std::deque<Worker> workers_;  // their addresses stay
  std::optional<Nodes> nodes_;
  std::optional<Deadline> first_known_at_, kill_at_;
  const Worker* failed_ = nullptr;
  int failed_status_ = 0;
  std::string failed_cause_;
  bool ended_by_others_ = false, something_read_ = false;
  // Of an elastic job.
  std::optional<Membership> membership_;
  Members members_;  // the newest list that is known
  std::optional<Deadline> look_at_;
  bool done_ = false;  // the ranks have ended well
};

}  // namespace

Outcome run_attempt(Job& job, int number) { return Attempt(job, number).run(); }

}  // namespace gradus::dist
