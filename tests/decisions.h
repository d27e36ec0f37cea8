// Tables of what a select function decides, as text that is read as a diff.
#pragma once

#include <string>

namespace gradus::test {

/// Compares text with tests/FILE line by line; with GRADUS_WRITE_DECISIONS in the environment it is written.
void check_decisions(const std::string& file, const std::string& text);

/// Compares text with the lines of FILE (from the root of the repository) between "<!-- MARK -->" and "<!-- end -->";
/// with GRADUS_WRITE_DECISIONS in the environment it replaces them.
void check_table(const std::string& file, const std::string& mark, const std::string& text);

}  // namespace gradus::test
