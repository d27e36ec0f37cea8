// What the launchers of a job that runs on several nodes tell one another.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gradus/distributed/comm/socket.h>
#include <gradus/distributed/comm/tcp_store.h>
#include <gradus/distributed/comm/token.h>

namespace gradus::dist {

/// How a job ended, or a node's part of it: well, with code 0, or not, for a reason.
struct Outcome {
  int code = 0;
  std::string cause = {};
};

/// Launchers meet in the job's store, each on a thread of its own, and look into it every half second. The first that
/// has a failure to report writes the outcome of the job down, for all to find; node 0 writes that it ended well when
/// all have said so. A node whose launcher is silent for 15 s is lost, and with it the job; node 0, which serves the
/// store, is lost at once when its connections are closed.
///
/// Keys: "gradus-run/outcome": "<code> <cause>"; "gradus-run/node/<K>", for all nodes but 0: "running <beat>",
/// "ended <beat>", and "left" when that node has read the outcome.
class Nodes {
 public:
  /// This is node number `node` of `count`.
  Nodes(int node, int count, const Address& store, const Token& token);
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  /// This node's part of the job has ended so. The first failure counts.
  void ended(const Outcome& own);
  /// Of the job, once it is known.
  std::optional<Outcome> outcome() const;
  /// True when all others know the outcome as well, or cannot be told: node 0 serves the store until then.
  bool finished() const;
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
  void decide(const Outcome& outcome);
  void finish();
  std::optional<Outcome> own() const;

  const int node_;
  const Address address_;
  const Token token_;
  const FileDescriptor changed_;
  std::vector<Other> others_;         // nodes 1, 2, …
  std::optional<Deadline> patience_;  // with nodes that have not joined when this one has ended
  int64_t beat_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Outcome> own_, outcome_;
  bool news_ = false, finished_ = false, stopped_ = false;
  std::thread thread_;
};

}  // namespace gradus::dist
