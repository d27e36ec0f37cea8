// What ranks tell each other about a call of a collective: the description that every message carries, which the
// receiver compares with its own call, and why the call failed. The first failure reaches every rank of the group, and
// every later call reports it.
#pragma once

#include <array>
#include <utility>

#include <gradus/core/array/dtype.h>
#include <gradus/core/platform/file.h>
#include <gradus/core/runtime/deadline.h>

namespace gradus::dist {

using gradus::Deadline;
using gradus::Milliseconds;

/// Default timeout of a wait.
inline constexpr Milliseconds kDefaultTimeout{60'000};
/// After waiting this long, a rank prints a warning that names the ranks it is waiting for. Tests shorten it.
inline Milliseconds warn_after{10'000};

enum class CollectiveKind : uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  all_to_all_v,  // parts of different lengths
  all_gather_v,
  send,  // both send() and recv()
  barrier,
};
/// How the elements of several ranks are combined. For booleans, sum is "or" and prod is "and". avg divides the sum by
/// the number of ranks; integers are rounded toward 0.
enum class ReduceKind : uint8_t { sum, avg, min, max, prod };

const char* name(CollectiveKind kind);
const char* name(ReduceKind kind);

struct Descriptor {
  uint32_t epoch = 0;     ///< number of the group among the groups that the job has made
  uint64_t sequence = 0;  ///< number of the collective in its group, or of the message from one rank to another; from 1
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceKind reduce = ReduceKind::sum;
  DType dtype = DType::u8;
  bool strict = false;
  bool on_device = false;  ///< the arrays are in device memory, so tcp and shm transfer them in pieces
  int32_t root = -1;
  /// Number of elements that a rank contributes or, in broadcast and scatter, receives. all_to_all: number of elements
  /// for each rank. all_gather_v: sum over all ranks. all_to_all_v: 0.
  uint64_t count = 0;

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
  /// Describes the call for messages, for example "all_reduce #3 (sum of 1000 float32)".
  std::string str() const;
};

/// The header of every message: the descriptor and the length of the body.
///
///   offset  0  magic "GRDC"    4 bytes         16  kind, reduce, dtype, flags    1 each
///           4  epoch           4               20  root                          4
///           8  sequence        8               24  count                         8
///                                              32  bytes of the body             8
///                                              40  CRC-32C of the body, or 0     4
///                                              44  zero                         16
///                                              60  CRC-32C of these 60 bytes     4
struct MessageHeader {
  static constexpr size_t kBytes = 64;  // a cache line, so that bodies are also aligned in the socket buffers

  Descriptor descriptor;
  uint64_t body_bytes = 0;
  uint32_t body_checksum = 0;

  std::array<std::byte, kBytes> encode() const;
  /// Throws a CommError if the bytes are not a header.
  static MessageHeader decode(io::ByteSpan bytes);
};

// ---- Failures ----

enum class CommFailure : uint8_t {
  none,
  timeout,    ///< the deadline passed: `rank` did not join the call, or made no progress in it
  peer_lost,  ///< the process or the connection of `rank` ended
  mismatch,   ///< ranks called different collectives, or the same with different arguments
  aborted,    ///< abort() was called, or an exception other than a CollectiveError ended the call
};

struct CommStatus {
  CommFailure failure = CommFailure::none;
  int rank = -1;        ///< the rank that the failure concerns; -1 if it does not concern a single rank
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

/// The numbers as text, for example "0, 1, 4".
std::string joined(const std::vector<int>& ranks);

// All transports describe failures that they find in the same words.

/// `receiver` is in the call `ours` and got a message of the call `theirs`.
CommStatus mismatch(int sender, const Descriptor& theirs, int receiver, const Descriptor& ours);
/// `sender` is in the same call, but its message has more or fewer bytes than `due`.
CommStatus wrong_length(const Descriptor& call, int sender, uint64_t bytes, uint64_t due);
/// `rank` ended unexpectedly with this cause (peer_lost), or left the group in order (peer_left).
CommStatus peer_lost(const Descriptor& call, int rank, const std::string& cause);
CommStatus peer_left(const Descriptor& call, int rank);
/// `waiting` has waited for the ranks `awaited` until its deadline.
CommStatus timed_out(const Descriptor& call, int waiting, const std::vector<int>& awaited, Milliseconds timeout);
/// Prints to stderr which ranks `waiting` has been waiting for during the last `warn_after`.
void warn_of_waiting(const Descriptor& call, int waiting, const std::vector<int>& awaited);

/// True if both calls are collectives with the same number but differ, so that the two ranks disagree. False for
/// messages, because they are numbered separately for each pair of ranks.
bool contradicts(const Descriptor& theirs, const Descriptor& ours);

/// Control messages between ranks. They arrive even while the body of a message is stuck, because they use a separate
/// connection (tcp) or a separate tag (mpi).
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
