// Returns the text that a layer prints.
#pragma once

#include <sstream>
#include <string>

namespace gradus::test {

template <class T>
std::string printed(const T& value) {
  std::ostringstream stream;
  stream << value;
  return stream.str();
}

}  // namespace gradus::test
