// What ranks tell each other beside the bodies of messages: over connections of their own (tcp) or under a tag of its
// own (mpi), so that it comes through while a body is stuck.
#pragma once

#include <gradus/core/io/file.h>
#include <gradus/distributed/comm/status.h>

namespace gradus::dist {

enum class Control : uint8_t {
  failure = 1,  // what encode() makes of it
  question,     // are you there?
  answer,       // in a collective, so able to go on
  leave,        // tcp
  header,       // mpi: a MessageHeader, whose body follows
};

/// The payload of Control::failure: a failure as bytes, with the first 2048 of its message.
io::Bytes encode(const CommStatus& failure);
/// The other way round. A CommError for bytes that are none.
CommStatus decode_failure(io::ByteSpan payload);

}  // namespace gradus::dist
