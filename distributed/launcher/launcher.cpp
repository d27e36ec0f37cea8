#include <gradus/distributed/launcher/launcher.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>

#include <gradus/distributed/elastic/membership.h>
#include <gradus/distributed/launcher/job.h>
#include <gradus/distributed/launcher/nodes.h>

namespace gradus::dist {
namespace {

/// After a failure, the launcher waits this long for a failure that explains it. The peers of a killed rank may notice
/// its death and end before the launcher notices it.
constexpr Milliseconds kExplanationTime{100};
/// How long to wait for killed processes that do not end, because they are in a system call that does not return, and
/// for output that cannot be written.
constexpr Milliseconds kGiveUpTime{5000};
/// How often an elastic job's list of workers is read, and the timeout of a request to the store.
constexpr Milliseconds kListInterval{500}, kRequestTime{10'000};
/// The wait status that is reported for a worker that other workers have removed: exit code 1.
constexpr int kRemovedStatus = 1 << 8;

std::string describe_signal(int number) {
  return std::string(strsignal(number)) + " (signal " + std::to_string(number) + ")";
}

std::string describe(int status) {
  if (WIFEXITED(status)) return "ended with code " + std::to_string(WEXITSTATUS(status));
  return "was killed by " + describe_signal(WTERMSIG(status)) +
         (WTERMSIG(status) == SIGKILL ? ", possibly out of memory" : "");
}

/// Returns true if the process was killed from outside. SIGABRT does not count: a rank with an uncaught exception,
/// which may be the loss of another rank, ends by abort().
bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT; }

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/// Makes an eventfd(2) unreadable until its next event.
void acknowledge(int event) {
  eventfd_t count = 0;
  eventfd_read(event, &count);
}

/// One attempt of a job: a run of all its ranks on this machine.
class Attempt {
 public:
  /// Attempts are counted from 0.
  Attempt(Job& job, int number) : job_(job), options_(job.options), number_(number) {}

