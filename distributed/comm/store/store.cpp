#include <gradus/distributed/comm/store/store.h>

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstdio>

#include <gradus/core/io/parse_number.h>

namespace gradus::dist {

void detail::fail_to_find(const std::vector<std::string>& missing, Milliseconds timeout) {
  std::string names;
  for (const std::string& key : missing) names += (names.empty() ? "'" : ", '") + key + "'";
  GRADUS_FAIL(CommError, "[store] no process set ", names, " within ", timeout.count(),
              " ms: a process of the job did not start, or ended early");
}

void StoreTable::set(const std::string& key, std::string_view value) {
  GRADUS_CHECK(key.size() <= limits_.key_bytes, CommError, "[store] a key has ", key.size(), " bytes; at most ",
               limits_.key_bytes, " are accepted");
  GRADUS_CHECK(value.size() <= limits_.value_bytes, CommError, "[store] the value of '", key, "' has ", value.size(),
               " bytes; at most ", limits_.value_bytes, " are accepted");
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  GRADUS_CHECK(after <= limits_.total_bytes, CommError, "[store] it would hold ", after, " bytes with '", key,
               "'; at most ", limits_.total_bytes, " are accepted");
  if (found == values_.end()) values_.emplace(key, value);
  else found->second = value;
  bytes_ = after;
}

std::vector<std::string> StoreTable::missing(const std::vector<std::string>& keys) const {
  std::vector<std::string> found;
  for (const std::string& key : keys)
    if (!values_.contains(key)) found.push_back(key);
  return found;
}

std::optional<StoreAnswer> StoreTable::carry_out(const StoreRequest& request) {
  using enum StoreMessage;
  StoreAnswer answer;
  const std::vector<std::string>& keys = request.keys;
  const auto held = keys.empty() ? values_.end() : values_.find(keys[0]);
  const bool exists = held != values_.end();
  const auto has_all = [&] {
    return std::ranges::all_of(keys, [&](const std::string& key) { return values_.contains(key); });
  };
  switch (request.kind) {
    case set: this->set(keys[0], request.value); break;
    case get:
    case wait:
      if (!has_all()) return std::nullopt;
      if (request.kind == get) answer.text = held->second;
      break;
    case check: answer.number = has_all(); break;
    case add: {
      const std::optional<int64_t> number = exists ? io::parse_number<int64_t>(held->second) : 0;
      GRADUS_CHECK(number, CommError, "[store] '", keys[0], "' does not hold a number to add to");
      GRADUS_CHECK(!__builtin_add_overflow(*number, request.amount, &answer.number), CommError, "[store] '", keys[0],
                   "' would leave the range of int64");
      this->set(keys[0], std::to_string(answer.number));
      break;
    }
    case compare_set:
      if (exists ? held->second == request.expected : request.expected.empty())
        this->set(keys[0], answer.text = request.value);
      else if (exists) answer.text = held->second;
      break;
    case delete_key:
      answer.number = exists;
      if (!exists) break;
      bytes_ -= held->first.size() + held->second.size();
      values_.erase(held);
      break;
    case num_keys: answer.number = static_cast<int64_t>(values_.size()); break;
    default: GRADUS_FAIL(CommError, "not a request");
  }
  return answer;
}

StoreAnswer HashStore::ask(StoreRequest request) {
  std::unique_lock lock(mutex_);
  std::optional<StoreAnswer> answer;
  if (!changed_.wait_for(lock, bounded(request.timeout),
                         [&] { return (answer = table_.carry_out(request)).has_value(); }))
    detail::fail_to_find(table_.missing(request.keys), request.timeout);
  changed_.notify_all();
  return *std::move(answer);
}

std::vector<std::string> wait_for_ranks(Store& store, const std::string& name, std::string_view own, int rank, int size,
                                        Milliseconds timeout) {
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back(name + "/" + std::to_string(r));
  store.set(keys[static_cast<size_t>(rank)], own);
  store.wait(keys, timeout);
  return keys;
}

std::vector<std::string> values_of_ranks(Store& store, const std::string& name, std::string_view own, int rank,
                                         int size, Milliseconds timeout) {
  std::vector<std::string> values;
  for (const std::string& key : wait_for_ranks(store, name, own, rank, size, timeout)) values.push_back(store.get(key));
  return values;
}

namespace {

/// The longest answer that a client accepts. It is far above the default StoreLimits, because a client does not know
/// the limits of its server.
constexpr uint32_t kAnswerLimit = 1u << 30;
/// How much later than the timeout of a request its answer may arrive.
constexpr Milliseconds kGrace{10'000};

/// The largest number of clients. The other descriptors are for strangers and for the rest of the process.
size_t most_clients() { return descriptor_limit() / 4 * 3; }

/// The longest payload that the server accepts from a client that has not proved yet that it knows the token.
constexpr uint32_t kStrangerLimit = 2 * sizeof(Digest);
constexpr Milliseconds kPauseWithoutDescriptors{100};

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

// ---- Messages ----

Frame StoreRequest::encode(uint64_t id) const {
  using enum StoreMessage;
  PayloadWriter payload;
  if (kind == get || kind == wait) payload.number(static_cast<uint64_t>(bounded(timeout).count()));
  for (const std::string& key : keys) payload.string(key);
  if (kind == compare_set) payload.string(expected);
  if (kind == set || kind == compare_set) payload.string(value);
  if (kind == add) payload.number(static_cast<uint64_t>(amount));
  return {static_cast<uint8_t>(kind), id, payload.take()};
}

StoreRequest StoreRequest::decode(const Frame& frame) {
  using enum StoreMessage;
  const auto kind = static_cast<StoreMessage>(frame.type);
  GRADUS_CHECK(set <= kind && kind <= num_keys, CommError, "a frame of type ", int{frame.type},
               " is not a request to a store");
  StoreRequest request{.kind = kind};
  PayloadReader payload(frame.payload);
  if (kind == get || kind == wait) {
    const uint64_t ms = payload.number();
    GRADUS_CHECK(ms <= static_cast<uint64_t>(kLongestWait.count()), CommError, "a request would wait for ", ms, " ms");
    request.timeout = Milliseconds(ms);
  }
  const bool has_list = kind == wait || kind == check;
  while (has_list && !payload.at_end()) request.keys.emplace_back(payload.string());
  if (!has_list && kind != num_keys) request.keys.emplace_back(payload.string());
  if (kind == compare_set) request.expected = payload.string();
  if (kind == set || kind == compare_set) request.value = payload.string();
  if (kind == add) request.amount = static_cast<int64_t>(payload.number());
  payload.expect_end();
  return request;
}

Frame StoreAnswer::encode(uint64_t id) const {
  PayloadWriter payload;
  if (kind == StoreMessage::done) payload.number(static_cast<uint64_t>(number));
  if (kind != StoreMessage::timed_out) payload.string(text);
  for (const std::string& key : missing) payload.string(key);
  return {static_cast<uint8_t>(kind), id, payload.take()};
}

StoreAnswer StoreAnswer::decode(const Frame& frame) {
  using enum StoreMessage;
  const auto kind = static_cast<StoreMessage>(frame.type);
  GRADUS_CHECK(kind == done || kind == timed_out || kind == refused, CommError, "a frame of type ", int{frame.type},
               " is not an answer of a store");
  StoreAnswer answer{.kind = kind};
  PayloadReader payload(frame.payload);
  if (kind == done) answer.number = static_cast<int64_t>(payload.number());
  if (kind != timed_out) answer.text = payload.string();
  while (kind == timed_out && !payload.at_end()) answer.missing.emplace_back(payload.string());
  payload.expect_end();
  return answer;
}

// ---- The client ----

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

StoreAnswer TcpStore::ask(StoreRequest request) {
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

// ---- The server ----

struct TcpStoreServer::Client {
  /// A request for keys that do not all exist yet.
  struct Waiter {
    StoreRequest request;
    uint64_t id;
    Deadline deadline;
  };

  Client(Connection connection, const StoreLimits& limits)
      : connection(std::move(connection)), reader(kStrangerLimit), handshake(limits.handshake),
        challenge(random_digest()) {
    send({static_cast<uint8_t>(StoreMessage::challenge), 0, PayloadWriter().bytes(challenge).take()});
  }

  void send(const Frame& frame) {
    output = frame.encode();
    flush();
  }
  void flush() {
    const std::optional<size_t> sent = connection.send_some(output);  // if it is lost, poll() reports that
    if (sent) output.erase(output.begin(), output.begin() + static_cast<ptrdiff_t>(*sent));
  }
  void read() {
    std::byte chunk[1 << 14];
    if (const std::optional<size_t> got = connection.receive_some(chunk)) reader.append({chunk, *got});
    else lost = true;
  }
  /// True while an answer to the client is due or being sent. The server then reads no further request, so that it
  /// holds at most one request and one answer for each client.
  bool busy() const { return waiter || !output.empty(); }

  Connection connection;
  FrameReader reader;
  io::Bytes output;
  Deadline handshake, grace{kStrangerTime};
  Digest challenge;
  bool trusted = false, lost = false;
  std::optional<Waiter> waiter;
};

TcpStoreServer::TcpStoreServer(const Address& at, const Token& token, const StoreLimits& limits)
    : token_(token), limits_(limits), table_(limits) {
  listener_ = Listener(at);  // before the token is checked, so that a wrong host name is reported first
  GRADUS_CHECK(!token.empty() || is_loopback(at.host), CommError, "[store] ", at.host,
               " can be reached from other machines, so the store needs a token: Token::random()");
  stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  GRADUS_CHECK(stop_, CommError, "[store] no descriptor is left for the server");
  thread_ = std::thread([this] { serve(); });
}

TcpStoreServer::~TcpStoreServer() {
  while (eventfd_write(stop_.number(), 1) < 0 && errno == EINTR) {}
  thread_.join();
}

void TcpStoreServer::serve() {
  std::vector<pollfd> entries;
  while (true) {
    const bool full = out_of_descriptors_ || strangers() >= limits_.strangers;
    entries.clear();
    entries.push_back({stop_.number(), POLLIN, 0});
    entries.push_back({full ? -1 : listener_.descriptor(), POLLIN, 0});
    for (const auto& client : clients_) {
      const short events = client->output.empty() ? (client->waiter ? POLLRDHUP : POLLIN) : POLLOUT;
      entries.push_back({client->connection.descriptor(), events, 0});
    }
    const int ready = poll(entries.data(), entries.size(), static_cast<int>(next_deadline(full).count()));
    if (ready < 0) continue;  // interrupted by a signal
    if (entries[0].revents != 0) return;

    out_of_descriptors_ = false;
    for (size_t i = 0; i < clients_.size(); ++i) {
      Client& client = *clients_[i];
      const short events = entries[i + 2].revents;
      if (events & POLLOUT) client.flush();
      if (events & POLLIN) client.read();
      if ((events & (POLLERR | POLLHUP | POLLRDHUP | POLLNVAL)) && !(events & POLLIN)) client.lost = true;
    }
    for (const auto& client : clients_) {
      answer_all(*client);
      if (!client->trusted && (full ? client->grace : client->handshake).passed()) client->lost = true;
    }
    resolve_waiters();
    std::erase_if(clients_, [](const auto& client) { return client->lost; });
    if (entries[1].revents != 0) accept();
    client_count_ = static_cast<int>(clients_.size());
  }
}

void TcpStoreServer::accept() {
  try {
    for (size_t count = strangers(); count < limits_.strangers; ++count) {
      std::optional<Connection> connection = listener_.accept(Deadline(Milliseconds(0)));
      if (!connection) break;
      clients_.push_back(std::make_unique<Client>(std::move(*connection), limits_));
    }
  } catch (const CommError& error) {
    out_of_descriptors_ = true;  // serve() then accepts no connection in its next round
    if (!std::exchange(warned_, true)) std::fprintf(stderr, "gradus: [store] %s\n", error.what());
  }
}

size_t TcpStoreServer::strangers() const {
  return static_cast<size_t>(std::ranges::count_if(clients_, [](const auto& client) { return !client->trusted; }));
}

Milliseconds TcpStoreServer::next_deadline(bool full) const {
  Milliseconds next = out_of_descriptors_ ? kPauseWithoutDescriptors : Milliseconds(3'600'000);
  for (const auto& client : clients_) {
    if (!client->trusted) next = std::min(next, (full ? client->grace : client->handshake).left());
    if (client->waiter) next = std::min(next, client->waiter->deadline.left());
  }
  return next;
}

void TcpStoreServer::answer_all(Client& client) {
  try {
    while (!client.busy() && !client.lost) {
      const std::optional<Frame> frame = client.reader.next();
      if (!frame) break;
      if (client.trusted) answer(client, *frame);
      else check_proof(client, *frame);
    }
  } catch (const CommError&) {
    client.lost = true;  // it sends something else than requests
  }
}

void TcpStoreServer::answer(Client& client, const Frame& frame) {
  const StoreRequest request = StoreRequest::decode(frame);
  try {
    if (const std::optional<StoreAnswer> answer = table_.carry_out(request)) client.send(answer->encode(frame.id));
    else client.waiter = Client::Waiter{request, frame.id, Deadline(request.timeout)};
  } catch (const CommError& error) {
    client.send(StoreAnswer{.kind = StoreMessage::refused, .text = error.what()}.encode(frame.id));
  }
}

void TcpStoreServer::check_proof(Client& client, const Frame& frame) {
  GRADUS_CHECK(frame.type == static_cast<uint8_t>(StoreMessage::proof), CommError, "expected a proof of the token");
  PayloadReader payload(frame.payload);
  Digest number;
  const io::ByteSpan bytes = payload.bytes(sizeof number);
  std::copy(bytes.begin(), bytes.end(), number.begin());
  const io::ByteSpan proof = payload.bytes(sizeof(Digest));
  const auto refuse = [&](const std::string& why) {  // a client that is disconnected without an answer would try again
    client.send(StoreAnswer{.kind = StoreMessage::refused, .text = why}.encode(0));
    client.lost = true;
  };
  if (!same_digest(Handshake::client_proof(token_, kStorePurpose, client.challenge, number), proof))
    return refuse("its token is not that of the job");
  const size_t others = clients_.size() - strangers();
  if (others >= most_clients() && !(raise_descriptor_limit() && others < most_clients()))
    return refuse("it has " + std::to_string(others) + " clients, as many as its limit of " +
                  std::to_string(descriptor_limit()) + " descriptors allows (ulimit -n)");
  client.trusted = true;
  client.reader.set_payload_limit(
      static_cast<uint32_t>(std::min<size_t>(limits_.value_bytes * 2 + limits_.key_bytes * 64, 1u << 30)));
  const Digest ours = Handshake::server_proof(token_, kStorePurpose, client.challenge, number);
  client.send({static_cast<uint8_t>(StoreMessage::welcome), 0, PayloadWriter().bytes(ours).take()});
}

void TcpStoreServer::resolve_waiters() {
  for (const auto& client : clients_) {
    if (!client->waiter || client->lost) continue;
    const auto& [request, id, deadline] = *client->waiter;
    std::optional<StoreAnswer> answer = table_.carry_out(request);
    if (!answer && !deadline.passed()) continue;
    if (!answer) answer = StoreAnswer{.kind = StoreMessage::timed_out, .missing = table_.missing(request.keys)};
    const Frame frame = answer->encode(id);
    client->waiter.reset();
    client->send(frame);
  }
}

}  // namespace gradus::dist
