#include <gradus/tests/distributed/fault_proxy.h>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include <gradus/core/io/byte_order.h>
#include <gradus/distributed/comm/frame.h>

namespace gradus::test {

using namespace gradus::dist;

namespace {

constexpr size_t kHelloBytes = 96, kReplyBytes = 32 + 33;  // tcp_rendezvous.cpp
constexpr size_t kProofBytes = Frame::kHeaderBytes + 64, kWelcomeBytes = 2 * (Frame::kHeaderBytes + 32);  // store

size_t handshake_bytes(FaultProxy::Protocol protocol, bool upwards) {
  if (protocol == FaultProxy::Protocol::store) return upwards ? kProofBytes : kWelcomeBytes;
  return upwards ? kHelloBytes : kReplyBytes;
}

void reset(Connection& connection) {
  const linger at_once = {1, 0};
  setsockopt(connection.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  connection.close();
}

}  // namespace

FaultProxy::FaultProxy(const Address& target, Protocol protocol, const WireFault& fault)
    : target_(target), protocol_(protocol), fault_(fault), listener_({"127.0.0.1", 0}) {
  thread_ = std::thread([this] { serve(); });
}

FaultProxy::~FaultProxy() {
  stop_ = true;
  thread_.join();
}

void FaultProxy::serve() {
  while (!stop_) {
    std::vector<pollfd> entries = {{listener_.descriptor(), POLLIN, 0}};
    for (const Pair& pair : pairs_)
      for (const Pipe* pipe : {&pair.up, &pair.down}) {
        const bool writes = !pipe->waiting.empty();
        if (writes || !pipe->ended)
          entries.push_back(
              {(writes ? pipe->to : pipe->from)->descriptor(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
      }
    constexpr int kPollMs = 5;  // so that stop_ is noticed
    poll(entries.data(), entries.size(), kPollMs);
    while (std::optional<Connection> client = listener_.accept(Deadline(Milliseconds(0)))) {
      Pair& pair = pairs_.emplace_back();
      pair.client = std::move(*client);
      try {
        pair.server = Connection::open(target_, Deadline(Milliseconds(1000)));
      } catch (const CommError&) {  // the other side has ended meanwhile
        pairs_.pop_back();
        continue;
      }
      pair.up.from = pair.down.to = &pair.client;
      pair.up.to = pair.down.from = &pair.server;
    }
    std::erase_if(pairs_, [&](Pair& pair) { return !pump(pair, pair.up) || !pump(pair, pair.down); });
  }
}

bool FaultProxy::is_target(const Pair& pair, const Pipe& pipe) const {
  if (fault_.upwards != (&pipe == &pair.up)) return false;
  if (protocol_ == Protocol::store) return true;
  return pair.hello.size() == kHelloBytes && (pair.hello[6] == std::byte{1}) == fault_.on_control &&
         static_cast<int>(io::read_big_endian<uint32_t>(&pair.hello[8])) == fault_.from;
}

/// Moves the bytes that can be moved. Returns false when the connections have ended.
bool FaultProxy::pump(Pair& pair, Pipe& pipe) {
  std::byte chunk[1 << 14];
  if (pipe.waiting.empty() && !pipe.ended) {
    const std::optional<size_t> got = pipe.from->receive_some(chunk);
    io::Bytes bytes(chunk, chunk + got.value_or(0));
    pipe.ended = !got;
    if (&pipe == &pair.up && pair.hello.size() < kHelloBytes) {
      const size_t missing = std::min(kHelloBytes - pair.hello.size(), bytes.size());
      pair.hello.insert(pair.hello.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(missing));
    }
    const size_t begin = pipe.passed;
    pipe.passed += bytes.size();
    strike(pair, pipe, &bytes, begin);
    if (!pair.client) return false;
    pipe.waiting = std::move(bytes);
  }
  if (!pipe.waiting.empty()) {
    const bool alone = fault_.kind == WireFault::Kind::trickle && pipe.passed <= fault_.after;
    const size_t count = alone ? 1 : pipe.waiting.size();
    const std::optional<size_t> sent = pipe.to->send_some(io::ByteSpan(pipe.waiting).first(count));
    if (!sent) return false;
    pipe.waiting.erase(pipe.waiting.begin(), pipe.waiting.begin() + static_cast<ptrdiff_t>(*sent));
  }
  if ((pipe.ended || pipe.cut) && pipe.waiting.empty() && !std::exchange(pipe.told, true))
    shutdown(pipe.to->descriptor(), SHUT_WR);
  return !(pair.up.ended && pair.up.told && pair.down.ended && pair.down.told);
}

/// Applies the fault, if it is due, to bytes that begin at offset `begin` of their direction.
void FaultProxy::strike(Pair& pair, Pipe& pipe, io::Bytes* bytes, size_t begin) {
  if (fault_.kind == WireFault::Kind::none || fault_.kind == WireFault::Kind::trickle) return;
  const size_t place = handshake_bytes(protocol_, fault_.upwards) + fault_.after;
  if (!is_target(pair, pipe) || pipe.passed <= place) return;
  const size_t here = place - std::min(place, begin);
  if (fault_.kind == WireFault::Kind::flip && (begin > place || here >= bytes->size())) return;
  struck_ = true;
  switch (fault_.kind) {
    case WireFault::Kind::flip: (*bytes)[here] ^= static_cast<std::byte>(1 << fault_.bit); break;
    case WireFault::Kind::reset:
      reset(pair.client);
      reset(pair.server);
      break;
    case WireFault::Kind::half_close: pipe.cut = true; [[fallthrough]];
    default: bytes->resize(std::min(here, bytes->size()));
  }
}

dist::StoreAnswer ProxiedStore::ask(dist::StoreRequest request) {
  if (request.kind == dist::StoreMessage::set && request.keys[0] == "address/0") {
    proxy_ = std::make_unique<FaultProxy>(Address::parse(request.value), FaultProxy::Protocol::ranks, fault_);
    request.value = proxy_->address().str();
  }
  return store_.ask(std::move(request));
}

}  // namespace gradus::test
