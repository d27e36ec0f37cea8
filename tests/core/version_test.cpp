#include <gradus/core/version.h>
#include <gradus/tests/catch.h>

TEST_CASE("the version of the headers is the version of the library", "[version]") {
  const std::string expected = std::to_string(GRADUS_VERSION_MAJOR) + "." + std::to_string(GRADUS_VERSION_MINOR) + "." +
                               std::to_string(GRADUS_VERSION_PATCH);
  CHECK(gradus::version() == expected);
}
