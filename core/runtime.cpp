#include <gradus/core/runtime.h>

#include <iomanip>
#include <sstream>

namespace gradus {

std::string format_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  std::ostringstream text;
  text << std::setprecision(value < 1000 ? 3 : 4) << value << " " << units[unit];
  return std::move(text).str();
}

}  // namespace gradus
