// Finds the published datasets for tests in $GRADUS_DATA or ../shared/data, and unpacks their .xz files if necessary.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include <gradus/tests/temporary_directory.h>

namespace gradus::test {

/// Unpacks and concatenates the .xz files `packed` to the file `to`. Returns false if one is missing or xz is not
/// installed.
inline bool unpack_xz(const std::string& folder, const std::vector<std::string>& packed, const std::string& to) {
  const char* variable = std::getenv("GRADUS_DATA");
  for (const std::string& root : {std::string(variable ? variable : ""), std::string("../shared/data")}) {
    if (root.empty()) continue;
    std::string command = "xz -dc";
    bool there = true;
    for (const std::string& name : packed) {
      const std::string path = root + "/" + folder + "/" + name;
      there = there && std::filesystem::is_regular_file(path);
      command += " '" + path + "'";
    }
    if (there && std::system((command + " > '" + to + "' 2> /dev/null").c_str()) == 0) return true;
  }
  return false;
}

}  // namespace gradus::test
