// Finds the folders of datasets. Not part of the public interface.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gradus::data::detail {

bool is_file(const std::string& path);
/// Returns the first of `root` and its `subfolders` that `holds` accepts; "" if there is none.
std::string find_below(const std::string& root, const std::vector<std::string>& subfolders,
                       const std::function<bool(const std::string&)>& holds);
/// find_below() for `directory` or, if that is empty, for $GRADUS_DATA, data and ../shared/data in this order.
std::string find_folder(const std::string& directory, const std::vector<std::string>& subfolders,
                        const std::function<bool(const std::string&)>& holds);
/// If one of these paths exists as an archive, tells how to unpack the first such, as the end of a message; else "".
std::string unpack_hint(const std::vector<std::string>& paths);

}  // namespace gradus::data::detail
