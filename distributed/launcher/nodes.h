// What the launchers of a job that runs on several nodes tell one another.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradus/distributed/comm/socket.h>
#include <gradus/distributed/comm/store/tcp_store.h>
#include <gradus/distributed/comm/token.h>

namespace gradus::dist {

/// How an attempt of the job ended, or a node's part of it: well, with code 0, or not, for a reason.
struct Outcome {
  int code = 0;
  std::string cause = {};
  bool restart = false;  // all ranks are to be started again
};

/// Launchers meet in the job's store, each on a thread of its own, and look into it every half second. The first that
/// has a failure to report writes it down, for all to find and to end their ranks. When the ranks of all nodes have
/// ended, node 0 writes the outcome down: that failure, if there is one. A node whose launcher is silent for 15 s is
/// lost, and with it the job, which is not started again; node 0, which serves the store, is lost at once when its
/// connections are closed.
///
/// Keys, which begin with "gradus-run/<attempt>/": "failure" and "outcome": "<code> <1: restart, 0: end> <cause>";
/// "node/<K>", for all nodes but 0: "running <beat>", "ended <beat>", and "left" when that node has read the outcome.
class Nodes {
 public:
  /// This is node number `node` of `count`, in this attempt, counted from 0.
  Nodes(int node, int count, const Address& store, const Token& token, int attempt);
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  /// This node's part of the job has failed, or is about to end so. The first failure counts; a later one that is not
  /// to be followed by a restart takes that from it.
  void failed(const Outcome& own);
  /// The ranks of this node have ended.
  void ended();
  /// The first failure on any node, once it is known.
  std::optional<Outcome> failure() const;
  /// Of all nodes, once all others know it as well, or cannot be told: node 0 serves the store until then.
  std::optional<Outcome> outcome() const;
  /// A descriptor that becomes readable when one of these two has changed, until acknowledge().
  int changed() const { return changed_.number(); }
  void acknowledge();

 private:
  /// What node 0 knows of another.
  struct Other {
    std::string said;
    Deadline silence;
  };

  void run();
  void lead(Store& store);
  void follow(Store& store);
  /// The first failure of the job, if there is one: `proposed`, unless another was there before. That one is not
  /// followed by a restart if `proposed` is not.
  std::optional<Outcome> settle_failure(Store& store, const std::optional<Outcome>& proposed);
  void finish(const Outcome& outcome);
  /// How this node's part of the job has failed, and whether its ranks have ended.
  std::pair<std::optional<Outcome>, bool> own() const;

  const int node_;
  const Address address_;
  const Token token_;
  const std::string keys_;  // what those of this attempt begin with
  const FileDescriptor changed_;
  std::vector<Other> others_;         // nodes 1, 2, …
  std::optional<Deadline> patience_;  // with nodes that have not joined when this one has ended
  int64_t beat_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Outcome> own_, failure_, outcome_;
  bool ended_ = false, news_ = false, stopped_ = false;
  std::thread thread_;
};

}  // namespace gradus::dist
