// What ranks say to each other, written down: for lessons, and for a page to step through (inspect/lab/lab.h).
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
  static constexpr size_t kElements = 64;  ///< of a message that are kept: its first ones

  struct Event {
    enum class Kind : uint8_t { sends, receives, fails } kind = Kind::sends;
    int rank = 0;
    int peer = -1;            ///< the other rank; -1 of one that fails
    size_t message = 0;       ///< its number, which both ends tell
    std::string text;         ///< the call, "all_reduce #1 (sum of 4 float32)", or why it fails
    DType dtype = DType::u8;  ///< of the elements
    size_t bytes = 0;         ///< of the message
    std::vector<std::byte> body;
  };
  int ranks = 0;
  std::vector<Event> events;  ///< in the order in which they happened
};

/// Runs `work` in `ranks` threads, each with a group of all of them (LocalGroup; not its sub-groups), and returns their
/// messages. A rank that fails, by `script` or because of another one, is in the log; other exceptions of `work` are
/// passed on, the first one.
MessageLog record_messages(int ranks, const std::function<void(ProcessGroup&)>& work,
                           std::vector<LocalFault> script = {});

}  // namespace gradus::dist
