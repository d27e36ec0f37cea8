// The error measure by which all tests compare numbers.
#include <cmath>

#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

using gradus::test::error;
using Values = std::vector<double>;

TEST_CASE("an error is relative to the largest expected number, and never a NaN") {
  CHECK(error(Values{1, 2.5}, {1, 2}) == 0.25);
  CHECK(error(Values{0, 0}, {1e-3, -2e-3}) == 1);
  CHECK(error(Values{0, 1e-6}, {0, 0}) == Approx(1e-3));
  CHECK(error(Values{}, {}) == 0);
  CHECK(error(Values{NAN, INFINITY, -INFINITY}, {NAN, INFINITY, -INFINITY}) == 0);
  CHECK(error(Values{0, NAN}, {0, 1}) == INFINITY);
  CHECK(error(Values{NAN, 0}, {INFINITY, 0}) == INFINITY);
  CHECK(error(Values{0, 1}, {0, NAN}) == INFINITY);
  CHECK(error(Values{5, 1}, {INFINITY, 1}) == INFINITY);
  CHECK(error(Values{-INFINITY, 1}, {INFINITY, 1}) == INFINITY);
  CHECK(error(Values{1}, {1, 1}) == INFINITY);
}
