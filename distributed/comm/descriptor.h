// The description of a collective. Every message carries one, and the receiver compares it with the call it is in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <gradus/core/array/dtype.h>
#include <gradus/core/platform/file.h>

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
  uint64_t sequence = 0;  ///< number of the collective in its group, from 1; messages are counted by pair and direction
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceKind reduce = ReduceKind::sum;
  DType dtype = DType::u8;
  bool strict = false;
  bool on_device = false;  ///< the arrays are in device memory, so tcp and shm transfer them in pieces
  int32_t root = -1;
  uint64_t count = 0;  ///< elements that a rank contributes or, from a root, receives; all_to_all: for each rank;
                       ///< all_gather_v: of all ranks together; all_to_all_v: 0

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
  /// "all_reduce #3 (sum of 1000 float32)"
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
  static constexpr size_t kBytes = 64;  // a cache line, so that bodies are aligned in the kernel's buffers too

  Descriptor descriptor;
  uint64_t body_bytes = 0;
  uint32_t body_checksum = 0;

  std::array<std::byte, kBytes> encode() const;
  /// Throws a CommError if the bytes are not a header.
  static MessageHeader decode(io::ByteSpan bytes);
};

}  // namespace gradus::dist
