#include <gradus/distributed/comm/store/tcp_store.h>

#include <poll.h>

#include <gradus/core/error.h>

namespace gradus::dist {
namespace {

/// The longest answer that is accepted: a value of any store, with some margin.
constexpr uint32_t kAnswerLimit = 1u << 30;
/// How much longer than its timeout the answer to a wait may take.
constexpr Milliseconds kGrace{10'000};

Digest read_digest(const Frame& frame, StoreMessage expected, const std::string& peer) {
  if (frame.type == static_cast<uint8_t>(StoreMessage::refused))
    GRADUS_FAIL(CommError, peer, " did not accept this process: ", PayloadReader(frame.payload).string());
  GRADUS_CHECK(frame.type == static_cast<uint8_t>(expected) && frame.payload.size() == sizeof(Digest), CommError, peer,
               " does not answer with the handshake of a store");
  Digest digest;
  std::copy(frame.payload.begin(), frame.payload.end(), digest.begin());
  return digest;
}

}  // namespace

TcpStore::TcpStore(const Address& server, const Token& token, Milliseconds timeout)
    : server_(server), token_(token), peer_("[store] the server at " + server.str()), reader_(kAnswerLimit) {
  set_timeout(timeout);
  const Deadline deadline(timeout);
  connect_again(deadline, [&] {
    connection_ = Connection::open(server, deadline);
    reader_ = FrameReader(kAnswerLimit);
    shake_hands(deadline);
  });
}

void TcpStore::shake_hands(const Deadline& deadline) {
  const Digest s = read_digest(receive(deadline), StoreMessage::challenge, peer_), c = random_digest();
  const Digest proof = Handshake::client_proof(token_, kStorePurpose, s, c);
  const Frame answer{static_cast<uint8_t>(StoreMessage::proof), 0, PayloadWriter().bytes(c).bytes(proof).take()};
  connection_.send(answer.encode(), deadline, peer_);
  const Digest theirs = read_digest(receive(deadline), StoreMessage::welcome, peer_);
  GRADUS_CHECK(same_digest(Handshake::server_proof(token_, kStorePurpose, s, c), theirs), CommError, peer_,
               " does not know the token of this job");
}

Frame TcpStore::receive(const Deadline& deadline) {
  std::byte chunk[1 << 14];
  while (true) {
    if (std::optional<Frame> frame = reader_.next()) return std::move(*frame);
    GRADUS_CHECK(wait_for(connection_.descriptor(), POLLIN, deadline), CommError, peer_, " sent nothing for ",
                 deadline.timeout().count(), " ms");
    const std::optional<size_t> got = connection_.receive_some(chunk);
    GRADUS_CHECK(got, dist::ConnectionClosed, peer_, " closed the connection");
    reader_.append({chunk, *got});
  }
}

StoreAnswer TcpStore::ask(const StoreRequest& request) {
  const std::lock_guard lock(mutex_);
  GRADUS_CHECK(connection_, CommError, peer_, " was lost in an earlier call");
  const uint64_t id = next_id_++;
  StoreAnswer answer;
  try {
    connection_.send(request.encode(id).encode(), Deadline(bounded(timeout()) + kGrace), peer_);
    const Frame frame = receive(Deadline(bounded(std::max(timeout(), request.timeout)) + kGrace));
    GRADUS_CHECK(frame.id == id, CommError, peer_, " answers request ", frame.id, " instead of ", id);
    answer = StoreAnswer::decode(frame);
  } catch (...) {
    connection_.close();
    throw;
  }
  if (answer.kind == StoreMessage::timed_out) detail::fail_to_find(answer.missing, request.timeout);
  GRADUS_CHECK(answer.kind == StoreMessage::done, CommError, answer.text);
  return answer;
}

void TcpStore::set(const std::string& key, std::string_view value) {
  ask({.kind = StoreMessage::set, .keys = {key}, .value = std::string(value)});
}

std::string TcpStore::get(const std::string& key, Milliseconds timeout) {
  return ask({.kind = StoreMessage::get, .keys = {key}, .timeout = timeout}).text;
}

void TcpStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  ask({.kind = StoreMessage::wait, .keys = keys, .timeout = timeout});
}

bool TcpStore::check(const std::vector<std::string>& keys) {
  return ask({.kind = StoreMessage::check, .keys = keys}).number != 0;
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  return ask({.kind = StoreMessage::add, .keys = {key}, .amount = amount}).number;
}

std::string TcpStore::compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
  return ask({.kind = StoreMessage::compare_set,
              .keys = {key},
              .value = std::string(desired),
              .expected = std::string(expected)})
      .text;
}

bool TcpStore::delete_key(const std::string& key) {
  return ask({.kind = StoreMessage::delete_key, .keys = {key}}).number != 0;
}

int64_t TcpStore::num_keys() { return ask({.kind = StoreMessage::num_keys}).number; }

}  // namespace gradus::dist
