#include <gradus/distributed/comm/status.h>

#include <cstdio>

#include <gradus/distributed/comm/frame.h>

namespace gradus::dist {
namespace {

std::string at(const Descriptor& call) { return "[" + call.str() + "] "; }
std::string name_of(int rank) { return "rank " + std::to_string(rank); }

std::string list(const std::vector<int>& ranks) { return (ranks.size() == 1 ? "rank " : "ranks ") + joined(ranks); }

}  // namespace

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
               static_cast<long long>(kPatience.count() / 1000), list(awaited).c_str());
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
