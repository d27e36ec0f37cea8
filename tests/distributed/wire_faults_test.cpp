// Faults of a network, made by a proxy. Each collective either gives the right result or soon throws.
#include <gradus/core/io/byte_order.h>
#include <gradus/core/runtime/random.h>
#include <gradus/distributed/comm/store/store.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/fault_proxy.h>
#include <gradus/tests/distributed/processes.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;
using std::chrono::steady_clock;
using Kind = WireFault::Kind;

namespace {

/// Computes sums of several sizes and sends messages. Throws an Error if a result is wrong.
void communicate(ProcessGroup& group, int rounds, int64_t most) {
  const int n = group.size();
  for (int64_t i = 0; i < rounds; ++i) {
    const Array x = Array::empty({1 + i * 7919 % most}, DType::f32);
    std::fill_n(x.data<float>(), x.numel(), static_cast<float>(group.rank() + i));
    group.all_reduce(x);
    const auto expected = static_cast<float>(n * (n - 1) / 2 + n * i);
    for (int64_t k = 0; k < x.numel(); ++k)
      if (x.data<float>()[k] != expected) throw ValueError("a wrong sum");
    if (group.rank() == 1) group.send(x, 0);
    if (group.rank() == 0) group.recv(x, 1);
  }
}

size_t random_below(uint64_t seed, uint64_t index, size_t end) { return philox(seed, index, 0).word[0] % end; }

/// The hello that rank 1 of two sends to rank 0 on one of its connections after the challenge `s`.
io::Bytes hello_of_rank_1(const Token& token, const Digest& s, uint8_t channel = 0) {
  io::Bytes bytes(96);
  io::write_big_endian(uint32_t{0x47524448}, &bytes[0]);
  bytes[4] = std::byte{1};
  bytes[5] = std::byte{std::endian::native == std::endian::big};
  bytes[6] = std::byte{channel};
  io::write_big_endian(uint32_t{1}, &bytes[8]);
  io::write_big_endian(uint32_t{2}, &bytes[12]);
  const Digest c = random_digest();
  const Digest proof = Handshake::client_proof(token, "ranks 1 0 epoch 0 channel " + std::to_string(channel), s, c);
  std::copy(c.begin(), c.end(), bytes.begin() + 32);
  std::copy(proof.begin(), proof.end(), bytes.begin() + 64);
  return bytes;
}

/// Connects to a rank, which has sent its challenge and received the answer when this returns.
Connection knock(const Address& address, const std::function<io::Bytes(const Digest&)>& answer,
                 const Deadline& deadline) {
  Connection connection = Connection::open(address, deadline);
  Digest challenge;
  connection.receive(challenge, deadline, "rank 0");
  connection.send(answer(challenge), deadline, "rank 0");
  return connection;
}

/// Returns true if the rank closes the connection, with or without an error message.
bool is_turned_away(const Address& address, const std::function<io::Bytes(const Digest&)>& answer) {
  const Deadline deadline(Milliseconds(3000));
  const Connection stranger = knock(address, answer, deadline);
  std::byte reply[33];
  while (!deadline.passed()) {
    const std::optional<size_t> got = stranger.receive_some(reply);
    if (!got) return true;
    if (*got > 0 && reply[0] != std::byte{2}) return false;
    std::this_thread::sleep_for(Milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("bytes that arrive one at a time change nothing", "[faults]") {
  const Outcome outcome = run_through_proxy(3, {.kind = Kind::trickle, .after = 100'000},
                                            [](ProcessGroup& group) { communicate(group, 6, 400); });
  for (const RankResult& rank : outcome.ranks) CHECK(rank.error == "");
}

TEST_CASE("a rank that waits for another notices a call that disagrees, also if its bytes arrive one at a time",
          "[faults]") {
  const WireFault fault{.kind = Kind::trickle, .after = 100'000};
  const Outcome outcome = run_through_proxy(3, fault, [](ProcessGroup& group) {
    const Array x = Array::empty({10}, DType::f32);
    // Rank 2 waits for rank 0, which waits for rank 1, which waits for rank 2.
    if (group.rank() == 1) group.recv(x, 2);
    else group.broadcast(x, group.rank() == 0 ? 1 : 0);
  });
  for (const RankResult& rank : outcome.ranks) {
    CHECK(rank.status.failure == CommFailure::mismatch);
    CHECK(rank.status.rank == 2);
    CHECK_THAT(rank.error, contains("rank 2 called broadcast #1 (10 float32, root 0), rank 0 called broadcast #1"));
  }
}

TEST_CASE("a connection that is reset or half closed ends the group at once, on all ranks", "[faults]") {
  const Kind kind = GENERATE(Kind::reset, Kind::half_close);
  const bool upwards = GENERATE(true, false);
  const auto after = GENERATE(as<size_t>(), 0, 63, 64, 3000, 100'003);
  CAPTURE(static_cast<int>(kind), upwards, after);
  const WireFault fault{.kind = kind, .from = 2, .upwards = upwards, .after = after};
  const Outcome outcome = run_through_proxy(3, fault, [](ProcessGroup& group) { communicate(group, 1000, 9000); });
  CHECK(outcome.struck);
  for (const RankResult& rank : outcome.ranks) {
    CHECK(rank.status.failure == CommFailure::peer_lost);
    CHECK((rank.status.rank == 0 || rank.status.rank == 2));
    CHECK_THAT(rank.error, contains("was lost: its connection was closed"));
  }
}

TEST_CASE("a control connection that ends instead of announcing a failure is a failure", "[faults]") {
  const Kind kind = GENERATE(Kind::reset, Kind::half_close);
  const bool upwards = GENERATE(true, false);
  CAPTURE(static_cast<int>(kind), upwards);
  const int speaker = upwards ? 1 : 0;
  const WireFault fault{.kind = kind, .on_control = true, .upwards = upwards};
  const Outcome outcome = run_through_proxy(3, fault, [&](ProcessGroup& group) {
    communicate(group, 20, 9000);
    if (group.rank() == speaker) group.abort("enough");
    communicate(group, 1000, 9000);
  });
  CHECK(outcome.struck);
  for (const RankResult& rank : outcome.ranks) {
    CHECK((rank.status.failure == CommFailure::peer_lost || rank.status.failure == CommFailure::aborted));
    CHECK(rank.status.rank == speaker);
  }
}

TEST_CASE("a rank that only receives or only sends notices the end of a control connection", "[faults]") {
  const Kind kind = GENERATE(Kind::reset, Kind::half_close);
  const bool sends = GENERATE(false, true);
  CAPTURE(static_cast<int>(kind), sends);
  std::atomic<bool> ended = false;
  const Outcome outcome = run_through_proxy(2, {.kind = kind, .on_control = true}, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      group.abort("enough");
      for (const Deadline patience(Milliseconds(5000)); !ended && !patience.passed();)
        std::this_thread::sleep_for(Milliseconds(1));  // keeps the connections of messages open
      return;
    }
    try {
      if (sends) group.send(Array::empty({8 << 20}, DType::f32), 1);  // more than the connection takes
      else group.recv(Array::empty({10}, DType::f32), 1);
    } catch (...) {
      ended = true;
      throw;
    }
  });
  CHECK(outcome.struck);
  CHECK(outcome.ranks[0].status.failure == CommFailure::peer_lost);  // and no timeout
  CHECK(outcome.ranks[0].status.rank == 1);
  CHECK_THAT(outcome.ranks[0].error, contains("rank 1 was lost: its connection was closed"));
}

TEST_CASE("bits that flip on the wire are an error on all ranks", "[faults]") {
  const bool upwards = GENERATE(true, false);
  const uint64_t number = GENERATE(range(0, 14));
  // In the first header, in the first body, and at a random place.
  const size_t after = number < 5    ? random_below(1, number, 64)
                       : number < 10 ? 64 + random_below(2, number, 1000)
                                     : random_below(3, number, 100'000);
  const WireFault fault{
      .kind = Kind::flip, .from = 2, .upwards = upwards, .after = after, .bit = static_cast<int>(number % 8)};
  CAPTURE(upwards, after, fault.bit);
  const Outcome outcome = run_through_proxy(3, fault, [](ProcessGroup& group) { communicate(group, 1000, 9000); },
                                            {.timeout = Milliseconds(10'000), .checksum = true});
  CHECK(outcome.struck);
  for (const RankResult& rank : outcome.ranks) {
    CHECK(rank.status.failure == CommFailure::peer_lost);
    CHECK(rank.status.rank == (upwards ? 2 : 0));
    CHECK_THAT(rank.error, contains("damaged"));
  }
}

TEST_CASE("bits that flip in the announcement of a failure do not hide it", "[faults]") {
  const auto after = GENERATE(range(0, 80, 5));
  const WireFault fault{.kind = Kind::flip, .on_control = true, .after = static_cast<size_t>(after), .bit = after % 8};
  CAPTURE(after, fault.bit);
  const Outcome outcome = run_through_proxy(2, fault, [](ProcessGroup& group) {
    const Array x = Array::empty({1000}, DType::f32);
    if (group.rank() == 0) group.recv(x, 1);
    group.abort("the cause of it");
    group.barrier();
  });
  CHECK(outcome.struck);
  CHECK(outcome.ranks[1].status.failure == CommFailure::aborted);
  CHECK(outcome.ranks[0].status.failure == CommFailure::peer_lost);
  CHECK(outcome.ranks[0].status.rank == 1);
}

TEST_CASE("bytes that are lost without an error are noticed at the deadline", "[faults]") {
  const auto after = GENERATE(as<size_t>(), 0, 20, 3000);
  const WireFault fault{.kind = Kind::swallow, .after = after};
  const Outcome outcome = run_through_proxy(3, fault, [](ProcessGroup& group) { communicate(group, 1000, 9000); },
                                            {.timeout = Milliseconds(300)});
  CHECK(outcome.struck);
  for (const RankResult& rank : outcome.ranks) {
    CHECK(rank.status.failure == CommFailure::timeout);
    CHECK((rank.status.rank == 0 || rank.status.rank == 1));  // one end
    CHECK_THAT(rank.error, contains("waited 300 ms for rank"));
  }
}

TEST_CASE("a store in a bad network gives the right value or an error", "[faults]") {
  const Kind kind = GENERATE(Kind::trickle, Kind::flip, Kind::reset, Kind::half_close);
  const bool upwards = GENERATE(true, false);
  const uint64_t number = GENERATE(range(0, 6));
  const WireFault fault{.kind = kind,
                        .upwards = upwards,
                        .after = kind == Kind::trickle ? 100'000 : random_below(4, number, number < 3 ? 24 : 3000),
                        .bit = static_cast<int>(number)};
  CAPTURE(static_cast<int>(kind), upwards, fault.after);
  const Token token = Token::random();
  const TcpStoreServer server({"127.0.0.1", 0}, token);
  const FaultProxy proxy(server.address(), FaultProxy::Protocol::store, fault);
  std::string error;
  try {
    TcpStore store(proxy.address(), token);
    for (int i = 0; i < (kind == Kind::trickle ? 20 : 40); ++i) {
      const std::string key = "key" + std::to_string(i), value(static_cast<size_t>(i), static_cast<char>('a' + i % 26));
      store.set(key, value);
      if (store.get(key) != value) throw ValueError("a wrong value");
      if (store.add("count", 1) != i + 1) throw ValueError("a wrong count");
    }
  } catch (const CommError& caught) { error = caught.what(); }
  CHECK((proxy.has_struck() || kind == Kind::trickle));
  if (kind == Kind::trickle) CHECK(error == "");
  else if (kind == Kind::flip)
    CHECK_THAT(error, contains(upwards ? "closed the connection" : "damaged") || contains("not a frame") ||
                          contains("version"));
  else CHECK_THAT(error, contains("closed the connection"));
  TcpStore other(server.address(), token);  // the server still works
  other.set("after", "1");
  CHECK(other.get("after") == "1");
}

TEST_CASE("strangers that connect to a rank are dropped and delay no rank", "[faults]") {
  const Token token = Token::random();
  const TcpOptions options{.token = token, .timeout = Milliseconds(5000)};
  HashStore store;
  std::vector<std::string> errors(2);
  const auto meet = [&](int rank) {
    try {
      TcpGroup group(store, rank, 2, options);
      communicate(group, 3, 1000);
    } catch (const std::exception& error) { errors[static_cast<size_t>(rank)] = error.what(); }
  };
  std::thread first(meet, 0);
  const Address address = Address::parse(store.get("address/0"));
  CHECK(is_turned_away(address, [](const Digest&) { return io::Bytes(96, std::byte{0x5a}); }));
  CHECK(is_turned_away(address, [](const Digest& s) { return hello_of_rank_1(Token::random(), s); }));
  CHECK(is_turned_away(address, [](const Digest& s) { return hello_of_rank_1({}, s); }));
  const Connection silent = Connection::open(address, Deadline(Milliseconds(3000)));
  std::thread second(meet, 1);
  first.join();
  second.join();
  CHECK(errors[0] == "");
  CHECK(errors[1] == "");
}

TEST_CASE("more strangers connect to a rank than it has descriptors", "[faults][processes]") {
  constexpr int kDescriptors = 128, kStrangers = 150;
  const Token token = Token::random();
  const TcpOptions options{.token = token, .timeout = Milliseconds(20'000)};
  const TcpStoreServer server({"127.0.0.1", 0}, token);
  const auto meet = [&](int rank) {
    TcpStore store(server.address(), token);
    TcpGroup group(store, rank, 2, options);
    communicate(group, 3, 1000);
  };
  FewDescriptors rank_0(kDescriptors, kDescriptors, [&] { meet(0); });
  TcpStore store(server.address(), token);
  const Address address = Address::parse(store.get("address/0"));
  std::vector<Connection> strangers;
  for (int i = 0; i < kStrangers; ++i) strangers.push_back(Connection::open(address, Deadline(Milliseconds(10'000))));
  CHECK_NOTHROW(meet(1));
  CHECK(rank_0.succeeds());
}

TEST_CASE("strangers that leave at once take no places of others", "[faults][processes]") {
  constexpr int kDescriptors = 128, kStrangers = 600;  // silent ones would keep 16 at a time out for 200 ms
  const Token token = Token::random();
  const TcpStoreServer server({"127.0.0.1", 0}, token);
  const auto meet = [&](int rank) {
    TcpStore store(server.address(), token);
    TcpGroup group(store, rank, 2, {.token = token, .timeout = Milliseconds(20'000)});
    communicate(group, 3, 1000);
  };
  FewDescriptors rank_0(kDescriptors, kDescriptors, [&] { meet(0); });
  TcpStore store(server.address(), token);
  const Address address = Address::parse(store.get("address/0"));
  const auto begin = steady_clock::now();
  for (int i = 0; i < kStrangers; ++i) Connection::open(address, Deadline(Milliseconds(10'000)));
  CHECK_NOTHROW(meet(1));
  CHECK(steady_clock::now() - begin < std::chrono::seconds(4));
  CHECK(rank_0.succeeds());
}

TEST_CASE("ranks that have another token or number of ranks are refused at once", "[faults]") {
  const Token token = Token::random();
  HashStore store;
  std::string error;
  std::thread rank_0([&] {
    try {
      const TcpGroup group(store, 0, 2, {.token = token, .timeout = Milliseconds(3000)});
    } catch (const CommError& late) { error = late.what(); }
  });
  const Milliseconds timeout(60'000);
  const auto refused = contains("refused rank 1: do both have the same token and number of ranks?");
  CHECK_THROWS_WITH(TcpGroup(store, 1, 2, {.token = Token::random(), .timeout = timeout}), refused);
  CHECK_THROWS_WITH(TcpGroup(store, 1, 3, {.token = token, .timeout = timeout}), refused);
  rank_0.join();
  CHECK_THAT(error, contains("which did not connect: 1"));
}

TEST_CASE("a rank turns away a peer with the right token if any part of its hello is wrong", "[faults]") {
  const Token token = Token::random();
  HashStore store;
  std::string error;
  std::thread rank_0([&] {
    try {
      const TcpGroup group(store, 0, 2, {.token = token, .timeout = Milliseconds(10'000)});
    } catch (const CommError& late) { error = late.what(); }
  });
  const Address address = Address::parse(store.get("address/0"));
  // The magic, the version, the channel, the rank, the number of ranks, the epoch, the number c and the proof.
  for (const size_t at : {0, 1, 2, 3, 4, 8, 11, 12, 15, 16, 19, 32, 63, 64, 95})
    for (const int difference : {1, 2}) {
      CAPTURE(at, difference);
      CHECK(is_turned_away(address, [&, at = at, difference = difference](const Digest& s) {
        io::Bytes hello = hello_of_rank_1(token, s);
        hello[at] ^= static_cast<std::byte>(difference);
        return hello;
      }));
    }
  for (const uint8_t channel : {3, 255})
    CHECK(is_turned_away(address,
                         [&, channel = channel](const Digest& s) { return hello_of_rank_1(token, s, channel); }));
  CHECK_NOTHROW(TcpGroup(store, 1, 2, {.token = token, .timeout = Milliseconds(10'000)}));
  rank_0.join();
  CHECK(error == "");
}

TEST_CASE("a rank accepts a peer with the right token, and a recorded handshake is useless elsewhere", "[faults]") {
  const Token token = Token::random();
  std::vector<io::Bytes> recorded;
  for (const bool again : {false, true}) {
    HashStore store;
    std::string error;
    std::thread rank_0([&] {
      try {
        const TcpGroup group(store, 0, 2, {.token = token, .timeout = Milliseconds(5000)});
      } catch (const std::exception& cause) { error = cause.what(); }
    });
    const Address address = Address::parse(store.get("address/0"));
    for (const io::Bytes& bytes : recorded) CHECK(is_turned_away(address, [&](const Digest&) { return bytes; }));
    std::vector<Connection> connections;
    for (const uint8_t channel : {0, 1, 2}) {
      const Deadline deadline(Milliseconds(3000));
      connections.push_back(knock(
          address, [&](const Digest& s) { return recorded.emplace_back(hello_of_rank_1(token, s, channel)); },
          deadline));
      std::byte reply[33];
      CHECK_NOTHROW(connections.back().receive(reply, deadline, "rank 0"));
    }
    rank_0.join();
    CHECK(error == "");
    CHECK(recorded.size() == (again ? 6 : 3));
  }
}
