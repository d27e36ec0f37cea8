// Tuning tables and the choice among algorithms (core/kernel_choice.h).
#include <gradus/core/kernel_choice.h>

#include <cstdlib>
#include <fstream>
#include <locale>

#include <gradus/core/error.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;

namespace {

struct Problem {
  double size;
  size_t device = 0;
  size_t device_index() const { return device; }
  size_t kind() const { return 0; }
};
struct Plan {};
struct Launch {};
using Algorithm = KernelAlgorithm<Problem, Plan, Launch>;

// One that starts at once and one that starts late but is faster.
const Algorithm kSlow = {.name = "slow",
                         .reason = "little work",
                         .parts = {{{"multiply_adds", WorkLimit::multiply_adds}, {"calls"}}},
                         .can_run = [](const Problem&) { return true; },
                         .work =
                             [](const Problem& p) {
                               return KernelWork{p.size, 1};
                             },
                         .plan = [](const Problem&) { return Plan(); },
                         .launch = {}};
const Algorithm kFast = {.name = "fast",
                         .reason = "much work",
                         .parts = {{{"multiply_adds", WorkLimit::multiply_adds}, {"calls"}}},
                         .can_run = [](const Problem& p) { return p.size >= 2; },
                         .work =
                             [](const Problem& p) {
                               return KernelWork{p.size, 1};
                             },
                         .plan = [](const Problem&) { return Plan(); },
                         .launch = {}};

constexpr const char* kTable = R"(
device big threads 4 multiply_adds_per_us 10 bytes_per_us 100  # a comment
device small threads 2 multiply_adds_per_us 1 bytes_per_us 100
device big
toy any slow multiply_adds 5 calls 0
toy any fast multiply_adds 1 calls 8000
)";

KernelFamily<Algorithm> family_of(const TuningTable& table) {
  return {"toy", {"any"}, {&kSlow, &kFast}, {"big", "small"}, table};
}

}  // namespace

TEST_CASE("the cheapest algorithm that can run is chosen") {
  const TuningTable table(kTable);
  const KernelFamily<Algorithm> family = family_of(table);
  CHECK(family.select(Problem{1}).algorithm == &kSlow);
  CHECK(family.select(Problem{10}).algorithm == &kSlow);   // 5 us, or 1 + 8 us
  CHECK(family.select(Problem{100}).algorithm == &kFast);  // 50 us, or 10 + 8 us
  CHECK(family.select(Problem{100}).estimated_us == Approx(18));
  CHECK(family.threads(0) == 4);
  CHECK(std::string(family.implementation(1, 0)) == "slow_small");
}

TEST_CASE("a device without factors scales those of the first one by its limits") {
  const TuningTable table(kTable);
  const KernelFamily<Algorithm> family = family_of(table);
  CHECK(family.select(Problem{1, 1}).algorithm == &kSlow);
  CHECK(family.select(Problem{10, 1}).algorithm == &kFast);  // 50 us, or 10 + 8 us
}

TEST_CASE("a forced algorithm is chosen where it can run") {
  const TuningTable table(kTable);
  const KernelFamily<Algorithm> family = family_of(table);
  const ForcedAlgorithm forced("fast");
  CHECK(family.select(Problem{10}).algorithm == &kFast);
  CHECK(family.select(Problem{1}).algorithm == &kSlow);
}

TEST_CASE("recent plans are kept by problem and by forced algorithm") {
  int choices = 0;
  RecentPlans<int, int> recent;
  const auto get = [&](int problem) { return recent.get(problem, 0, [&] { return ++choices; }); };
  CHECK(get(7) == 1);
  CHECK(get(8) == 2);
  CHECK(get(7) == 1);
  {
    const ForcedAlgorithm forced("fast");
    CHECK(get(7) == 3);
    CHECK(get(7) == 3);
    const ForcedAlgorithm other("slow");
    CHECK(get(7) == 4);
  }
  CHECK(get(9) == 5);
}

TEST_CASE("GRADUS_TUNING names a table whose lines replace the built-in ones") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("mine.txt");
  std::ofstream(path) << "device big\ntoy any fast multiply_adds 1 calls 0\n";
  setenv("GRADUS_TUNING", path.c_str(), 1);
  const TuningTable table(kTable);
  unsetenv("GRADUS_TUNING");
  CHECK(family_of(table).select(Problem{10}).algorithm == &kFast);
  CHECK(table.device("small").threads == 2);
}

TEST_CASE("a wrong line of a tuning table is an error that names the line") {
  const auto says = [](const std::string& text, const std::string& words) {
    TuningTable table("");
    try {
      table.add(text, "mine");
    } catch (const ValueError& error) { return std::string(error.what()).find(words) != std::string::npos; }
    return false;
  };
  CHECK(says("toy any slow calls 1", "mine, line 1"));
  CHECK(says("\ndevice a threads 1", "mine, line 2"));
  CHECK(says("device a threads 1 multiply_adds_per_us x bytes_per_us 1", "number"));
  const std::string device = "device a threads 1 multiply_adds_per_us 1 bytes_per_us 1\n";
  CHECK(says(device + "toy any slow calls -1", "out of range"));
  CHECK(says(device + "toy any", "missing"));
  CHECK(says(device + "device b", "mine, line 2: a device without numbers"));
  CHECK(says("device a threads 0.5 multiply_adds_per_us 1 bytes_per_us 1", "at least 1"));
  CHECK(says("device a threads 1 multiply_adds_per_us 1e-300 bytes_per_us 1", "at least 1"));
  CHECK_THROWS_AS(TuningTable("").device("none"), ValueError);
  TuningTable table(kTable);
  table.add("device big\ntoy any slow muliply_adds 5", "mine");
  CHECK_THROWS_WITH(family_of(table), test::contains("'toy any slow' has a factor for 'muliply_adds'"));
}

