// The bytes of messages and frames, the texts of failures, and how arrays are divided, without any network.
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>
#include <gradus/distributed/comm/descriptor.h>
#include <gradus/distributed/comm/frame.h>
#include <gradus/distributed/comm/reduce.h>
#include <gradus/distributed/comm/store/store.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/ranks.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

const Descriptor kCall = {.epoch = 0x01020304,
                          .sequence = 0x0506070809,
                          .kind = CollectiveKind::reduce,
                          .reduce = ReduceKind::max,
                          .dtype = DType::f64,
                          .strict = true,
                          .root = 5,
                          .count = 0x0a0b0c0d0e};

using HeaderBytes = std::array<std::byte, MessageHeader::kBytes>;

/// The header with one byte changed and a checksum that is right again.
HeaderBytes changed(HeaderBytes bytes, size_t at, uint8_t value) {
  bytes[at] = std::byte{value};
  io::write_big_endian(io::crc32c(io::ByteSpan(bytes).first(60)), &bytes[60]);
  return bytes;
}

bool is_header(io::ByteSpan bytes) {
  try {
    MessageHeader::decode(bytes);
    return true;
  } catch (const CommError&) { return false; }
}

}  // namespace

TEST_CASE("the header of a message has the documented layout", "[wire_format]") {
  HeaderBytes expected = {};
  const auto put = [&](size_t at, std::initializer_list<int> bytes) {
    for (const int byte : bytes) expected[at++] = static_cast<std::byte>(byte);
  };
  put(0, {'G', 'R', 'D', 'C', 1, 2, 3, 4, 0, 0, 0, 5, 6, 7, 8, 9});
  put(16, {static_cast<int>(kCall.kind), static_cast<int>(kCall.reduce), static_cast<int>(kCall.dtype), 1});
  put(20, {0, 0, 0, 5, 0, 0, 0, 10, 11, 12, 13, 14});
  put(32, {0, 0, 0, 0, 0, 0, 1, 0, 0xab, 0xcd, 0xef, 1});
  io::write_big_endian(io::crc32c(io::ByteSpan(expected).first(60)), &expected[60]);
  CHECK(MessageHeader{kCall, 256, 0xabcdef01}.encode() == expected);
  const MessageHeader decoded = MessageHeader::decode(expected);
  CHECK(decoded.descriptor == kCall);
  CHECK((decoded.body_bytes == 256 && decoded.body_checksum == 0xabcdef01));

  for (const bool strict : {false, true})
    for (const bool on_device : {false, true}) {
      Descriptor call = kCall;
      call.strict = strict, call.on_device = on_device, call.root = -1;
      const HeaderBytes bytes = MessageHeader{call}.encode();
      CHECK(bytes[19] == static_cast<std::byte>((strict ? 1 : 0) + (on_device ? 2 : 0)));
      CHECK(MessageHeader::decode(bytes).descriptor == call);
    }
}

TEST_CASE("bytes that are no header of a message are refused", "[wire_format]") {
  const HeaderBytes good = MessageHeader{kCall}.encode();
  REQUIRE(is_header(good));
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    HeaderBytes damaged = good;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    CHECK_FALSE(is_header(damaged));
  }
  io::Bytes longer(good.begin(), good.end());
  longer.push_back(std::byte{0});
  CHECK_FALSE(is_header(longer));
  // With a right checksum, other versions of the protocol may use values that this one does not know.
  CHECK_FALSE(is_header(changed(good, 0, 'g')));
  const std::pair<size_t, int> largest[] = {{16, static_cast<int>(CollectiveKind::barrier)},
                                            {17, static_cast<int>(ReduceKind::prod)},
                                            {18, kDTypeCount - 1},
                                            {19, 3}};
  for (const auto& [at, value] : largest) {
    CHECK(is_header(changed(good, at, static_cast<uint8_t>(value))));
    CHECK_FALSE(is_header(changed(good, at, static_cast<uint8_t>(value + 1))));
  }
}

TEST_CASE("payloads are read as they were written, and not beyond their end", "[wire_format]") {
  const io::Bytes raw = {std::byte{1}, std::byte{2}};
  const io::Bytes payload = PayloadWriter().number(0x0102030405060708).string("").string("two").bytes(raw).take();
  CHECK(payload.size() == 8 + 4 + 4 + 3 + 2);
  CHECK((payload[0] == std::byte{1} && payload[7] == std::byte{8} && payload[15] == std::byte{3}));
  PayloadReader reader(payload);
  CHECK(reader.number() == 0x0102030405060708);
  CHECK(reader.string().empty());
  CHECK(reader.string() == "two");
  CHECK_FALSE(reader.at_end());
  CHECK_THROWS_WITH(reader.expect_end(), "a message has 2 bytes too many");
  CHECK_THROWS_WITH(reader.bytes(5), "a message ends 3 bytes too early");
  CHECK(std::ranges::equal(reader.bytes(2), raw));
  CHECK(reader.at_end());
  CHECK_NOTHROW(reader.expect_end());
  CHECK_THROWS_WITH(reader.number(), "a message ends 8 bytes too early");
  CHECK_THROWS_WITH(reader.string(), "a message ends 4 bytes too early");
}

