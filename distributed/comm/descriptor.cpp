#include <gradus/distributed/comm/descriptor.h>

#include <cstdio>

#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>
#include <gradus/distributed/comm/frame.h>

namespace gradus::dist {
namespace {

// Flags of a header.
constexpr uint8_t kStrict = 1, kOnDevice = 2;
constexpr uint32_t kMessageMagic = 0x47524443;  // "GRDC"
constexpr size_t kMessageChecksumAt = 60;

std::string at(const Descriptor& call) { return "[" + call.str() + "] "; }
std::string name_of(int rank) { return "rank " + std::to_string(rank); }

std::string list(const std::vector<int>& ranks) { return (ranks.size() == 1 ? "rank " : "ranks ") + joined(ranks); }

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
  return {{.epoch = io::read_big_endian<uint32_t>(p + 4),
           .sequence = io::read_big_endian<uint64_t>(p + 8),
           .kind = static_cast<CollectiveKind>(kind),
           .reduce = static_cast<ReduceKind>(reduce),
           .dtype = static_cast<DType>(dtype),
           .strict = (flags & kStrict) != 0,
           .on_device = (flags & kOnDevice) != 0,
           .root = static_cast<int32_t>(io::read_big_endian<uint32_t>(p + 20)),
           .count = io::read_big_endian<uint64_t>(p + 24)},
          io::read_big_endian<uint64_t>(p + 32),
          io::read_big_endian<uint32_t>(p + 40)};
}

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

CommStatus mismatch(int sender, const Descriptor& theirs, int receiver, const Descriptor& ours) {
  return {CommFailure::mismatch, sender,
          "ranks disagree: " + name_of(sender) + " called " + theirs.str() + ", " + name_of(receiver) + " called " +
              ours.str()};
}

CommStatus wrong_length(const Descriptor& call, int sender, uint64_t bytes, uint64_t due) {
  return {CommFailure::mismatch, sender,
          at(call) + name_of(sender) + " sends " + std::to_string(bytes) + " bytes where " + std::to_string(due) +
              " are due: " +
              (call.kind == CollectiveKind::all_to_all_v || call.kind == CollectiveKind::all_gather_v
                   ? "their counts disagree"
                   : "do all ranks run the same version of gradus?")};
}

CommStatus peer_lost(const Descriptor& call, int rank, const std::string& cause) {
  return {CommFailure::peer_lost, rank, at(call) + name_of(rank) + " was lost: " + cause};
}

CommStatus peer_left(const Descriptor& call, int rank) {
  return {CommFailure::peer_lost, rank, at(call) + name_of(rank) + " has left the group"};
}

CommStatus timed_out(const Descriptor& call, int waiting, const std::vector<int>& awaited, Milliseconds timeout) {
  return {CommFailure::timeout, awaited.empty() ? -1 : awaited[0],
          at(call) + name_of(waiting) + " waited " + std::to_string(timeout.count()) + " ms for " + list(awaited)};
}

void warn_of_waiting(const Descriptor& call, int waiting, const std::vector<int>& awaited) {
  std::fprintf(stderr, "gradus: %s%s has waited %lld s for %s\n", at(call).c_str(), name_of(waiting).c_str(),
               static_cast<long long>(warn_after.count() / 1000), list(awaited).c_str());
}

bool contradicts(const Descriptor& theirs, const Descriptor& ours) {
  const bool numbered_alike = theirs.kind != CollectiveKind::send && ours.kind != CollectiveKind::send;
  return numbered_alike && theirs.sequence == ours.sequence && theirs != ours;
}

io::Bytes encode(const CommStatus& failure, size_t longest_message) {
  return PayloadWriter()
      .number(static_cast<uint64_t>(failure.failure))
      .number(static_cast<uint64_t>(failure.rank))
      .string(std::string_view(failure.message).substr(0, longest_message))
      .take();
}

CommStatus decode_failure(io::ByteSpan bytes) {
  PayloadReader payload(bytes);
  const uint64_t failure = payload.number(), rank = payload.number();
  const std::string message(payload.string());
  return {
      failure <= static_cast<uint64_t>(CommFailure::aborted) ? static_cast<CommFailure>(failure) : CommFailure::aborted,
      static_cast<int>(static_cast<int64_t>(rank)), message};
}

}  // namespace gradus::dist
