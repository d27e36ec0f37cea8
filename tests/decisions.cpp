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

void check_table(const std::string& file, const std::string& mark, const std::string& text) {
  const std::string path = source_path(file);
  std::ostringstream page;
  page << std::ifstream(path).rdbuf();
  const std::string stored = page.str(), first = "<!-- " + mark + " -->\n";
  const size_t begin = stored.find(first), end = stored.find("<!-- end -->", begin);
  REQUIRE((begin != std::string::npos && end != std::string::npos));
  const size_t at = begin + first.size();
  if (std::getenv("GRADUS_WRITE_DECISIONS")) {
    std::ofstream(path) << stored.substr(0, at) << text << stored.substr(end);
    return;
  }
  INFO(file << ": GRADUS_WRITE_DECISIONS=1 writes it anew");
  CHECK(stored.substr(at, end - at) == text);
}

}  // namespace gradus::test
