// Stores: the table, the same behaviour in one process and over TCP, and how a server treats connections of strangers.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <thread>

#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>
#include <gradus/distributed/comm/store/store.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/processes.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;
using std::chrono::steady_clock;

namespace {

/// A store of each kind, with its server if it needs one.
struct AnyStore {
  std::unique_ptr<TcpStoreServer> server;
  std::unique_ptr<Store> store;
};

AnyStore make_store(const std::string& kind, const StoreLimits& limits = {}) {
  AnyStore any;
  if (kind == "hash") {
    any.store = std::make_unique<HashStore>(limits);
  } else {
    const Token token = Token::random();
    any.server = std::make_unique<TcpStoreServer>(Address{kind == "tcp4" ? "127.0.0.1" : "::1", 0}, token, limits);
    any.store = std::make_unique<TcpStore>(any.server->address(), token);
  }
  return any;
}

Milliseconds time_of(const std::function<void()>& body) {
  const auto begin = steady_clock::now();
  body();
  return std::chrono::duration_cast<Milliseconds>(steady_clock::now() - begin);
}

size_t open_descriptors() {
  DIR* directory = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

void eventually(const std::function<bool()>& condition) {
  const Deadline deadline(Milliseconds(5000));
  while (!condition() && !deadline.passed()) std::this_thread::sleep_for(Milliseconds(2));
  CHECK(condition());
}

io::Bytes random_bytes(uint64_t seed, size_t count) {
  io::Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(philox(seed, 0, i).word[0]);
  return bytes;
}

/// The header of a frame that announces a payload of this length, as any program that knows the protocol can make it.
io::Bytes frame_header(uint8_t type, uint32_t length) {
  io::Bytes bytes = Frame{type, 0, {}}.encode();
  io::write_big_endian(length, &bytes[16]);
  const io::ByteSpan span = bytes;
  io::write_big_endian(static_cast<uint16_t>(io::crc32c(span.subspan(8, 12), io::crc32c(span.first(6)))), &bytes[6]);
  return bytes;
}

size_t resident_bytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/// Sends bytes to a server without the handshake. Returns true if the server closes the connection within a second.
bool is_dropped(const Address& address, const io::Bytes& bytes) {
  const Deadline deadline(Milliseconds(1000));
  const Connection stranger = Connection::open(address, deadline);
  std::byte sink[256];
  for (size_t sent = 0; sent < bytes.size();) {
    const std::optional<size_t> taken = stranger.send_some(io::ByteSpan(bytes).subspan(sent));
    if (!taken) return true;
    sent += *taken;
    if (*taken == 0 && !wait_for(stranger.descriptor(), POLLOUT, deadline)) return false;
  }
  while (!deadline.passed()) {
    if (!stranger.receive_some(sink)) return true;
    std::this_thread::sleep_for(Milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("set, get, add, compare_set, check and delete", "[store]") {
  const auto kind = GENERATE(as<std::string>(), "hash", "tcp4", "tcp6");
  const AnyStore any = make_store(kind);
  Store& store = *any.store;

  store.set("a", "one");
  CHECK(store.get("a") == "one");
  store.set("a", std::string("\0two\xff", 5));
  CHECK(store.get("a") == std::string("\0two\xff", 5));
  store.set("empty", "");
  CHECK(store.get("empty") == "");

  CHECK(store.add("count", 5) == 5);
  CHECK(store.add("count", -7) == -2);
  CHECK(store.get("count") == "-2");
  CHECK_THROWS_WITH(store.add("a", 1), contains("'a' does not hold a number"));
  store.set("large", std::to_string(INT64_MAX));
  CHECK_THROWS_WITH(store.add("large", 1), contains("range of int64"));
  CHECK(store.get("large") == std::to_string(INT64_MAX));

  CHECK(store.compare_set("c", "", "first") == "first");
  CHECK(store.compare_set("c", "", "second") == "first");
  CHECK(store.compare_set("c", "first", "second") == "second");
  CHECK(store.compare_set("nothing", "x", "y") == "");
  CHECK_FALSE(store.check({"nothing"}));
  CHECK(store.check({"a", "c"}));
  CHECK_FALSE(store.check({"a", "z"}));
  CHECK(store.check({}));

  CHECK(store.num_keys() == 5);
  CHECK(store.delete_key("a"));
  CHECK_FALSE(store.delete_key("a"));
  CHECK(store.num_keys() == 4);
}

TEST_CASE("a wait ends when all keys are there, or names those that are missing", "[store]") {
  const auto kind = GENERATE(as<std::string>(), "hash", "tcp4");
  AnyStore any = make_store(kind);
  const std::unique_ptr<Store> other = kind == "hash" ? nullptr : dynamic_cast<TcpStore&>(*any.store).clone();
  Store& writer = other ? *other : *any.store;

  std::thread late([&] {
    std::this_thread::sleep_for(Milliseconds(30));
    writer.set("x", "1");
    std::this_thread::sleep_for(Milliseconds(30));
    writer.add("y", 2);
  });
  any.store->wait({"x", "y"});
  CHECK(any.store->get("y") == "2");
  late.join();

  const Milliseconds waited = time_of([&] {
    CHECK_THROWS_WITH(any.store->wait({"x", "z"}, Milliseconds(60)), contains("no process set 'z' within 60 ms"));
  });
  CHECK(waited >= Milliseconds(59));
  CHECK_THROWS_AS(any.store->get("z", Milliseconds(1)), CommError);
  CHECK_THROWS_WITH(any.store->wait({"u", "x", "v", "w"}, Milliseconds(1)),
                    contains("no process set 'u', 'v', 'w' within 1 ms"));
  any.store->set_timeout(Milliseconds(5));
  CHECK_THROWS_WITH(any.store->get("w"), contains("within 5 ms"));
  CHECK(any.store->get("x") == "1");                   // the store still works
  any.store->set("large", std::string(4 << 20, 'x'));  // a request may take longer than that timeout
  CHECK(any.store->check({"large"}));
}

TEST_CASE("a wait accepts the longest and the shortest timeout", "[store]") {
  const auto kind = GENERATE(as<std::string>(), "hash", "tcp4");
  AnyStore any = make_store(kind);
  const std::unique_ptr<Store> other = kind == "hash" ? nullptr : dynamic_cast<TcpStore&>(*any.store).clone();
  std::thread late([&] {
    std::this_thread::sleep_for(Milliseconds(50));
    (other ? *other : *any.store).set("x", "1");
  });
  any.store->set_timeout(Milliseconds::max());
  CHECK(any.store->get("x") == "1");
  late.join();
  for (const Milliseconds none : {Milliseconds(0), Milliseconds(-1), Milliseconds::min()})
    CHECK_THROWS_WITH(any.store->get("y", none), contains("no process set 'y'"));
  CHECK(any.store->get("x") == "1");
}

TEST_CASE("a prefix separates groups", "[store]") {
  const auto shared = std::make_shared<HashStore>();
  PrefixStore a("a", shared), b("b", shared);
  a.set("key", "1");
  CHECK_FALSE(b.check({"key"}));
  CHECK(b.compare_set("key", "", "2") == "2");
  CHECK(a.get("key") == "1");
  CHECK(shared->get("b/key") == "2");
  CHECK(a.add("n", 3) == 3);
  a.wait({"n", "key"});
  CHECK(a.delete_key("n"));
  CHECK(a.num_keys() == 2);
}

TEST_CASE("limits of keys, values and the whole store are errors only for the caller", "[store]") {
  const auto kind = GENERATE(as<std::string>(), "hash", "tcp4");
  StoreLimits limits;
  limits.key_bytes = 10, limits.value_bytes = 100, limits.total_bytes = 250;
  const AnyStore any = make_store(kind, limits);
  Store& store = *any.store;
  CHECK_THROWS_WITH(store.set(std::string(11, 'k'), "v"), contains("a key has 11 bytes"));
  CHECK_THROWS_WITH(store.set("k", std::string(101, 'v')), contains("has 101 bytes; at most 100"));
  store.set("a", std::string(100, 'v'));
  store.set("b", std::string(100, 'v'));
  CHECK_THROWS_WITH(store.set("c", std::string(100, 'v')), contains("it would hold 303 bytes"));
  store.set(std::string(10, 'k'), std::string(38, 'v'));  // the longest key, and not a byte is left
  CHECK_THROWS_WITH(store.add("n", 1), contains("it would hold 252 bytes with 'n'; at most 250"));
  CHECK_THROWS_WITH(store.compare_set("n", "", "x"), contains("it would hold 252 bytes"));
  CHECK(store.compare_set(std::string(10, 'k'), std::string(38, 'v'), "y") == "y");
  CHECK(store.delete_key(std::string(10, 'k')));
  store.set("a", "");  // removing a value makes room
  store.set("c", std::string(100, 'v'));
  CHECK(store.delete_key("b"));
  store.set("d", std::string(100, 'v'));
  CHECK(store.num_keys() == 3);
}

TEST_CASE("many clients increment one number", "[store]") {
  const Token token = Token::random();
  TcpStoreServer server({"localhost", 0}, token);
  constexpr int kThreads = 6, kRounds = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      TcpStore store(server.address(), token);
      for (int i = 0; i < kRounds; ++i) store.add("count", 1);
      store.add("ready", 1);
    });
  for (std::thread& thread : threads) thread.join();
  TcpStore store(server.address(), token);
  CHECK(store.get("count") == std::to_string(kThreads * kRounds));
  eventually([&] { return server.clients() == 1; });
}

TEST_CASE("a server that ends is an error for its clients, at once and from then on", "[store]") {
  auto server = std::make_unique<TcpStoreServer>();
  TcpStore store(server->address());
  store.set("a", "1");
  std::thread end([&] {
    std::this_thread::sleep_for(Milliseconds(30));
    server.reset();
  });
  CHECK_THROWS_WITH(store.get("b"), contains("closed the connection"));
  end.join();
  CHECK_THROWS_WITH(store.get("a"), contains("lost in an earlier call"));
}

TEST_CASE("no server, a taken port, an open address without a token, a name that does not resolve", "[store]") {
  const uint16_t port = find_free_port();
  CHECK_THROWS_WITH(TcpStore({"127.0.0.1", port}, {}, Milliseconds(60)), contains("cannot connect to 127.0.0.1:"));
  const TcpStoreServer server;
  CHECK_THROWS_WITH(TcpStoreServer(server.address()), contains("is taken"));
  CHECK_THROWS_WITH(TcpStoreServer({"0.0.0.0", 0}), contains("needs a token"));
  CHECK_THROWS_WITH(TcpStoreServer({"::", 0}), contains("needs a token"));
  CHECK_NOTHROW(TcpStoreServer({"0.0.0.0", 0}, Token::random()));
  CHECK_THROWS_WITH(TcpStoreServer({"no.such.host.invalid", 0}, Token::random()), contains("no.such.host.invalid"));
}

TEST_CASE("addresses are read and written with IPv4 and IPv6 literals", "[store]") {
  for (const char* text : {"127.0.0.1:80", "node-3.cluster:29500", "[::1]:65535", "[fe80::1%eth0]:1"})
    CHECK(Address::parse(text).str() == text);
  CHECK(Address::parse("[::1]:7").host == "::1");
  for (const char* text : {"", "host", ":80", "host:", "host:65536", "host:-1", "host:80x", "::1:80", "host: 80"})
    CHECK_THROWS_WITH(Address::parse(text), contains("is not an address"));
}

TEST_CASE("a wrong token is refused by the server, and by the client if the server has it", "[store]") {
  const Token token = Token::random();
  const TcpStoreServer server({"127.0.0.1", 0}, token);
  CHECK_THROWS_WITH(TcpStore(server.address(), Token::random()), contains("its token is not that of the job"));
  CHECK_THROWS_WITH(TcpStore(server.address()), contains("its token is not that of the job"));
  CHECK_NOTHROW(TcpStore(server.address(), token));
}

TEST_CASE("a recorded proof is useless later", "[store]") {
  const Token token = Token::random();
  const TcpStoreServer server({"127.0.0.1", 0}, token);
  const Deadline deadline(Milliseconds(2000));
  const auto read_frame = [&](const Connection& connection) {
    FrameReader reader(64);
    std::byte byte[1];
    while (true) {
      connection.receive(byte, deadline, "server");
      reader.append(byte);
      if (std::optional<Frame> frame = reader.next()) return *frame;
    }
  };
  const Connection honest = Connection::open(server.address(), deadline);
  Digest s, c = random_digest();
  const Frame challenge = read_frame(honest);
  std::copy(challenge.payload.begin(), challenge.payload.end(), s.begin());
  const Digest proof = Handshake::client_proof(token, kStorePurpose, s, c);
  const io::Bytes recorded =
      Frame{static_cast<uint8_t>(StoreMessage::proof), 0, PayloadWriter().bytes(c).bytes(proof).take()}.encode();
  honest.send(recorded, deadline, "server");
  CHECK(read_frame(honest).type == static_cast<uint8_t>(StoreMessage::welcome));
  CHECK(is_dropped(server.address(), recorded));

  // A proof is only accepted in the message that is due.
  for (const StoreMessage kind : {StoreMessage::set, StoreMessage::welcome}) {
    const Connection stranger = Connection::open(server.address(), deadline);
    const Frame another = read_frame(stranger);
    std::copy(another.payload.begin(), another.payload.end(), s.begin());
    const Digest right = Handshake::client_proof(token, kStorePurpose, s, c);
    const Frame frame{static_cast<uint8_t>(kind), 0, PayloadWriter().bytes(c).bytes(right).take()};
    stranger.send(frame.encode(), deadline, "server");
    CHECK_THROWS_WITH(read_frame(stranger), contains("closed the connection"));
  }
}

TEST_CASE("strangers are dropped without effect on other clients", "[store]") {
  const Token token = Token::random();
  StoreLimits limits;
  limits.handshake = Milliseconds(100);
  limits.strangers = 2;
  TcpStoreServer server({"127.0.0.1", 0}, token, limits);
  TcpStore store(server.address(), token);
  const size_t descriptors = open_descriptors();

  SECTION("garbage") { CHECK(is_dropped(server.address(), random_bytes(1, 100'000))); }
  SECTION("a request before the proof") {
    CHECK(is_dropped(server.address(), StoreRequest{StoreMessage::num_keys}.encode(1).encode()));
  }
  SECTION("huge lengths, for which no memory is reserved") {
    const size_t before = resident_bytes();
    for (int i = 0; i < 200; ++i) {
      io::Bytes bytes = frame_header(2, i % 2 == 0 ? 0xffff'ffffu : 65);
      bytes.resize(20'000);
      CHECK(is_dropped(server.address(), bytes));
    }
    CHECK(resident_bytes() < before + (32 << 20));
  }
  SECTION("another version") {
    io::Bytes frame = Frame{2, 0, io::Bytes(64)}.encode();
    frame[4] = std::byte{2};
    CHECK(is_dropped(server.address(), frame));
  }
  SECTION("silence") { CHECK(is_dropped(server.address(), {})); }
  SECTION("half a frame") {
    io::Bytes half = Frame{2, 0, io::Bytes(64)}.encode();
    half.resize(40);
    CHECK(is_dropped(server.address(), half));
  }
  SECTION("too many") {
    const Deadline deadline(Milliseconds(1000));
    const Connection a = Connection::open(server.address(), deadline), b = Connection::open(server.address(), deadline);
    eventually([&] { return server.clients() == 3; });
    CHECK_NOTHROW(TcpStore(server.address(), token));  // the server disconnects a stranger to make room
  }
  store.set("a", "1");
  CHECK(store.get("a") == "1");
  eventually([&] { return server.clients() == 1; });
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("silent strangers neither keep clients out nor use up the server's descriptors", "[store][processes]") {
  const Token token = Token::random();
  const Address address{"127.0.0.1", find_free_port()};
  constexpr int kDescriptors = 128, kStrangers = 150, kFiles = 32;
  FewDescriptors server(kDescriptors, kDescriptors, [&] {
    StoreLimits limits;
    limits.handshake = Milliseconds(60'000);  // too long to wait for
    TcpStoreServer server(address, token, limits);
    TcpStore store(address, token);
    store.wait({"besieged"});
    std::vector<FileDescriptor> files;
    for (int i = 0; i < kFiles; ++i) files.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    store.set("files", std::to_string(std::ranges::count_if(files, [](const auto& file) { return bool(file); })));
    store.wait({"end"});
  });
  std::vector<Connection> strangers;
  for (int i = 0; i < kStrangers; ++i) strangers.push_back(Connection::open(address, Deadline(Milliseconds(10'000))));
  TcpStore store(address, token, Milliseconds(10'000));
  store.set("besieged", "");
  CHECK(store.get("files") == std::to_string(kFiles));
  store.set("end", "");
  CHECK(server.succeeds());
}

TEST_CASE("a store takes as many clients as its descriptors allow, and tells others that it is full",
          "[store][processes]") {
  const Token token = Token::random();
  const Address address{"127.0.0.1", find_free_port()};
  FewDescriptors server(48, 160, [&] {  // the soft limit is raised when necessary
    const TcpStoreServer server(address, token);
    pause();
  });
  std::vector<std::unique_ptr<TcpStore>> clients;
  std::string error;
  while (error.empty()) try {
      clients.push_back(std::make_unique<TcpStore>(address, token, Milliseconds(10'000)));
    } catch (const CommError& refused) { error = refused.what(); }
  CHECK(clients.size() == 120);
  CHECK_THAT(error, contains("it has 120 clients, as many as its limit of 160 descriptors allows"));
  clients.pop_back();
  eventually([&] {
    try {
      return TcpStore(address, token, Milliseconds(1000)).num_keys() == 0;
    } catch (const CommError&) { return false; }  // the server has not noticed yet that a client has left
  });
}

TEST_CASE("clients that are dropped before the handshake try again", "[store]") {
  const Token token = Token::random();
  const Listener door({"127.0.0.1", 0});
  std::thread server([&] {
    for (int i = 0; i < 3; ++i) door.accept(Deadline(Milliseconds(5000)));  // and closes the connection
    const std::optional<Connection> last = door.accept(Deadline(Milliseconds(5000)));
    if (!last) return;
    Digest s = {};
    const Frame challenge{static_cast<uint8_t>(StoreMessage::challenge), 0, PayloadWriter().bytes(s).take()};
    last->send(challenge.encode(), Deadline(Milliseconds(5000)), "client");
    io::Bytes proof(Frame::kHeaderBytes + 64);
    last->receive(proof, Deadline(Milliseconds(5000)), "client");
    const Frame refusal{static_cast<uint8_t>(StoreMessage::refused), 0, PayloadWriter().string("the end").take()};
    last->send(refusal.encode(), Deadline(Milliseconds(5000)), "client");
  });
  CHECK_THROWS_WITH(TcpStore(door.address(), token), contains("did not accept this process: the end"));
  server.join();
}

namespace {

/// A server of one client that sends what `talk` says, with or without regard to what the client sends.
class ScriptedServer {
 public:
  explicit ScriptedServer(const std::function<void(ScriptedServer&)>& talk)
      : thread_([this, talk] {
          std::byte byte[64];
          try {
            connection_ = door_.accept(deadline_).value();
            talk(*this);
            while (true) connection_.receive(byte, deadline_, "client");
          } catch (const std::exception&) {}  // the client has gone
        }) {}
  ~ScriptedServer() { thread_.join(); }
  const Address& address() const { return door_.address(); }

  void send(uint8_t type, uint64_t id, const io::Bytes& payload) {
    connection_.send(Frame{type, id, payload}.encode(), deadline_, "client");
  }
  void send(StoreMessage kind, const io::Bytes& payload) { send(static_cast<uint8_t>(kind), 0, payload); }
  Frame receive() {
    std::byte byte[1];
    while (true) {
      if (std::optional<Frame> frame = reader_.next()) return *frame;
      connection_.receive(byte, deadline_, "client");
      reader_.append(byte);
    }
  }
  /// The handshake of a server that knows `token`.
  void welcome(const Token& token) {
    const Digest s = random_digest();
    send(StoreMessage::challenge, PayloadWriter().bytes(s).take());
    Digest c;
    std::copy_n(receive().payload.begin(), c.size(), c.begin());
    const Digest proof = Handshake::server_proof(token, kStorePurpose, s, c);
    send(StoreMessage::welcome, PayloadWriter().bytes(proof).take());
  }

 private:
  const Deadline deadline_{Milliseconds(5000)};
  const Listener door_{{"127.0.0.1", 0}};
  Connection connection_;
  FrameReader reader_{1 << 16};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a client refuses a server whose handshake is not that of a store", "[store]") {
  const Token token = Token::random();
  const auto error_of = [&](const std::function<void(ScriptedServer&)>& talk) -> std::string {
    ScriptedServer server(talk);
    try {
      TcpStore(server.address(), token, Milliseconds(5000));
    } catch (const CommError& error) { return error.what(); }
    return "";
  };
  const std::string no_store = " does not answer with the handshake of a store";
  for (const StoreMessage kind : {StoreMessage::proof, StoreMessage::welcome, StoreMessage::done})
    CHECK_THAT(error_of([&](ScriptedServer& server) { server.send(kind, io::Bytes(32)); }), contains(no_store));
  for (const size_t bytes : {0, 31, 33, 64})
    CHECK_THAT(error_of([&](ScriptedServer& server) { server.send(StoreMessage::challenge, io::Bytes(bytes)); }),
               contains(no_store));
  for (const StoreMessage kind : {StoreMessage::challenge, StoreMessage::done})  // instead of a welcome
    CHECK_THAT(error_of([&](ScriptedServer& server) {
                 server.send(StoreMessage::challenge, io::Bytes(32));
                 server.receive();
                 server.send(kind, io::Bytes(32));
               }),
               contains(no_store));
  CHECK_THAT(error_of([&](ScriptedServer& server) { server.welcome(Token::random()); }),
             contains(" does not know the token of this job"));
  CHECK_THAT(error_of([&](ScriptedServer& server) {
               server.send(StoreMessage::refused, PayloadWriter().string("it is full").take());
             }),
             contains("[store] the server at 127.0.0.1:") && contains(" did not accept this process: it is full"));
  CHECK(error_of([&](ScriptedServer& server) { server.welcome(token); }) == "");
}

TEST_CASE("after an answer that it cannot use a client is lost, and after a refusal it is not", "[store]") {
  const Token token = Token::random();
  const auto errors_of = [&](const std::function<void(ScriptedServer&, const Frame& request)>& answer) {
    ScriptedServer server([&](ScriptedServer& own) {
      own.welcome(token);
      for (int i = 0; i < 2; ++i) answer(own, own.receive());
    });
    TcpStore store(server.address(), token, Milliseconds(5000));
    std::vector<std::string> errors;
    for (int i = 0; i < 2; ++i) try {
        if (store.add("key", 1) != 7) errors.emplace_back("a wrong number");
      } catch (const CommError& error) { errors.emplace_back(error.what()); }
    return errors;
  };
  const Frame done = StoreAnswer{.number = 7}.encode(0);
  CHECK(errors_of([&](ScriptedServer& server, const Frame& request) {
          server.send(done.type, request.id, done.payload);
        }).empty());
  const auto lost = [&](const std::vector<std::string>& errors, const std::string& first) {
    REQUIRE(errors.size() == 2);
    CHECK_THAT(errors[0], contains(first));
    CHECK_THAT(errors[1], contains("[store] the server at 127.0.0.1:") && contains(" was lost in an earlier call"));
  };
  lost(errors_of(
           [&](ScriptedServer& server, const Frame& request) { server.send(done.type, request.id + 1, done.payload); }),
       " answers request 2 instead of 1");
  lost(errors_of([&](ScriptedServer& server, const Frame& request) {
         server.send(static_cast<uint8_t>(StoreMessage::set), request.id, done.payload);
       }),
       " is not an answer of a store");
  lost(errors_of([&](ScriptedServer& server, const Frame& request) { server.send(done.type, request.id, {}); }),
       " bytes too early");
  const Frame refused = StoreAnswer{.kind = StoreMessage::refused, .text = "not now"}.encode(0);
  CHECK(errors_of([&](ScriptedServer& server, const Frame& request) {
          server.send(refused.type, request.id, refused.payload);
        }) == std::vector<std::string>{"not now", "not now"});
}

namespace {

/// A client that sends frames whether or not earlier ones have been answered.
struct RawClient {
  Connection connection;
  FrameReader reader{1 << 26};
  Deadline deadline{Milliseconds(10'000)};

  explicit RawClient(const Address& server) : connection(Connection::open(server, deadline)) {
    Digest s, c = random_digest();
    std::copy_n(receive().payload.begin(), s.size(), s.begin());
    const Digest proof = Handshake::client_proof({}, kStorePurpose, s, c);
    send({{static_cast<uint8_t>(StoreMessage::proof), 0, PayloadWriter().bytes(c).bytes(proof).take()}});
    receive();
  }
  void send(const std::vector<Frame>& frames) const {
    io::Bytes bytes;
    for (const Frame& frame : frames) {
      const io::Bytes encoded = frame.encode();
      bytes.insert(bytes.end(), encoded.begin(), encoded.end());
    }
    connection.send(bytes, deadline, "server");
  }
  Frame receive() {
    std::byte chunk[1 << 12];
    while (true) {
      if (std::optional<Frame> frame = reader.next()) return *frame;
      if (!wait_for(connection.descriptor(), POLLIN, deadline)) throw CommError("no answer");
      const std::optional<size_t> got = connection.receive_some(chunk);
      if (!got) throw CommError("closed");
      reader.append({chunk, *got});
    }
  }
};

}  // namespace

TEST_CASE("requests that arrive together are answered one after the other", "[store]") {
  TcpStoreServer server;
  RawClient client(server.address());
  TcpStore other(server.address());
  using enum StoreMessage;
  const auto next = [&](uint64_t id) {
    const Frame frame = client.receive();
    CHECK(frame.id == id);
    return StoreAnswer::decode(frame);
  };
  client.send({StoreRequest{.kind = set, .keys = {"a"}, .value = "1"}.encode(1),
               StoreRequest{.kind = add, .keys = {"a"}, .amount = 5}.encode(2),
               StoreRequest{.kind = set, .keys = {std::string(2000, 'k')}, .value = "1"}.encode(3),
               StoreRequest{.kind = get, .keys = {"b"}, .timeout = Milliseconds(5000)}.encode(4)});
  next(1);
  CHECK(next(2).number == 6);
  const StoreAnswer refusal = next(3);
  CHECK(refusal.kind == refused);
  CHECK_THAT(refusal.text, contains("a key has 2000 bytes; at most 1024"));
  CHECK(other.get("a") == "6");
  other.set("b", "2");
  CHECK(next(4).text == "2");
  client.send({StoreRequest{.kind = check, .keys = {"a", "b"}}.encode(5),
               StoreRequest{.kind = wait, .keys = {"a", "c", "d"}, .timeout = Milliseconds(1)}.encode(6)});
  CHECK(next(5).number == 1);
  const StoreAnswer late = next(6);
  CHECK((late.kind == timed_out && late.missing == std::vector<std::string>{"c", "d"}));
  // A request waits for the answer to the one before it, also while that answer is being sent.
  client.send({StoreRequest{.kind = get, .keys = {"large"}, .timeout = Milliseconds(5000)}.encode(7),
               StoreRequest{.kind = check, .keys = {"large"}}.encode(8)});
  const std::string large(4 << 20, 'x');
  other.set("large", large);
  CHECK(next(7).text == large);
  CHECK(next(8).number == 1);
}

TEST_CASE("clients that leave while they wait or are being answered are dropped", "[store]") {
  TcpStoreServer server;
  TcpStore store(server.address());
  const bool resets = GENERATE(false, true);
  const auto leaving = GENERATE(as<std::string>(), "while it waits", "before its answers", "after a wrong frame");
  CAPTURE(resets, leaving);
  store.set("large", std::string(4 << 20, 'x'));
  {
    const RawClient client(server.address());
    eventually([&] { return server.clients() == 2; });
    if (resets) {
      const linger at_once = {1, 0};
      setsockopt(client.connection.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    const StoreRequest get = {.kind = StoreMessage::get, .keys = {"large"}};
    if (leaving == "while it waits")
      client.send({StoreRequest{.kind = StoreMessage::wait, .keys = {"never"}, .timeout = kLongestWait}.encode(1)});
    else if (leaving == "before its answers") client.send({get.encode(1), get.encode(2), get.encode(3)});
    else client.send({Frame{static_cast<uint8_t>(StoreMessage::done), 1, {}}});
  }
  eventually([&] { return server.clients() == 1; });
  CHECK(store.get("large").size() == 4 << 20);
}

TEST_CASE("frames are read from pieces of any size, and damaged ones are errors", "[store]") {
  const Frame frame{7, 0x0123456789abcdefu, random_bytes(2, 300)};
  const io::Bytes bytes = frame.encode();
  const size_t piece = GENERATE(1u, 2u, 23u, 24u, 25u, 324u, 1000u);
  FrameReader reader(300);
  int frames = 0;
  io::Bytes two = bytes;
  two.insert(two.end(), bytes.begin(), bytes.end());
  for (size_t i = 0; i < two.size(); i += piece) {
    reader.append(io::ByteSpan(two).subspan(i, std::min(piece, two.size() - i)));
    while (const std::optional<Frame> got = reader.next()) {
      CHECK((got->type == frame.type && got->id == frame.id && got->payload == frame.payload));
      ++frames;
    }
  }
  CHECK(frames == 2);
  FrameReader none(64);  // a length beyond the limit is an error as soon as it has been read
  none.append(frame_header(7, 65));
  CHECK_THROWS_WITH(none.next(), contains("announces 65 bytes; at most 64"));
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 7) {
    io::Bytes damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    FrameReader one(301);
    one.append(damaged);
    CHECK_THROWS_AS(one.next(), CommError);
  }
}

TEST_CASE("a token is read only from a file that no other user can read", "[token]") {
  const Token token = Token::random();
  CHECK(token.hex().size() == 64);
  CHECK(Token::random().hex() != token.hex());
  const std::string path = "/tmp/gradus-token-" + std::to_string(getpid());
  io::write_file(path, token.hex() + "\n");
  chmod(path.c_str(), 0644);
  CHECK_THROWS_WITH(Token::from_file(path), contains("is open to others"));
  chmod(path.c_str(), 0600);
  CHECK(Token::from_file(path).hex() == token.hex());
  io::write_file(path, token.hex().substr(1));
  chmod(path.c_str(), 0600);
  CHECK_THROWS_WITH(Token::from_file(path), contains("64 hexadecimal digits"));
  io::write_file(path, token.hex() + token.hex());
  chmod(path.c_str(), 0600);
  CHECK_THROWS_WITH(Token::from_file(path), contains("64 hexadecimal digits"));
  std::remove(path.c_str());
  CHECK_THROWS_WITH(Token::from_file(path), contains("cannot open"));
  CHECK_THROWS_WITH(Token::from_file("/dev/null"), contains("not a regular file"));
}

TEST_CASE("HMAC-SHA256 as in RFC 4231, test case 3", "[token]") {
  Digest key = {};  // shorter keys are padded with zeros
  for (size_t i = 0; i < 20; ++i) key[i] = std::byte{0xaa};
  const io::Bytes data(50, std::byte{0xdd});
  const Digest digest = hmac_sha256(key, {io::ByteSpan(data).first(13), io::ByteSpan(data).subspan(13)});
  CHECK(digest[0] == std::byte{0x77});
  CHECK(digest[1] == std::byte{0x3e});
  CHECK(digest[31] == std::byte{0xfe});
}
