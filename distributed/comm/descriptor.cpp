#include <gradus/distributed/comm/descriptor.h>

#include <gradus/core/error.h>
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>

namespace gradus::dist {
namespace {

// Flags of a header.
constexpr uint8_t kStrict = 1, kOnDevice = 2;
constexpr uint32_t kMessageMagic = 0x47524443;  // "GRDC"
constexpr size_t kMessageChecksumAt = 60;

}  // namespace

const char* name(CollectiveKind kind) {
  constexpr const char* kNames[] = {"all_reduce",     "reduce",       "broadcast", "all_gather",
                                    "reduce_scatter", "gather",       "scatter",   "all_to_all",
                                    "all_to_all_v",   "all_gather_v", "send",      "barrier"};
  return kNames[static_cast<int>(kind)];
}

const char* name(ReduceKind kind) {
  constexpr const char* kNames[] = {"sum", "avg", "min", "max", "prod"};
  return kNames[static_cast<int>(kind)];
}

std::string Descriptor::str() const {
  const bool reduces =
      kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
  detail::Message text;
  text << name(kind) << " #" << sequence;
  if (kind == CollectiveKind::all_to_all_v) text << " (" << dtype << (on_device ? " on a device)" : ")");
  else if (kind != CollectiveKind::barrier)
    text << " (" << (strict ? "strict " : "") << (reduces ? name(reduce) : "") << (reduces ? " of " : "") << count
         << ' ' << dtype << (root >= 0 ? ", root " + std::to_string(root) : std::string())
         << (on_device ? " on a device" : "") << ')';
  if (epoch != 0) text << " of group " << epoch;
  return std::move(text).take();
}

std::array<std::byte, MessageHeader::kBytes> MessageHeader::encode() const {
  std::array<std::byte, kBytes> bytes{};
  std::byte* p = bytes.data();
  const Descriptor& d = descriptor;
  io::write_big_endian(kMessageMagic, p);
  io::write_big_endian(d.epoch, p + 4);
  io::write_big_endian(d.sequence, p + 8);
  io::write_big_endian(static_cast<uint8_t>(d.kind), p + 16);
  io::write_big_endian(static_cast<uint8_t>(d.reduce), p + 17);
  io::write_big_endian(static_cast<uint8_t>(d.dtype), p + 18);
  io::write_big_endian(static_cast<uint8_t>((d.strict ? kStrict : 0) | (d.on_device ? kOnDevice : 0)), p + 19);
  io::write_big_endian(static_cast<uint32_t>(d.root), p + 20);
  io::write_big_endian(d.count, p + 24);
  io::write_big_endian(body_bytes, p + 32);
  io::write_big_endian(body_checksum, p + 40);
  io::write_big_endian(io::crc32c({p, kMessageChecksumAt}), p + kMessageChecksumAt);
  return bytes;
}

MessageHeader MessageHeader::decode(io::ByteSpan bytes) {
  const std::byte* p = bytes.data();
  const auto kind = io::read_big_endian<uint8_t>(p + 16), reduce = io::read_big_endian<uint8_t>(p + 17),
             dtype = io::read_big_endian<uint8_t>(p + 18), flags = io::read_big_endian<uint8_t>(p + 19);
  GRADUS_CHECK(bytes.size() == kBytes && io::read_big_endian<uint32_t>(p) == kMessageMagic &&
                   io::read_big_endian<uint32_t>(p + kMessageChecksumAt) == io::crc32c({p, kMessageChecksumAt}) &&
                   kind <= static_cast<uint8_t>(CollectiveKind::barrier) &&
                   reduce <= static_cast<uint8_t>(ReduceKind::prod) && dtype < kDTypeCount &&
                   flags <= (kStrict | kOnDevice),
               CommError, "a message does not begin with a valid header: it may have been damaged on its way");
  MessageHeader header;
  header.descriptor = {.epoch = io::read_big_endian<uint32_t>(p + 4),
                       .sequence = io::read_big_endian<uint64_t>(p + 8),
                       .kind = static_cast<CollectiveKind>(kind),
                       .reduce = static_cast<ReduceKind>(reduce),
                       .dtype = static_cast<DType>(dtype),
                       .strict = (flags & kStrict) != 0,
                       .on_device = (flags & kOnDevice) != 0,
                       .root = static_cast<int32_t>(io::read_big_endian<uint32_t>(p + 20)),
                       .count = io::read_big_endian<uint64_t>(p + 24)};
  header.body_bytes = io::read_big_endian<uint64_t>(p + 32);
  header.body_checksum = io::read_big_endian<uint32_t>(p + 40);
  return header;
}

}  // namespace gradus::dist
