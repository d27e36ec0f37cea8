// Why a collective failed. The first failure reaches every rank of the group and is what every later call reports.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <gradus/core/error.h>

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

}  // namespace gradus::dist
