// What the ranks of a group tell each other by way of a store when their messages say nothing, since a library carries
// them: who has come to which call, and which failure has ended the group.
//
//   alarm             a number that grows with every question and every failure: all a rank has to look at
//   answer/<r>        the last alarm that rank r has heard, and where it was then
//   failure           the first one
//   call/<s>/<r>      rank r's call number s, where calls are compared before they are launched
//   left/<r>          rank r has taken leave
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/descriptor.h>
#include <gradus/distributed/comm/status.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

/// Several threads may use one. None of its methods waits in the store, whose other users it would hold up.
class ProgressBoard {
 public:
  ProgressBoard(std::shared_ptr<Store> store, int rank, int size);

  /// Returns when all ranks have called this, with the value that rank 0 gave; a CommError names who did not come.
  std::string meet(const std::string& value, const Deadline& deadline);

  /// Remembers a call that is about to be launched.
  void note(const Descriptor& call);
  /// Compares a call with those of `others`, who compare it too. A CollectiveError: Mismatch, Timeout, or the failure
  /// that a rank has announced. Calls of the same scope are numbered on their own.
  void compare(const std::string& scope, const Descriptor& call, const std::vector<int>& others,
               const Deadline& deadline);

  /// Answers what others ask. `reached` is the last call that this rank's device has come to. Returns the failure of
  /// the group, ok if there is none.
  CommStatus look(uint64_t reached);
  /// Makes this the failure of the group unless there is one; returns the one that counts.
  CommStatus announce(const CommStatus& failure);
  void leave();
  bool has_left(int rank);

  /// Asks the others; those of them whose devices have not come to `call`, or who do not answer. A CollectiveError
  /// where a rank has launched another call of this number, or has left.
  std::vector<int> missing(const Descriptor& call, uint64_t reached);

 private:
  struct Answer {
    int64_t alarm = 0;
    uint64_t reached = 0;
    std::vector<Descriptor> calls;
  };

  /// Hears the latest alarm; false if it has before.
  bool answer(uint64_t reached);
  Answer answer_of(int rank);
  CommStatus failure();

  const std::shared_ptr<Store> store_;
  const int rank_, size_;
  std::mutex mutex_;
  std::deque<Descriptor> calls_;  // the last that were launched
  int64_t answered_ = 0;
};

}  // namespace gradus::dist