TEST_CASE("requests to a store and its answers are read as they were written, and no others", "[wire_format]") {
  using enum StoreMessage;
  const Milliseconds longest(kLongestWait);
  const StoreRequest requests[] = {{.kind = set, .keys = {"k"}, .value = "v"},
                                   {.kind = get, .keys = {"k"}, .timeout = Milliseconds(7)},
                                   {.kind = wait, .keys = {"k", "", "l"}, .timeout = longest},
                                   {.kind = check, .keys = {"k", "l"}},
                                   {.kind = add, .keys = {"k"}, .amount = -3},
                                   {.kind = compare_set, .keys = {"k"}, .value = "v", .expected = "e"},
                                   {.kind = delete_key, .keys = {"k"}},
                                   {.kind = num_keys}};
  for (const StoreRequest& request : requests) {
    Frame frame = request.encode(9);
    CAPTURE(int{frame.type});
    CHECK(frame.id == 9);
    const StoreRequest read = StoreRequest::decode(frame);
    CHECK((read.kind == request.kind && read.keys == request.keys && read.value == request.value &&
           read.expected == request.expected && read.amount == request.amount && read.timeout == request.timeout));
    const bool has_list = request.kind == wait || request.kind == check;
    frame.payload.push_back(std::byte{0});
    CHECK_THROWS_WITH(StoreRequest::decode(frame), contains(has_list ? "bytes too early" : "a message has 1 bytes"));
  }
  for (const StoreMessage kind : {welcome, done, timed_out, refused})
    CHECK_THROWS_WITH(StoreRequest::decode({static_cast<uint8_t>(kind), 0, {}}), contains("is not a request"));
  const Frame too_long{static_cast<uint8_t>(wait), 0,
                       PayloadWriter().number(static_cast<uint64_t>(longest.count()) + 1).take()};
  CHECK_THROWS_WITH(StoreRequest::decode(too_long), contains("a request would wait for"));

  const StoreAnswer answers[] = {
      {.number = -5, .text = "text"}, {.kind = timed_out, .missing = {"k", "", "l"}}, {.kind = refused, .text = "why"}};
  for (const StoreAnswer& answer : answers) {
    Frame frame = answer.encode(4);
    CHECK(frame.id == 4);
    const StoreAnswer read = StoreAnswer::decode(frame);
    CHECK((read.kind == answer.kind && read.number == answer.number && read.text == answer.text &&
           read.missing == answer.missing));
    frame.payload.push_back(std::byte{0});
    CHECK_THROWS_AS(StoreAnswer::decode(frame), CommError);
  }
  for (const StoreMessage kind : {challenge, welcome, set, num_keys})
    CHECK_THROWS_WITH(StoreAnswer::decode({static_cast<uint8_t>(kind), 0, {}}), contains("is not an answer"));
}

TEST_CASE("a store counts the bytes of its keys and values", "[wire_format]") {
  StoreTable table({.key_bytes = 3, .value_bytes = 9, .total_bytes = 10});
  const auto erase = [&](const std::string& key) {
    return table.carry_out({.kind = StoreMessage::delete_key, .keys = {key}})->number;
  };
  const auto full = contains("it would hold 11 bytes with 'abc'; at most 10");
  CHECK_THROWS_WITH(table.set("abcd", ""), contains("a key has 4 bytes; at most 3"));
  CHECK_THROWS_WITH(table.set("a", "0123456789"), contains("the value of 'a' has 10 bytes; at most 9"));
  CHECK_NOTHROW(table.set("a", "012345678"));
  CHECK(erase("a") == 1);
  CHECK(erase("a") == 0);
  for (int round = 0; round < 3; ++round) {  // neither a replacement nor an error changes the sum
    CHECK_NOTHROW(table.set("abc", "0123456"));
    CHECK_THROWS_WITH(table.set("abc", "01234567"), full);
  }
  CHECK_THROWS_WITH(table.set("d", ""), contains("11 bytes with 'd'"));
  CHECK_NOTHROW(table.set("abc", "012345"));
  CHECK_NOTHROW(table.set("d", ""));
  CHECK(erase("d") == 1);
  CHECK_NOTHROW(table.set("abc", "0123456"));
}