  /// Starts the ranks, unless a signal has asked the job to end. Supervises them until all have ended, and cleans up.
  /// Returns how the attempt ended on all nodes; `restart` is true if another attempt must follow. After the last
  /// attempt, writes all output that can be written.
  Outcome run() {
    if (job_.interrupted == 0) start();
    if (options_.nodes > 1) nodes_.emplace(options_.node_rank, options_.nodes, job_.address, job_.token, number_);
    while (std::ranges::any_of(workers_, &Worker::running)) step();
    list_due_at_.reset();
    for (const Deadline deadline(kGiveUpTime); job_.orphans->kill_all() && !deadline.passed();) step(deadline.left());
    const Outcome outcome = agree();
    if (!outcome.restart || !drain()) flush();
    report();
    if (outcome.restart) return outcome;
    if (const std::string losses = job_.writers[0]->losses("stdout"); !losses.empty()) job_.say(losses);
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
          Membership::prefix(number_), std::make_shared<TcpStore>(job_.address, job_.token, kRequestTime)));
      membership_->begin(members_);
      list_due_at_.emplace(kListInterval);
    }
    for (int local = 0; local < options_.processes + options_.spares; ++local)
      workers_.emplace_back(job_, local, number_);
  }

  /// Waits at most `at_most` for output, the end of a rank, a signal or news of other nodes, and handles them.
  void step(Milliseconds at_most = std::chrono::hours(1)) {
    std::vector<pollfd> entries = {{job_.signals.number(), POLLIN, 0}, {nodes_ ? nodes_->changed() : -1, POLLIN, 0}};
    for (const auto& writer : job_.writers) entries.push_back({writer->emptied(), POLLIN, 0});
    for (const Worker& worker : workers_)
      for (int stream : {0, 1}) entries.push_back({full(stream) ? -1 : worker.output(stream), POLLIN, 0});
    for (const std::optional<Deadline>& next : {end_others_at_, kill_at_, list_due_at_})
      if (next) at_most = std::min(at_most, next->left());
    poll(entries.data(), entries.size(), static_cast<int>(at_most.count()));
    for (const auto& writer : job_.writers) acknowledge(writer->emptied());
    read_output();
    read_signals();
    collect();
    if (list_due_at_) check_members();
    if (nodes_) check_nodes();
    if (end_others_at_ && end_others_at_->passed()) {
      end_others_at_.reset();
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
    const bool explains = end_others_at_ && was_killed(status) && !was_killed(failed_status_);
    if (code_of(status) != 0 && (!failed_ || explains)) fail(worker, status, describe(status));
  }

  void fail(const Worker& worker, int status, const std::string& cause) {
    failed_ = &worker;
    failed_status_ = status;
    failed_cause_ = cause;
    if (was_killed(status)) announce();  // before other nodes announce the failures that this one causes there
    if (!end_others_at_) end_others_at_.emplace(kExplanationTime);
  }

  /// Returns true if an elastic job continues without this worker, and prints how.
  bool go_on_without(const Worker& worker, int status) {
    read_lists();
    const bool well = code_of(status) == 0 && !members_.has_spare(worker.number());
    if (well || !members_.has(worker.number())) return true;  // a rank that has succeeded, or a removed worker
    if (membership_->is_finished()) {
      if (code_of(status) != 0) job_.say(worker.name() + " " + describe(status) + "; the job's work was done by then");
      return true;
    }
    if (!members_.end.empty()) return false;
    give_ranks(members_, members_.without(worker.number(), ""));  // before the workers can read the new list
    membership_->remove(worker.number(), describe(status));
    read_lists(&worker, describe(status));
    return members_.end.empty();
  }

  /// Reads the lists of workers that were added since the last call, kills the workers that they lack, and prints the
  /// causes. `cause` is the cause for the worker `ended`. For other workers the cause is in the store.
  void read_lists(const Worker* ended = nullptr, const std::string& cause = "") {
    while (membership_->has(members_.generation + 1)) {
      const Members before = std::exchange(members_, membership_->list(members_.generation + 1));
      for (Worker& worker : workers_)
        if (before.has(worker.number()) && !members_.has(worker.number())) {
          worker.kill(SIGKILL);
          const std::string told = membership_->cause_of(worker.number());
          report_loss(worker, before, &worker == ended ? cause : told);
          if (!members_.end.empty() && &worker != ended && !failed_) fail(worker, kRemovedStatus, told);
        }
      give_ranks(before, members_);
    }
  }

  void give_ranks(const Members& before, const Members& after) {
    if (!after.end.empty()) return;
    for (Worker& worker : workers_)
      if (const std::optional<int> rank = after.rank_of(worker.number()); rank != before.rank_of(worker.number())) {
        for (int stream : {0, 1})
          if (!full(stream)) worker.read_some(stream);  // so that what it wrote before is printed with its old rank
        if (rank) worker.set_rank(*rank);
      }
  }

  /// Prints what follows from the loss of a worker that was a member of the list `before`.
  void report_loss(const Worker& worker, const Members& before, const std::string& cause) {
    if (!members_.end.empty()) return;
    const size_t rank = static_cast<size_t>(before.rank_of(worker.number()).value_or(-1));
    std::string next = "ranks left: " + std::to_string(members_.ranks.size());
    if (before.has_spare(worker.number())) next = "spares left: " + std::to_string(members_.spares.size());
    else if (rank < members_.ranks.size() && before.has_spare(members_.ranks[rank]))
      next = "worker " + std::to_string(members_.ranks[rank]) + ", a spare, takes its place";
    job_.say(worker.name() + " " + cause + "; " + next);
  }

  /// In an elastic job, finds out which workers other workers have removed, and whether all ranks have ended.
  void check_members() {
    const auto ranks_run = [&] {
      return std::ranges::any_of(
          workers_, [&](const Worker& worker) { return worker.running() && members_.rank_of(worker.number()); });
    };
    if (ranks_run() && !list_due_at_->passed()) return;
    list_due_at_.reset();
    if (job_.interrupted != 0 || failed_) return;
    read_lists();
    if (failed_) return;
    if (ranks_run()) {
      list_due_at_.emplace(kListInterval);
    } else {
      done_ = true;
      end_ranks();  // only spares are still running
    }
  }

  /// How this node's part of the attempt has ended or is about to end.
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

  /// Ends the ranks of this node if the job has failed on another node.
  void check_nodes() {
    acknowledge(nodes_->changed());
    if (ended_by_others_ || !nodes_->news().failure) return;
    ended_by_others_ = true;
    end_ranks();
  }

  /// The outcome of all nodes, or this node's own outcome if the job is asked to end for the second time.
  Outcome agree() {
    if (!nodes_) return own_outcome();
    announce();
    nodes_->ended();
    while (!nodes_->news().outcome && job_.interruptions < 2) step();
    const Outcome own = own_outcome(), outcome = nodes_->news().outcome.value_or(own);
    if (outcome.cause != own.cause) job_.say("the job failed: " + outcome.cause);
    return outcome;
  }

  bool full(int stream) const { return job_.writers[stream]->full(); }

  /// Reads one piece of output from each rank, so that a rank with much output does not delay other ranks or signals.
  /// While the launcher cannot write, it reads nothing, so that the ranks' writes block.
  void read_output() {
    const bool open[] = {!full(0), !full(1)};
    something_read_ = false;
    for (Worker& worker : workers_)
      for (int stream : {0, 1})
        if (open[stream] && worker.read_some(stream)) something_read_ = true;
  }

  /// Reads and writes all output of the attempt before the next attempt begins, however long that takes. Returns false
  /// if a signal asks the job to end meanwhile.
  bool drain() {
    something_read_ = true;
    while ((something_read_ || full(0) || full(1)) && job_.interrupted == 0)
      step(something_read_ ? Milliseconds(0) : std::chrono::hours(1));
    return job_.interrupted == 0;
  }

  /// Reads and writes all output after the last attempt. Drops output when none could be written for kGiveUpTime, or
  /// when a signal asks the job to end.
  void flush() {
    LineWriter &out = *job_.writers[0], &err = *job_.writers[1];
    int interruptions = job_.interruptions;
    size_t completed = 0;
    Deadline patience(kGiveUpTime);
    something_read_ = true;
    while (something_read_ || out.waiting() + err.waiting() > 0) {
      step(something_read_ ? Milliseconds(0) : patience.left());
      const bool interrupted = std::exchange(interruptions, job_.interruptions) < job_.interruptions;
      const size_t before = std::exchange(completed, out.completed() + err.completed());
      if (completed > before && !interrupted) patience = Deadline(kGiveUpTime);
      if (!patience.passed() && !interrupted) continue;
      if (out.waiting() + err.waiting() == 0) return;
      for (const auto& writer : job_.writers)
        if (writer->waiting() > 0) writer->give_up("they were not read");
      patience = Deadline(kGiveUpTime);
      something_read_ = true;  // go on: the ranks' pipes were not read while output could not be written
    }
  }

  void report() {
    if (failed_) {
      std::string text = own_outcome().cause;
      if (membership_) text += "; the job needs at least " + std::to_string(members_.min_ranks) + " ranks";
      text += "; the others were stopped. Its last lines:";
      for (const std::string& line : failed_->last_lines()) text += "\n  " + line;
      job_.say(text);
    }
    for (const Worker& worker : workers_)
      if (const std::string losses = worker.losses(); !losses.empty()) job_.say(losses);
  }

  Job& job_;
  const LaunchOptions& options_;
  const int number_;
  std::deque<Worker> workers_;  // a deque, because pointers to its elements must stay valid
  std::optional<Nodes> nodes_;
  std::optional<Deadline> end_others_at_, kill_at_;
  const Worker* failed_ = nullptr;
  int failed_status_ = 0;
  std::string failed_cause_;
  bool ended_by_others_ = false, something_read_ = false;
  // For elastic jobs:
  std::optional<Membership> membership_;
  Members members_;  // the newest list that was read
  std::optional<Deadline> list_due_at_;
  bool done_ = false;  // the ranks have succeeded
};

}  // namespace

int launch(const LaunchOptions& options) {
  Job job(options);
  Outcome outcome;
  int attempt = 0;
  do outcome = Attempt(job, attempt++).run();
  while (outcome.restart);
  return outcome.code;
}

}  // namespace gradus::dist
