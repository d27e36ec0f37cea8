// Which processes are the ranks of a job that goes on when one of them dies: a list for each generation of its group,
// in the job's store. Whoever finds that a worker has died adds the next list; compare_set lets one of them win.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

/// The workers of one generation. A worker is a process by the number that the launcher started it under: of N ranks
/// and K spares, 0 to N - 1 begin as the ranks of these numbers, N to N + K - 1 as spares.
struct Members {
  int64_t generation = 0;
  std::vector<int> ranks;   ///< the worker that each rank is
  std::vector<int> spares;  ///< workers that wait for a place
  int min_ranks = 1;        ///< with fewer the job does not go on
  std::string end;          ///< why it does not; "" while it does

  /// Generation 0.
  static Members first(int ranks, int spares, int min_ranks);
  /// The next generation: a spare takes the worker's place; without one, the ranks behind it move up by one, or the job
  /// ends if that leaves fewer than min_ranks. The same members, once more, if it is none of them. `cause` is
  /// what happened to it.
  Members without(int worker, const std::string& cause) const;
  /// Nothing for a spare, and for who is no member any more.
  std::optional<int> rank_of(int worker) const;
  bool has_spare(int worker) const;
  bool has(int worker) const { return rank_of(worker) || has_spare(worker); }

  /// "generation 2 ranks 0 4 2 spares 5 min_ranks 3", with " end <cause>" behind it when there is one, and back. What
  /// str() would not have written is a CommError.
  std::string str() const;
  static Members parse(const std::string& text);
};

/// The lists of a job's attempt, in its store. For one thread; others have one of their own.
class Membership {
 public:
  explicit Membership(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  /// What the keys of an attempt, counted from 0, begin with in the job's store: `store` above is a PrefixStore of it.
  static std::string prefix(int attempt) { return "attempt/" + std::to_string(attempt) + "/elastic"; }

  /// Generation 0, by the launcher before it starts a worker.
  void begin(const Members& first) { store_->set(key(0), first.str()); }
  /// The newest list.
  Members latest();
  bool has(int64_t generation) { return store_->check({key(generation)}); }
  /// The list of a generation that there is.
  Members list(int64_t generation);
  /// The list after `generation`, as soon as there is one; a CommError if there is none by then.
  Members after(int64_t generation, Milliseconds timeout);
  /// Returns true when the workers of all ranks of the list have called this, false when there is a newer list.
  /// Those that have not by the deadline are removed, which makes one.
  bool meet(const Members& members, int worker, Milliseconds timeout);
  /// Adds a list without `worker`, unless the newest one is already. Returns the newest.
  Members remove(int worker, const std::string& cause);
  /// The first cause that remove() was given for it; "" if there is none.
  std::string cause_of(int worker);
  /// Adds the same members once more: they meet anew after a failure that nobody died of. Returns the newest; nothing
  /// is added if there is one after `generation` already.
  Members renew(int64_t generation);
  /// The job's work is done, and who dies from here on is missed by nobody. Wakes all that wait for a list.
  void finish();
  bool is_finished() { return store_->check({kFinished}); }

  Store& store() { return *store_; }

 private:
  static constexpr const char* kFinished = "finished";
  static std::string key(int64_t generation) { return "members/" + std::to_string(generation); }
  /// Whether those of a list have met: "all", or "newer" when there is another list before they have.
  static std::string met_key(int64_t generation) { return "met/" + std::to_string(generation); }
  static std::string cause_key(int worker) { return "cause/" + std::to_string(worker); }
  /// The newest list, once those that meet by the one before it can know that there is one. Whoever adds a list calls
  /// this before and after: if it dies in between, the next does so in its stead.
  Members announce_latest();

  std::shared_ptr<Store> store_;
  int64_t newest_ = 0;  // as far as this process knows
};

}  // namespace gradus::dist
