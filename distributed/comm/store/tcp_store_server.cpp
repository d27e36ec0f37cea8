#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/store/tcp_store.h>

namespace gradus::dist {
namespace {

/// The largest number of clients. The other descriptors are for strangers and for the rest of the process.
size_t most_clients() { return descriptor_limit() / 4 * 3; }

/// Bytes that a client may send before it has proved that it knows the token.
constexpr uint32_t kStrangerLimit = 2 * sizeof(Digest);
constexpr Milliseconds kPauseWithoutDescriptors{100};

Frame done(uint64_t id, int64_t number, std::string_view text = {}) {
  return {static_cast<uint8_t>(StoreMessage::done), id,
          PayloadWriter().number(static_cast<uint64_t>(number)).string(text).take()};
}

}  // namespace

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
    const std::optional<size_t> sent = connection.send_some(output);
    if (!sent) lost = true;
    else output.erase(output.begin(), output.begin() + static_cast<ptrdiff_t>(*sent));
  }
  /// Whether an answer is due or on its way. No request is read meanwhile, so a client can make the server hold only
  /// one request and one answer.
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
  const uint64_t one = 1;
  while (write(stop_.number(), &one, sizeof one) < 0 && errno == EINTR) {}
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
      if (events & POLLIN) read(client);
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
    out_of_descriptors_ = true;  // until a connected client leaves
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

void TcpStoreServer::read(Client& client) {
  std::byte chunk[1 << 14];
  const std::optional<size_t> got = client.connection.receive_some(chunk);
  if (!got) {
    client.lost = true;
    return;
  }
  client.reader.append({chunk, *got});
}

void TcpStoreServer::answer_all(Client& client) {
  try {
    while (!client.busy() && !client.lost) {
      const std::optional<Frame> frame = client.reader.next();
      if (!frame) break;
      answer(client, *frame);
    }
  } catch (const CommError&) {
    client.lost = true;  // not a client of this store
  }
}

void TcpStoreServer::answer(Client& client, const Frame& frame) {
  if (!client.trusted) return check_proof(client, frame);
  const StoreRequest request = StoreRequest::decode(frame);
  try {
    run(client, request, frame.id);
  } catch (const CommError& error) {
    client.send({static_cast<uint8_t>(StoreMessage::refused), frame.id, PayloadWriter().string(error.what()).take()});
  }
}

void TcpStoreServer::check_proof(Client& client, const Frame& frame) {
  GRADUS_CHECK(frame.type == static_cast<uint8_t>(StoreMessage::proof), CommError, "expected a proof of the token");
  PayloadReader payload(frame.payload);
  Digest number;
  const io::ByteSpan bytes = payload.bytes(sizeof number);
  std::copy(bytes.begin(), bytes.end(), number.begin());
  const io::ByteSpan proof = payload.bytes(sizeof(Digest));
  const auto refuse = [&](const std::string& why) {  // a client that is dropped without an answer would try again
    client.send({static_cast<uint8_t>(StoreMessage::refused), 0, PayloadWriter().string(why).take()});
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

void TcpStoreServer::run(Client& client, const StoreRequest& request, uint64_t id) {
  switch (request.kind) {
    case StoreMessage::set: table_.set(request.keys[0], request.value); return client.send(done(id, 0));
    case StoreMessage::get:
    case StoreMessage::wait:
      client.waiter = Client::Waiter{request, id, Deadline(request.timeout)};
      return;  // resolve_waiters() answers, perhaps at once
    case StoreMessage::check: return client.send(done(id, table_.missing(request.keys).empty()));
    case StoreMessage::add: return client.send(done(id, table_.add(request.keys[0], request.amount)));
    case StoreMessage::compare_set:
      return client.send(done(id, 0, table_.compare_set(request.keys[0], request.expected, request.value)));
    case StoreMessage::delete_key: return client.send(done(id, table_.erase(request.keys[0])));
    case StoreMessage::num_keys: return client.send(done(id, table_.size()));
    default: GRADUS_FAIL(CommError, "not a request");
  }
}

void TcpStoreServer::resolve_waiters() {
  for (const auto& client : clients_) {
    if (!client->waiter || client->lost) continue;
    const Client::Waiter& waiter = *client->waiter;
    const std::vector<std::string> missing = table_.missing(waiter.request.keys);
    if (!missing.empty() && !waiter.deadline.passed()) continue;
    Frame answer;
    if (missing.empty()) {
      const bool wants_value = waiter.request.kind == StoreMessage::get;
      answer = done(waiter.id, 0, wants_value ? *table_.find(waiter.request.keys[0]) : std::string());
    } else {
      PayloadWriter names;
      for (const std::string& key : missing) names.string(key);
      answer = {static_cast<uint8_t>(StoreMessage::timed_out), waiter.id, names.take()};
    }
    client->waiter.reset();
    client->send(answer);
  }
}

}  // namespace gradus::dist
