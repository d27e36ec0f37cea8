// A rank of a job whose machines have different byte orders (experiment E14). Prints a JSON object per line.
// usage: byte_order                      the bytes of a float32 here and on the wire
//        byte_order RANK SIZE [STORE]    all-reduces over TCP; rank 0 serves the store and prints its address. The
//                                        token of the job is in the file $GRADUS_TOKEN_FILE.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>
#include <gradus/distributed/comm/collectives.h>
#include <gradus/distributed/comm/store/store.h>
#include <gradus/distributed/comm/tcp/tcp_group.h>

using namespace gradus;
using namespace gradus::dist;

namespace {

constexpr const char* kOrder = std::endian::native == std::endian::big ? "big" : "little";

std::string hex(io::ByteSpan bytes) {
  std::string text;
  char digits[4];
  for (std::byte byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte));
    text += (text.empty() ? "" : " ") + std::string(digits);
  }
  return text;
}

void print_bytes() {
  const float value = 6.342e-5f;
  std::byte memory[4], wire[4];
  std::memcpy(memory, &value, 4);
  io::write_big_endian(std::bit_cast<uint32_t>(value), wire);
  std::printf(R"({"value": %.9g, "order": "%s", "memory": "%s", "wire": "%s"})"
              "\n",
              static_cast<double>(value), kOrder, hex(memory).c_str(), hex(wire).c_str());
}

/// Returns the vector of a rank. Its values are multiples of `scale`; with 1, sums are exact in every type.
template <class T>
std::vector<std::byte> contribution(int rank, size_t count, float scale) {
  std::vector<std::byte> bytes(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const T value = static_cast<T>(static_cast<float>((i * 7 + static_cast<size_t>(rank) * 3) % 5) * scale);
    std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
  }
  return bytes;
}

/// Returns a checksum of values, which does not depend on the machine's byte order.
uint32_t checksum(std::vector<std::byte> elements, size_t size) {
  io::convert_byte_order(elements.data(), elements.size() / size, size, std::endian::big);
  return io::crc32c(elements);
}

/// Reduces arrays of all types: with rounding, where ranks must add in the order of the ranks, and with exact sums in
/// the order of the ring. Returns false if a sum is wrong.
bool reduce_all(TcpTransport& transport) {
  Collectives collectives(transport);
  const int rank = transport.rank(), ranks = transport.size();
  bool all_right = true;
  uint64_t sequence = 0;
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    visit(dtype, [&]<class T> {
      for (const bool strict : {true, false}) {
        for (const size_t count : {size_t{5}, size_t{1000}, size_t{100'003}}) {
          const float scale = std::is_floating_point_v<compute_t<T>> && strict ? 6.342e-5f : sizeof(T) > 2 ? 65'793 : 1;
          std::vector<std::byte> x = contribution<T>(rank, count, scale);
          Collective call;
          call.descriptor = {.sequence = ++sequence,
                             .kind = CollectiveKind::all_reduce,
                             .dtype = dtype,
                             .strict = strict,
                             .count = count};
          call.in = call.out = x.data();
          collectives.run(call, Deadline(kDefaultTimeout));

          std::vector<std::vector<std::byte>> inputs;
          std::vector<const void*> operands;
          for (int r = 0; r < ranks; ++r)
            operands.push_back(inputs.emplace_back(contribution<T>(r, count, scale)).data());
          std::vector<std::byte> expected(x.size());
          reduce_in_order(dtype, ReduceKind::sum, operands, expected.data(), count);
          all_right &= x == expected;
          T last;
          std::memcpy(&last, &x[x.size() - sizeof(T)], sizeof(T));
          std::printf(R"({"rank": %d, "order": "%s", "dtype": "%s", "strict": %s, "count": %zu, "last": %.9g, )"
                      R"("checksum": "%08x", "right": %s})"
                      "\n",
                      rank, kOrder, std::string(name(dtype)).c_str(), strict ? "true" : "false", count,
                      static_cast<double>(static_cast<compute_t<T>>(last)), checksum(x, sizeof(T)),
                      x == expected ? "true" : "false");
        }
      }
    });
  }
  return all_right;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    print_bytes();
    return 0;
  }
  const int rank = std::atoi(argv[1]), size = std::atoi(argv[2]);
  const Token token = Token::from_environment();
  std::unique_ptr<TcpStoreServer> server;
  if (argc == 3) {
    server = std::make_unique<TcpStoreServer>(Address{"127.0.0.1", 0}, token);
    std::printf(R"({"store": "%s"})"
                "\n",
                server->address().str().c_str());
    std::fflush(stdout);
  }
  TcpStore store(server ? server->address() : Address::parse(argv[3]), token);
  bool right = false;
  {
    TcpTransport transport(store, rank, size, {.token = token, .checksum = true});
    right = reduce_all(transport);
  }
  store.add("ended", 1);
  while (server && store.add("ended", 0) < size) std::this_thread::sleep_for(Milliseconds(10));
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "byte_order: %s\n", error.what());
  return 2;
}
