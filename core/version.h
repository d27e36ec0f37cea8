// The version of gradus. CMakeLists.txt reads it from here.
#pragma once

#include <string>

#define GRADUS_VERSION_MAJOR 0
#define GRADUS_VERSION_MINOR 2
#define GRADUS_VERSION_PATCH 0

namespace gradus {

/// "major.minor.patch" of the library that is linked; the macros are those of the headers that were included.
std::string version();

}  // namespace gradus
