#include <gradus/distributed/comm/tcp/token.h>

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <gradus/core/io/parse_number.h>

namespace gradus::dist {
namespace {

io::ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

Digest hmac_sha256(const Digest& key, std::initializer_list<io::ByteSpan> parts) {
  io::Bytes message;
  for (io::ByteSpan part : parts) message.insert(message.end(), part.begin(), part.end());
  Digest digest;
  const unsigned char* result = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                     reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                     reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  GRADUS_CHECK(result != nullptr, CommError, "libcrypto cannot compute an HMAC-SHA256");
  return digest;
}

bool same_digest(const Digest& a, io::ByteSpan b) {
  return b.size() == a.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Digest random_digest() {
  Digest digest;
  GRADUS_CHECK(getentropy(digest.data(), digest.size()) == 0, CommError,
               "the kernel gives no random bytes: ", std::strerror(errno));
  return digest;
}

Token Token::random() {
  Token token;
  token.key_ = random_digest();
  return token;
}

std::string Token::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : key()) {
    text.push_back(kDigits[static_cast<unsigned>(byte) >> 4]);
    text.push_back(kDigits[static_cast<unsigned>(byte) & 15]);
  }
  return text;
}

Token Token::parse(const std::string& hex, const std::string& source) {
  Token token;
  Digest& key = token.key_.emplace();
  bool valid = hex.size() == 2 * key.size();
  for (size_t i = 0; valid && i < key.size(); ++i) {
    const std::optional<uint8_t> byte = io::parse_number<uint8_t>(std::string_view(hex).substr(2 * i, 2), 16);
    valid = byte.has_value();
    key[i] = static_cast<std::byte>(byte.value_or(0));
  }
  GRADUS_CHECK(valid, IoError, source, " does not hold a token: 64 hexadecimal digits");
  return token;
}

Token Token::from_descriptor(int number) {
  const std::string source = "descriptor " + std::to_string(number);
  char text[66];
  ssize_t got = -1;
  while ((got = pread(number, text, sizeof text, 0)) < 0 && errno == EINTR) {}
  GRADUS_CHECK(got >= 0, IoError, "cannot read a token from ", source, ": ", std::strerror(errno));
  auto size = static_cast<size_t>(got);
  if (size > 0 && text[size - 1] == '\n') --size;
  return parse({text, size}, source);
}

FileDescriptor Token::to_descriptor() const {
  FileDescriptor descriptor(memfd_create("gradus-token", MFD_CLOEXEC));
  const std::string text = hex();
  GRADUS_CHECK(
      descriptor && pwrite(descriptor.number(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()),
      CommError, "cannot hand down the token: ", std::strerror(errno));
  return descriptor;
}

Token Token::from_file(const std::string& path) {
  FileDescriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  GRADUS_CHECK(descriptor, IoError, "cannot open the token '", path, "': ", std::strerror(errno));
  struct stat status;
  GRADUS_CHECK(fstat(descriptor.number(), &status) == 0 && S_ISREG(status.st_mode), IoError, "the token '", path,
               "' is not a regular file");
  GRADUS_CHECK(status.st_uid == geteuid() && (status.st_mode & 077) == 0, IoError, "the token '", path,
               "' is open to others: chmod 600 it, as the user who runs the job");
  return from_descriptor(descriptor.number());
}

Token Token::from_environment() {
  const char *const number = std::getenv("GRADUS_TOKEN_FD"), *const path = std::getenv("GRADUS_TOKEN_FILE");
  const int descriptor = number != nullptr ? io::parse_number<int>(number).value_or(-1) : 0;
  GRADUS_CHECK(descriptor >= 0, ValueError, "GRADUS_TOKEN_FD is '", number, "', not the number of a descriptor");
  try {
    return number != nullptr ? from_descriptor(descriptor) : path != nullptr ? from_file(path) : Token();
  } catch (const IoError& error) {
    GRADUS_FAIL(IoError, "the variable ",
                number != nullptr ? "GRADUS_TOKEN_FD: " : "GRADUS_TOKEN_FILE: ", error.what());
  }
}

Digest Handshake::client_proof(const Token& token, std::string_view purpose, const Digest& s, const Digest& c) {
  return hmac_sha256(token.key(), {bytes_of("client "), bytes_of(purpose), s, c});
}

Digest Handshake::server_proof(const Token& token, std::string_view purpose, const Digest& s, const Digest& c) {
  return hmac_sha256(token.key(), {bytes_of("server "), bytes_of(purpose), s, c});
}

}  // namespace gradus::dist
