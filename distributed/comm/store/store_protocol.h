// What a TcpStore asks its server and what that answers. After the handshake (token.h) a client has one request at a
// time on its way; its answer carries the request's id.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/frame.h>

namespace gradus::dist {

/// Type of a frame, and its payload.
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
  done,           // server: number, string: what the request asked for, 0 and "" where that is nothing
  timed_out,      // server: the keys that are missing
  refused,        // server: the message. Instead of a welcome too
};

struct StoreRequest {
  StoreMessage kind = StoreMessage::num_keys;
  std::vector<std::string> keys = {};
  std::string value = {}, expected = {};
  int64_t amount = 0;
  Milliseconds timeout{0};

  Frame encode(uint64_t id) const;
  /// A frame that is no request is a CommError.
  static StoreRequest decode(const Frame& frame);
};

struct StoreAnswer {
  StoreMessage kind = StoreMessage::done;  ///< done, timed_out or refused
  int64_t number = 0;
  std::string text = {};                  ///< of refused: the message
  std::vector<std::string> missing = {};  ///< of timed_out

  /// A frame that is no answer is a CommError.
  static StoreAnswer decode(const Frame& frame);
};

inline constexpr std::string_view kStorePurpose = "store";

}  // namespace gradus::dist
