// Control messages between ranks. They travel apart from the bodies of messages, over connections of their own (tcp) or
// under a tag of their own (mpi), so that they arrive even while a body is stuck.
#pragma once

#include <gradus/core/platform/file.h>
#include <gradus/distributed/comm/status.h>

namespace gradus::dist {

enum class Control : uint8_t {
  failure = 1,  // the payload comes from encode()
  question,     // asks whether the receiver is in a collective
  answer,       // the sender is in a collective and can make progress
  leave,        // tcp: the sender leaves the group
  header,       // mpi: a MessageHeader, whose body follows
};

/// Encodes a failure as the payload of Control::failure, with at most 2048 bytes of its message.
io::Bytes encode(const CommStatus& failure);
/// The inverse of encode(). Throws a CommError if the payload is malformed.
CommStatus decode_failure(io::ByteSpan payload);

}  // namespace gradus::dist
