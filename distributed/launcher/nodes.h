// Lets the launchers of a job that runs on several nodes agree about its failure and its outcome.
#pragma once

#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

/// How an attempt of the job, or a node's part of it, ended: with code 0 if it succeeded, otherwise with a cause.
struct Outcome {
  int code = 0;
  std::string cause = {};
  bool restart = false;  // true if all ranks must be started again
};

/// Launchers communicate through the job's store. Each has a thread that reads it every half second. The first launcher
/// with a failure publishes it, and all launchers then end their ranks. When the ranks of all nodes have ended, node 0
/// publishes the outcome, which is that failure if there is one. A node whose launcher is silent for 15 s counts as
/// lost, and the job with it; there is no restart then. Node 0, which serves the store, counts as lost as soon as its
/// connections are closed.
///
/// All keys begin with "gradus-run/<attempt>/". "failure" and "outcome" have the value "<code> <1: restart, 0: end>
/// <cause>". "node/<K>", for every node except 0, has the value "running <beat>", "ended <beat>", or "left" when that
/// node has read the outcome.
class Nodes {
 public:
  /// Joins attempt number `attempt` of the job as node number `node` of `count`; both are counted from 0.
  Nodes(int node, int count, const Address& store, const Token& token, int attempt);
  ~Nodes();

  /// Reports that this node's part of the job has failed or is about to fail. The first failure counts. A later failure
  /// without a restart cancels the restart of the first.
  void failed(const Outcome& own);
  /// Reports that the ranks of this node have ended.
  void ended();
  /// What this node knows.
  struct News {
    std::optional<Outcome> own;      // the failure of this node's part of the job
    std::optional<Outcome> failure;  // the first failure on any node
    /// The outcome of all nodes. On node 0, which serves the store, it is set only when all other nodes have read it or
    /// are lost.
    std::optional<Outcome> outcome;
    bool ended = false;  // whether the ranks of this node have ended
  };
  News news() const {
    const std::lock_guard lock(mutex_);
    return news_;
  }
  /// An eventfd(2) that becomes readable when the failure or the outcome changes.
  int changed() const { return changed_.number(); }

 private:
  /// What node 0 knows about another node.
  struct Other {
    std::string said;
    Deadline silence;
  };

  void run();
  void lead(Store& store);
  void follow(Store& store);
  /// Publishes `proposed`, if given, as the failure of the job unless the job has failed already. Returns the failure
  /// of the job, if any. If `proposed` has no restart, the returned failure has none either.
  std::optional<Outcome> settle_failure(Store& store, const std::optional<Outcome>& proposed);
  void finish(const Outcome& outcome);

  const int node_;
  const Address address_;
  const Token token_;
  const std::string keys_;  // prefix of the keys of this attempt
  const FileDescriptor changed_;
  std::vector<Other> others_;         // nodes 1, 2, …
  std::optional<Deadline> patience_;  // how long this node, which has ended, waits for nodes that have not joined
  int64_t beat_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  News news_;
  bool woken_ = false, stopped_ = false;
  std::thread thread_;
};

}  // namespace gradus::dist