TEST_CASE("a peer that takes or sends nothing is named at the deadline", "[wire_format]") {
  const Listener listener({"127.0.0.1", 0});
  const Deadline soon(Milliseconds(30));
  const Connection connection = Connection::open(listener.address(), Deadline(Milliseconds(5000)));
  std::array<std::byte, 4> bytes;
  CHECK_THROWS_WITH(connection.receive(bytes, soon, "the peer"), "the peer sent nothing for 30 ms");
  const io::Bytes many(size_t{64} << 20);
  CHECK_THROWS_WITH(connection.send(many, soon, "the peer"), "the peer took nothing for 30 ms");
  CHECK_THROWS_WITH(TcpStore(listener.address(), {}, Milliseconds(30)), contains("sent nothing for 30 ms"));
  CHECK_THROWS_WITH(Listener(listener.address()),
                    contains("port " + std::to_string(listener.address().port) + " of 127.0.0.1 is taken"));
}

TEST_CASE("a failure is read as it was written", "[wire_format]") {
  for (const CommFailure kind : {CommFailure::none, CommFailure::timeout, CommFailure::aborted})
    for (const int rank : {-1, 0, 7}) {
      const CommStatus read = decode_failure(encode({kind, rank, "the cause"}));
      CHECK((read.failure == kind && read.rank == rank && read.message == "the cause"));
    }
  CHECK(decode_failure(encode({CommFailure::timeout, 1, "the cause"}, 3)).message == "the");
  CHECK(decode_failure(encode({CommFailure::timeout, 1, "the cause"}, 9)).message == "the cause");
  // A kind of failure of a later version.
  CHECK(decode_failure(PayloadWriter().number(5).number(0).string("x").take()).failure == CommFailure::aborted);
}

TEST_CASE("the texts of failures name the call, the ranks and the cause", "[wire_format]") {
  Descriptor call = {.sequence = 3, .kind = CollectiveKind::all_reduce, .dtype = DType::f32, .count = 10};
  CHECK(call.str() == "all_reduce #3 (sum of 10 float32)");
  CHECK(Descriptor{.sequence = 1}.str() == "barrier #1");
  call.on_device = true, call.strict = true, call.epoch = 2;
  CHECK(call.str() == "all_reduce #3 (strict sum of 10 float32 on a device) of group 2");
  Descriptor parts = {.sequence = 4, .kind = CollectiveKind::all_to_all_v, .dtype = DType::i64};
  CHECK(parts.str() == "all_to_all_v #4 (int64)");
  parts.on_device = true;
  CHECK(parts.str() == "all_to_all_v #4 (int64 on a device)");
  const Descriptor from_first = {.sequence = 5, .kind = CollectiveKind::broadcast, .root = 0, .count = 7};
  CHECK(from_first.str() == "broadcast #5 (7 uint8, root 0)");

  const Milliseconds timeout(20);
  CHECK(timed_out(from_first, 1, {4, 6}, timeout).message ==
        "[broadcast #5 (7 uint8, root 0)] rank 1 waited 20 ms for ranks 4, 6");
  CHECK(timed_out(from_first, 1, {4, 6}, timeout).rank == 4);
  CHECK_THAT(timed_out(from_first, 1, {4}, timeout).message, contains("for rank 4"));
  CHECK(timed_out(from_first, 1, {}, timeout).rank == -1);
  CHECK(wrong_length(from_first, 2, 8, 7).message ==
        "[broadcast #5 (7 uint8, root 0)] rank 2 sends 8 bytes where 7 are due: "
        "do all ranks run the same version of gradus?");
  for (const CollectiveKind kind : {CollectiveKind::all_to_all_v, CollectiveKind::all_gather_v})
    CHECK_THAT(wrong_length({.kind = kind}, 2, 8, 7).message, contains("8 bytes where 7 are due: their counts"));
}

TEST_CASE("a rank that waits for long says so", "[wire_format]") {
  CHECK(printed_to_stderr([] {
          warn_of_waiting({.sequence = 2}, 1, {0, 3});
        }) == "gradus: [barrier #2] rank 1 has waited 10 s for ranks 0, 3\n");
}

TEST_CASE("only collectives with the same number contradict each other", "[wire_format]") {
  const Descriptor sum = {.sequence = 2, .kind = CollectiveKind::all_reduce, .count = 1};
  Descriptor other = sum;
  CHECK_FALSE(contradicts(other, sum));
  other.count = 2;
  CHECK(contradicts(other, sum));
  other.sequence = 3;
  CHECK_FALSE(contradicts(other, sum));
  const Descriptor message = {.sequence = 2, .kind = CollectiveKind::send, .count = 9};
  CHECK_FALSE(contradicts(message, sum));
  CHECK_FALSE(contradicts(sum, message));
}

TEST_CASE("the parts of an array follow each other and begin at multiples of 16", "[wire_format]") {
  for (const int parts : {1, 2, 3, 7})
    for (size_t count = 0; count < 200; ++count) {
      size_t end = 0;
      for (int i = 0; i < parts; ++i) {
        const Range part = part_of(count, parts, i);
        REQUIRE((part.begin == end && part.begin <= part.end && (part.begin % 16 == 0 || part.begin == count)));
        REQUIRE(part.size() < count / static_cast<size_t>(parts) + 17);
        end = part.end;
      }
      REQUIRE(end == count);
    }
}
