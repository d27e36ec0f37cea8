// What the ranks of a group over NCCL tell each other through a store, because NCCL does not report progress: which
// rank has reached which call, and which failure has ended the group.
//
//   alarm             a counter that each question and each failure increments: the only key that ranks poll
//   answer/<r>        the last alarm that rank r has seen, and the calls it had reached by then
//   failure           the first failure
//   call/<s>/<r>      rank r's call number s, if calls are compared before they are launched
//   left/<r>          set when rank r leaves the group
#pragma once

#include <deque>

#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

/// Several threads may share one board. No method sends the store a request that waits for a key, because the other
/// threads that use the same client of the store would have to wait too. Methods that wait poll the store instead.
class ProgressBoard {
 public:
  ProgressBoard(std::shared_ptr<Store> store, int rank, int size);

  /// Returns when all ranks have called this, with the value that rank 0 passed. Throws a CommError that names the
  /// missing ranks if the deadline passes.
  std::string meet(const std::string& value, const Deadline& deadline);

  /// Records a call that is about to be launched.
  void note(const Descriptor& call);
  /// Compares a call with the calls of the ranks `others`, which must call this too. Throws a CollectiveError:
  /// mismatch, timeout, or the failure that a rank has announced. Calls are numbered separately in each scope.
  void compare(const std::string& scope, const Descriptor& call, const std::vector<int>& others,
               const Deadline& deadline);

  /// Answers the questions of other ranks. `reached` is the last call that this rank's device has reached. Returns the
  /// failure of the group, or ok if there is none.
  CommStatus look(uint64_t reached);
  /// Makes this the failure of the group unless it already has one. Returns the failure of the group.
  CommStatus announce(const CommStatus& failure);
  void leave() { store_->set("left/" + std::to_string(rank_), ""); }
  bool has_left(int rank) { return store_->check({"left/" + std::to_string(rank)}); }

  /// Asks the other ranks. Returns the ranks whose devices have not reached `call` and the ranks that do not answer.
  /// Throws a CollectiveError if a rank has launched another call with this number or has left the group.
  std::vector<int> missing(const Descriptor& call, uint64_t reached);

 private:
  struct Answer {
    int64_t alarm = 0;
    uint64_t reached = 0;
    std::vector<Descriptor> calls;
  };

  /// Answers the latest alarm. Returns false if this rank has answered it before.
  bool answer(uint64_t reached);
  Answer answer_of(int rank);
  CommStatus failure();

  const std::shared_ptr<Store> store_;
  const int rank_, size_;
  std::mutex mutex_;
  std::deque<Descriptor> calls_;  // the calls that were launched last
  int64_t answered_ = 0;
};

}  // namespace gradus::dist
