#include <gradus/core/version.h>

std::string gradus::version() {
  return std::to_string(GRADUS_VERSION_MAJOR) + "." + std::to_string(GRADUS_VERSION_MINOR) + "." +
         std::to_string(GRADUS_VERSION_PATCH);
}
