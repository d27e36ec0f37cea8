// Where data sets lie. Internal to the readers.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gradus::data::detail {

bool is_file(const std::string& path);
/// The first of `root` itself and its `subfolders` that `holds` accepts; empty when there is none.
std::string find_below(const std::string& root, const std::vector<std::string>& subfolders,
                       const std::function<bool(const std::string&)>& holds);
/// The same of `directory` or, where that is empty, of $GRADUS_DATA, data and ../shared/data, one after the other.
std::string find_folder(const std::string& directory, const std::vector<std::string>& subfolders,
                        const std::function<bool(const std::string&)>& holds);
/// How to unpack the first of these paths that lies there packed, as the end of a message; empty where none does.
std::string unpack_hint(const std::vector<std::string>& paths);

}  // namespace gradus::data::detail
