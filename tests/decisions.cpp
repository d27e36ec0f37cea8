#include <gradus/tests/decisions.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gradus/tests/catch.h>

namespace gradus::test {

void check_decisions(const std::string& file, const std::string& text) {
  const std::string path = source_path("tests/" + file);
  if (std::getenv("GRADUS_WRITE_DECISIONS")) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream stored(path);
  REQUIRE(stored);
  std::istringstream decided(text);
  INFO("tests/" << file << ": GRADUS_WRITE_DECISIONS=1 writes it anew");
  while (stored || decided) {
    std::string wanted, line;
    std::getline(stored, wanted), std::getline(decided, line);
    CHECK(line == wanted);
  }
}

}  // namespace gradus::test
