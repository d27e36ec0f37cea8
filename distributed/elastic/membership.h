// Which processes are the ranks of a job that survives the loss of a worker. The job's store has a list of workers for
// each generation of the group. A process that finds out that a worker has died adds the next list. If several
// processes do so at once, compare_set() accepts only one list.
#pragma once

#include <algorithm>

#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

/// The workers of one generation. The launcher numbers them: of N ranks and K spares, workers 0 to N - 1 begin as the
/// ranks with these numbers, and workers N to N + K - 1 begin as spares.
struct Members {
  int64_t generation = 0;
  std::vector<int> ranks;   ///< ranks[r] is the number of the worker that has rank r
  std::vector<int> spares;  ///< workers that wait for a rank's place
  int min_ranks = 1;        ///< the job ends if fewer ranks are left
  std::string end;          ///< why the job ended; "" while it continues

  /// The list of generation 0.
  static Members first(int ranks, int spares, int min_ranks);
  /// The list of the next generation, without `worker`. If the worker was a rank, a spare takes its place. Without a
  /// spare the ranks after it move up by one, or the job ends if fewer than min_ranks are left. If the worker is not a
  /// member, the members stay the same. `cause` says what happened to it.
  Members without(int worker, const std::string& cause) const;
  /// Returns nothing for spares and for former members.
  std::optional<int> rank_of(int worker) const;
  bool has_spare(int worker) const { return std::ranges::count(spares, worker) > 0; }
  bool has(int worker) const { return rank_of(worker) || has_spare(worker); }

  /// "generation 2 ranks 0 4 2 spares 5 min_ranks 3", followed by " end <cause>" if the job has ended. parse() is the
  /// inverse, and throws a CommError if str() cannot have written the text.
  std::string str() const;
  static Members parse(const std::string& text);
};

/// The lists of one attempt of a job, in its store. Each thread needs its own object.
class Membership {
 public:
  explicit Membership(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  /// The prefix of the keys of an attempt, counted from 0, in the job's store. The store that the constructor takes is
  /// a PrefixStore with this prefix.
  static std::string prefix(int attempt) { return "attempt/" + std::to_string(attempt) + "/elastic"; }

  /// Adds generation 0. The launcher calls this before it starts a worker.
  void begin(const Members& first) { store_->set(key(0), first.str()); }
  /// The newest list.
  Members latest();
  bool has(int64_t generation) { return store_->check({key(generation)}); }
  /// The list of a generation that exists.
  Members list(int64_t generation);
  /// Waits for a list after `generation` and returns the newest one. Throws a CommError after the timeout.
  Members after(int64_t generation, Milliseconds timeout);
  /// Waits for the workers of all ranks in the list. Returns true when all have called this, or false if there is a
  /// newer list. Workers that have not called it after the timeout are removed, which makes a newer list.
  bool meet(const Members& members, int worker, Milliseconds timeout);
  /// Adds a list without `worker`, unless the newest list does not have this worker. Returns the newest list.
  Members remove(int worker, const std::string& cause);
  /// The first cause with which remove() was called for the worker; "" if there is none.
  std::string cause_of(int worker) { return store_->find(cause_key(worker)); }
  /// Adds a list with the same members, so that they meet again after a failure in which no worker died. Adds nothing
  /// if there is a list after `generation` already. Returns the newest list.
  Members renew(int64_t generation);
  /// Marks the job's work as done. From then on, the loss of a worker is no failure. Wakes all workers that wait for a
  /// list.
  void finish();
  bool is_finished() { return store_->check({kFinished}); }

  Store& store() { return *store_; }

 private:
  static constexpr const char* kFinished = "finished";
  static std::string key(int64_t generation) { return "members/" + std::to_string(generation); }
  /// Key that holds "all" when the workers of a list have met, or "newer" if a newer list was added before they met.
  static std::string met_key(int64_t generation) { return "met/" + std::to_string(generation); }
  static std::string cause_key(int worker) { return "cause/" + std::to_string(worker); }
  /// Returns the newest list, after announcing it to the workers that are meeting according to the list before it. A
  /// process calls this before and after it adds a list. If it dies after adding, the next process that adds a list
  /// announces it.
  Members announce_latest();

  std::shared_ptr<Store> store_;
  int64_t newest_ = 0;  // the newest generation that this process knows
};

}  // namespace gradus::dist