TEST_CASE("the rows of all devices are checked, whichever of them have the row") {
  const std::string limits = " threads 1 multiply_adds_per_us 1 bytes_per_us 1\n",
                    row = "toy any slow multiply_adds 5\n";
  for (const char* wrong : {"a", "b", "c"}) {
    TuningTable table("");
    for (const char* device : {"a", "b", "c"}) {
      table.add("device " + (device + limits), "mine");
      if (std::string(device) == wrong)
        table.add("device " + (device + ("\n" + row)) + "toy any fast typo 1\n", "mine");
    }
    CHECK_THROWS_WITH(table.check_row("toy any fast", {{WorkPart{"multiply_adds", {}}}}), test::contains("'typo'"));
    CHECK_NOTHROW(table.check_row("toy any slow", {{WorkPart{"multiply_adds", {}}}}));
  }
}

TEST_CASE("lines of a tuning table may be empty, comments or the delimiters of a raw string") {
  TuningTable table("R\"(\n\n# a comment\ndevice a threads 9e9 multiply_adds_per_us 2 bytes_per_us 3 # more\n)\"\n");
  CHECK(table.device("a").threads == 4096);
  CHECK(table.device("a").multiply_adds_per_us == 2);
  CHECK(table.device("a").bytes_per_us == 3);
  const auto wrong = [](const std::string& text) { TuningTable("").add(text, "mine"); };
  const std::string device = "device a threads 1 multiply_adds_per_us 1 bytes_per_us 1\n";
  CHECK_NOTHROW(wrong(device + "toy any slow calls 0"));
  CHECK_NOTHROW(wrong(device + "toy any slow calls 9.99e11"));
  CHECK_THROWS_WITH(wrong(device + "\n\ntoy any slow calls 1e12"), test::contains("mine, line 4: a number is out of"));
  CHECK_THROWS_WITH(wrong(device + "toy any slow calls"), test::contains("line 2: a number is missing"));
  CHECK_THROWS_WITH(wrong("device"), test::contains("line 1: a name is missing in 'device'"));
  for (const char* part : {"threads 1", "multiply_adds_per_us 1", "bytes_per_us 1"}) {
    const size_t at = device.find(part), length = std::string(part).size();
    CHECK_THROWS_WITH(wrong(std::string(device).erase(at, length)), test::contains("each at least 1"));
  }
  CHECK_THROWS_WITH(TuningTable("").device("none"), test::contains("has no device none"));
}

TEST_CASE("each part of the work has the device's limit and factor, or those of the first device with factors") {
  const WorkParts parts = {{{"multiply_adds", WorkLimit::multiply_adds},
                            {"bytes", WorkLimit::bytes},
                            {"calls", WorkLimit::calls},
                            {"loops", WorkLimit::loops}}};
  const auto us = [&](const TuningTable& table, const char* device, const char* row) {
    const KernelWork all = table.us_per_unit(device, row, parts);
    for (size_t i = 4; i < all.size(); ++i) CHECK(all[i] == 0);
    return std::vector<double>(all.begin(), all.begin() + 4);
  };
  TuningTable table("");
  table.add("device plain threads 1 multiply_adds_per_us 4 bytes_per_us 8\n", "mine");
  CHECK(us(table, "plain", "toy any slow") == std::vector<double>{0.25, 0.125, 0.001, 1});  // no device has factors
  table.add(
      "device one threads 1 multiply_adds_per_us 2 bytes_per_us 4\n"
      "toy any slow multiply_adds 3 bytes 5 calls 7 loops 9\n"
      "device two threads 1 multiply_adds_per_us 10 bytes_per_us 100\n"
      "toy any slow multiply_adds 30 calls 70\n",
      "mine");
  CHECK(us(table, "one", "toy any slow") == std::vector<double>{1.5, 1.25, 0.007, 9});
  CHECK(us(table, "two", "toy any slow") == std::vector<double>{3, 0.01, 0.07, 1});  // 1 for parts without a factor
  CHECK(us(table, "plain", "toy any slow") == std::vector<double>{0.75, 0.625, 0.007, 9});
  CHECK(us(table, "two", "toy any fast") == std::vector<double>{0.1, 0.01, 0.001, 1});  // no device has this row
  table.add("device two\ntoy any slow loops 2\n", "mine");                              // replaces the row
  CHECK(us(table, "two", "toy any slow") == std::vector<double>{0.1, 0.01, 0.001, 2});
}

TEST_CASE("a tuning table is read in any locale") {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  struct GlobalComma {  // restores the locale even if reading the table throws
    const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
    ~GlobalComma() { std::locale::global(before); }
  };
  const GlobalComma comma;
  TuningTable table(kTable);
  table.add("device big\ntoy any fast multiply_adds 0.25 calls 1.5", "mine");
  CHECK(table.device("big").factors.at("toy any fast").at("multiply_adds") == 0.25);
}
