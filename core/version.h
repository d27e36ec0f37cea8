// The version of gradus. CMakeLists.txt reads it from here.
#pragma once

#include <string>

#define GRADUS_VERSION_MAJOR 0
#define GRADUS_VERSION_MINOR 2
#define GRADUS_VERSION_PATCH 0

namespace gradus {

/// "major.minor.patch" of the library that is linked; the macros give the version of the included headers.
std::string version();

}  // namespace gradus
