// Prints the version of the library after a small computation with it.
#include <cstdio>

#include <gradus/core/array.h>
#include <gradus/core/version.h>

int main() {
  std::printf("gradus %s\n", gradus::version().c_str());
}
