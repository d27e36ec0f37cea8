// Records the messages that ranks send each other, for lessons and for a page that steps through them
// (inspect/lab/lab.h).
//
//   const dist::MessageLog log = dist::record_messages(4, [](dist::ProcessGroup& group) {
//     const Tensor x = full({4}, group.rank() + 1.0);
//     group.all_reduce(x.array());
//   });
//   write_lab(log, "all_reduce.html");
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/distributed/comm/local/local_group.h>

namespace gradus::dist {

struct MessageLog {
  static constexpr size_t kElements = 64;  ///< how many elements of a message are kept

  struct Event {
    enum class Kind : uint8_t { sends, receives, fails } kind = Kind::sends;
    int rank = 0;
    int peer = -1;            ///< the other rank; -1 for a failure
    size_t message = 0;       ///< number of the message, the same at both ends
    std::string text;         ///< the call, "all_reduce #1 (sum of 4 float32)", or the cause of the failure
    DType dtype = DType::u8;  ///< of the elements
    size_t bytes = 0;         ///< length of the whole message
    std::vector<std::byte> body;
  };
  int ranks = 0;
  std::vector<Event> events;  ///< in the order in which they happened
};

/// Runs `work` in `ranks` threads, each with a group of all of them, and returns the messages of that group; messages
/// of sub-groups are not recorded. The failure of a rank, by `script` or because of another rank, becomes an event of
/// the log. The first other exception that `work` throws is passed on.
MessageLog record_messages(int ranks, const std::function<void(ProcessGroup&)>& work,
                           std::vector<LocalFault> script = {});

}  // namespace gradus::dist
