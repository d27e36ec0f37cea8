#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gradus/core/formulas/integers.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

// Requires that the keys of ascending elements are ascending, and that the keys for descending order are descending.
template <class T>
void check_order(const std::vector<T>& ascending) {
  for (size_t i = 1; i < ascending.size(); ++i) {
    INFO(i);
    CHECK(sort_key(ascending[i - 1], false) < sort_key(ascending[i], false));
    CHECK(sort_key(ascending[i - 1], true) > sort_key(ascending[i], true));
  }
}

template <class T>
void check_floating(T lowest, T smallest, T highest) {
  const T infinity = static_cast<T>(INFINITY), nan = static_cast<T>(NAN);
  check_order<T>({static_cast<T>(-INFINITY), lowest, static_cast<T>(-1.0f), static_cast<T>(0.0f), smallest,
                  static_cast<T>(1.0f), highest, infinity, nan});
  CHECK(sort_key(static_cast<T>(-0.0f), false) == sort_key(static_cast<T>(0.0f), false));
  CHECK(sort_key(static_cast<T>(-NAN), false) == sort_key(nan, false));
}

}  // namespace

TEST_CASE("sort keys have the same order as the numbers") {
  check_floating<float>(std::numeric_limits<float>::lowest(), 1e-45f, std::numeric_limits<float>::max());
  check_floating<double>(std::numeric_limits<double>::lowest(), 5e-324, std::numeric_limits<double>::max());
  check_floating<Half>(Half(-65504.0f), Half(6e-8f), Half(65504.0f));
  check_floating<BFloat16>(BFloat16(-3e38f), BFloat16(1e-38f), BFloat16(3e38f));
  check_order<int64_t>({INT64_MIN, -1, 0, 1, INT64_MAX});
  check_order<int32_t>({INT32_MIN, -1, 0, 1, INT32_MAX});
  check_order<uint8_t>({0, 1, 127, 128, 255});
  check_order<bool>({false, true});
}
