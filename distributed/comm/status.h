// Why a collective failed. The first failure reaches every rank of the group and is what every later call reports.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

enum class CommFailure : uint8_t {
  none,
  timeout,    ///< the deadline passed: `rank` did not come, or did not go on
  peer_lost,  ///< `rank` ended, or its connection did
  mismatch,   ///< ranks called different collectives, or the same with different arguments
  aborted,    ///< somebody called abort(), or the group had failed before
};

struct CommStatus {
  CommFailure failure = CommFailure::none;
  int rank = -1;        ///< whom it is about; -1 where it is about nobody alone
  std::string message;  ///< names the collective, its sequence number, the ranks and the cause

  bool ok() const { return failure == CommFailure::none; }
};

/// What a collective throws.
class CollectiveError : public CommError {
 public:
  explicit CollectiveError(CommStatus status) : CommError(status.message), status_(std::move(status)) {}
  const CommStatus& status() const { return status_; }

 private:
  CommStatus status_;
};

// The failures that transports find, in the same words on all of them.

/// `receiver` got a message of another call than its own.
CommStatus mismatch(int sender, const Descriptor& theirs, int receiver, const Descriptor& ours);
/// `sender`, in the same call, sends more or fewer bytes than are due.
CommStatus wrong_length(const Descriptor& call, int sender, uint64_t bytes, uint64_t due);
/// `rank` ended, for this cause, or has taken leave.
CommStatus peer_lost(const Descriptor& call, int rank, const std::string& cause);
CommStatus peer_left(const Descriptor& call, int rank);
/// `waiting` has waited for these ranks as long as it may.
CommStatus timed_out(const Descriptor& call, int waiting, const std::vector<int>& awaited, Milliseconds timeout);
/// Says on stderr whom a rank has been waiting for since kPatience.
void warn_of_waiting(const Descriptor& call, int waiting, const std::vector<int>& awaited);

/// True if two ranks that are in these two collectives cannot both be right: the same number, but not the same call.
bool contradicts(const Descriptor& theirs, const Descriptor& ours);

}  // namespace gradus::dist
