// Tests what tests/catch_main.cpp and tests/catch.h add to Catch2. The program runs itself again with hidden test cases
// that hang, fail or should not run.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>

#include <gradus/gradus.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;

namespace {

struct Outcome {
  std::string output;
  int status;
};

// Runs this program with the given arguments and environment variables.
Outcome run_harness(const std::string& arguments, const std::string& environment = "") {
  const std::string command = environment + " /proc/" + std::to_string(getpid()) + "/exe " + arguments + " 2>&1";
  FILE* child = popen(command.c_str(), "r");
  REQUIRE(child != nullptr);
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), child))
    outcome.output.append(buffer.data(), count);
  outcome.status = WEXITSTATUS(pclose(child));
  return outcome;
}

}  // namespace

TEST_CASE("zz zz", "[.][hangs]") {
  for (;;) sleep(100);
}

TEST_CASE("vectors and tensors differ", "[.][differ]") {
  const std::vector<double> ones(300'000, 1.5), twos(300'000, 2.5);
  CHECK(ones == twos);
  const Tensor x = full({1000, 300}, 3.5);
  CAPTURE(x);
  CHECK(x.data_ptr<float>() == nullptr);
}

TEST_CASE("a test case that hangs is named and fails") {
  const Outcome outcome = run_harness("'[hangs]'", "GRADUS_TEST_TIMEOUT=1");
  CHECK(outcome.status == 1);
  CHECK_THAT(outcome.output, contains("'zz zz' is still running after 1 s"));
}

TEST_CASE("a failed check of many numbers prints only the first ones") {
  const Outcome outcome = run_harness("'[differ]'", "GRADUS_TEST_TIMEOUT=60");
  CHECK(outcome.status != 0);
  CHECK(outcome.output.size() < 8000);
  CHECK_THAT(outcome.output, contains("1.5, 1.5") && contains("2.5, 2.5") && contains("300000 elements"));
  CHECK_THAT(outcome.output, contains("float32 of shape (1000, 300)"));
}

TEST_CASE("filters that only exclude cases leave hidden ones hidden") {
  // Every test case except the hidden "zz zz" has one of these letters in its name.
  for (const char* filter : {"'~*a*~*e*~*i*'", "'~*a*' '~*e*' '~*i*'", "'exclude:*a*,~[sort]exclude:*b*' '~*a*'",
                             "'~[.]~*a*~*e*~*i*'", "'~\"*a*\"~\"*e*\"~\"*i*\"'"}) {
    CAPTURE(filter);
    CHECK_THAT(run_harness(std::string(filter) + " --list-tests").output, !contains("zz zz"));
  }
  for (const char* filter : {"'zz*'", "'[hangs]'", "'~*a*','zz zz'", "'~*a*' 'zz zz'", "'[hangs]~*a*'"}) {
    CAPTURE(filter);
    CHECK_THAT(run_harness(std::string(filter) + " --list-tests").output, contains("zz zz"));
  }
}
