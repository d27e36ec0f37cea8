// Why a collective failed. The first failure reaches every rank of the group, and every later call reports it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gradus/core/error.h>
#include <gradus/core/platform/file.h>
#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

enum class CommFailure : uint8_t {
  none,
  timeout,    ///< the deadline passed: `rank` did not join the call, or made no progress in it
  peer_lost,  ///< the process or the connection of `rank` ended
  mismatch,   ///< ranks called different collectives, or the same with different arguments
  aborted,    ///< abort() was called, or the group had failed before
};

struct CommStatus {
  CommFailure failure = CommFailure::none;
  int rank = -1;        ///< the rank that the failure is about; -1 if it is about no single rank
  std::string message;  ///< names the collective, its sequence number, the ranks and the cause

  bool ok() const { return failure == CommFailure::none; }
};

/// The exception that collectives throw.
class CollectiveError : public CommError {
 public:
  explicit CollectiveError(CommStatus status) : CommError(status.message), status_(std::move(status)) {}
  const CommStatus& status() const { return status_; }

 private:
  CommStatus status_;
};

/// "0, 1, 4"
std::string joined(const std::vector<int>& ranks);

// Failures that transports find. All transports describe them in the same words.

/// `receiver` got a message that belongs to another call than its own.
CommStatus mismatch(int sender, const Descriptor& theirs, int receiver, const Descriptor& ours);
/// `sender`, in the same call, sends more or fewer bytes than `due`.
CommStatus wrong_length(const Descriptor& call, int sender, uint64_t bytes, uint64_t due);
/// `rank` ended unexpectedly with this cause (peer_lost), or left the group in order (peer_left).
CommStatus peer_lost(const Descriptor& call, int rank, const std::string& cause);
CommStatus peer_left(const Descriptor& call, int rank);
/// `waiting` has waited for the ranks `awaited` until its deadline.
CommStatus timed_out(const Descriptor& call, int waiting, const std::vector<int>& awaited, Milliseconds timeout);
/// Prints to stderr which ranks `waiting` has been waiting for during the last kPatience.
void warn_of_waiting(const Descriptor& call, int waiting, const std::vector<int>& awaited);

/// True if two ranks in these two calls cannot both be right: the calls have the same number but differ.
bool contradicts(const Descriptor& theirs, const Descriptor& ours);

/// Control messages between ranks. They travel apart from the bodies of messages, over connections of their own (tcp)
/// or under a tag of their own (mpi), so that they arrive even while a body is stuck.
enum class Control : uint8_t {
  failure = 1,  // the payload comes from encode()
  question,     // asks whether the receiver is in a collective
  answer,       // the sender is in a collective and can make progress
  leave,        // tcp: the sender leaves the group
  header,       // mpi: a MessageHeader, whose body follows
};

/// Encodes a failure as the payload of Control::failure, with at most this many bytes of its message.
io::Bytes encode(const CommStatus& failure, size_t longest_message = 2048);
/// The inverse of encode(). Throws a CommError if the payload is malformed.
CommStatus decode_failure(io::ByteSpan payload);

}  // namespace gradus::dist
