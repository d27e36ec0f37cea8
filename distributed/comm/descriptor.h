// What a collective is, as every message of it says to the receiver, who compares it with what it was called for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <gradus/core/array/dtype.h>
#include <gradus/core/io/file.h>

namespace gradus::dist {

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
  send,  // and recv: both ends of a message from one rank to another
  barrier,
};
/// How elements of several ranks become one. Sums of booleans are "or", products "and". avg divides the sum by the
/// number of ranks (integers: rounded towards 0).
enum class ReduceKind : uint8_t { sum, avg, min, max, prod };

const char* name(CollectiveKind kind);
const char* name(ReduceKind kind);

struct Descriptor {
  uint32_t epoch = 0;     ///< of the group: which of the groups that the job has made
  uint64_t sequence = 0;  ///< of the collective in the group, from 1; of messages between two ranks, from 1 each way
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceKind reduce = ReduceKind::sum;
  DType dtype = DType::u8;
  bool strict = false;
  bool on_device = false;  ///< the arrays lie on a device, so tcp and shm take them in pieces
  int32_t root = -1;
  uint64_t count = 0;  ///< elements that a rank contributes or, from one root, gets; all_to_all: to each rank;
                       ///< all_gather_v: of all ranks; all_to_all_v: 0

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
  /// "all_reduce #3 (sum of 1000 float32)"
  std::string str() const;
};

/// In front of every message: the descriptor, and how long the body is.
///
///   offset  0  magic "GRDC"    4 bytes         16  kind, reduce, dtype, flags    1 each
///           4  epoch           4               20  root                          4
///           8  sequence        8               24  count                         8
///                                              32  bytes of the body             8
///                                              40  CRC-32C of the body, or 0     4
///                                              44  zero                         16
///                                              60  CRC-32C of these 60 bytes     4
struct MessageHeader {
  static constexpr size_t kBytes = 64;  // bodies begin at a cache line in the kernel's buffers too

  Descriptor descriptor;
  uint64_t body_bytes = 0;
  uint32_t body_checksum = 0;

  std::array<std::byte, kBytes> encode() const;
  /// A CommError for bytes that are no header.
  static MessageHeader decode(io::ByteSpan bytes);
};

}  // namespace gradus::dist
