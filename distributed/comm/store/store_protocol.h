// The messages between a TcpStore and its server. After the handshake (token.h) a client has at most one request in
// progress. The answer has the id of the request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/frame.h>

namespace gradus::dist {

/// Type of a frame. The comments describe the payload.
enum class StoreMessage : uint8_t {
  challenge = 1,  // server: s, 32 bytes
  proof,          // client: c, 32 bytes, and its proof, 32 bytes
  welcome,        // server: its proof, 32 bytes
  set,            // key, value
  get,            // timeout in ms, key
  wait,           // timeout in ms, keys
  check,          // keys
  add,            // key, amount as int64
  compare_set,    // key, expected, desired
  delete_key,     // key
  num_keys,       // nothing
  done,           // server: the number and the string that the request asked for, 0 and "" if there is none
  timed_out,      // server: the keys that are missing
  refused,        // server: an error message; may replace a welcome
};

struct StoreRequest {
  StoreMessage kind = StoreMessage::num_keys;
  std::vector<std::string> keys = {};
  std::string value = {}, expected = {};
  int64_t amount = 0;
  Milliseconds timeout{0};

  Frame encode(uint64_t id) const;
  /// Throws a CommError if the frame is not a request.
  static StoreRequest decode(const Frame& frame);
};

struct StoreAnswer {
  StoreMessage kind = StoreMessage::done;  ///< done, timed_out or refused
  int64_t number = 0;
  std::string text = {};                  ///< of `done`: the string; of `refused`: the message
  std::vector<std::string> missing = {};  ///< of `timed_out`

  /// Throws a CommError if the frame is not an answer.
  static StoreAnswer decode(const Frame& frame);
};

inline constexpr std::string_view kStorePurpose = "store";

}  // namespace gradus::dist
