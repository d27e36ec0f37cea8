#include <gradus/distributed/comm/store/store_protocol.h>

#include <gradus/core/error.h>

namespace gradus::dist {

Frame StoreRequest::encode(uint64_t id) const {
  PayloadWriter payload;
  if (kind == StoreMessage::get || kind == StoreMessage::wait)
    payload.number(static_cast<uint64_t>(bounded(timeout).count()));
  for (const std::string& key : keys) payload.string(key);
  if (kind == StoreMessage::set) payload.string(value);
  if (kind == StoreMessage::add) payload.number(static_cast<uint64_t>(amount));
  if (kind == StoreMessage::compare_set) payload.string(expected).string(value);
  return {static_cast<uint8_t>(kind), id, payload.take()};
}

StoreRequest StoreRequest::decode(const Frame& frame) {
  StoreRequest request;
  request.kind = static_cast<StoreMessage>(frame.type);
  PayloadReader payload(frame.payload);
  const auto read_key = [&] { request.keys.emplace_back(payload.string()); };
  const auto read_timeout = [&] {
    const uint64_t ms = payload.number();
    GRADUS_CHECK(ms <= static_cast<uint64_t>(kLongestWait.count()), CommError, "a request would wait for ", ms, " ms");
    request.timeout = Milliseconds(ms);
  };
  switch (request.kind) {
    case StoreMessage::set: read_key(), request.value = payload.string(); break;
    case StoreMessage::get: read_timeout(), read_key(); break;
    case StoreMessage::wait: read_timeout(); [[fallthrough]];
    case StoreMessage::check:
      while (!payload.at_end()) read_key();
      break;
    case StoreMessage::add: read_key(), request.amount = static_cast<int64_t>(payload.number()); break;
    case StoreMessage::compare_set:
      read_key(), request.expected = payload.string(), request.value = payload.string();
      break;
    case StoreMessage::delete_key: read_key(); break;
    case StoreMessage::num_keys: break;
    default: GRADUS_FAIL(CommError, "a frame of type ", int{frame.type}, " is not a request to a store");
  }
  payload.expect_end();
  return request;
}

StoreAnswer StoreAnswer::decode(const Frame& frame) {
  StoreAnswer answer;
  answer.kind = static_cast<StoreMessage>(frame.type);
  PayloadReader payload(frame.payload);
  switch (answer.kind) {
    case StoreMessage::done: answer.number = static_cast<int64_t>(payload.number()); [[fallthrough]];
    case StoreMessage::refused: answer.text = payload.string(); break;
    case StoreMessage::timed_out:
      while (!payload.at_end()) answer.missing.emplace_back(payload.string());
      break;
    default: GRADUS_FAIL(CommError, "a frame of type ", int{frame.type}, " is not an answer of a store");
  }
  payload.expect_end();
  return answer;
}

}  // namespace gradus::dist
