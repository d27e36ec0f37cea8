// Tables in text: comma-separated values (RFC 4180), with a header. Not in gradus.h.
//
//   const data::Csv houses = data::read_csv("houses.csv");
//   const Tensor x = stack({houses.numbers("area"), houses.numbers("rooms")}, 1);  // (N, 2)
//   const auto [town, towns] = houses.categories("town");                          // (N) int64, and their names
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::data {

struct Csv {
  std::vector<std::string> names;              ///< of the columns
  std::vector<std::vector<std::string>> rows;  ///< each as many fields as there are names

  /// A column as float32 (N). Numbers are read as Python's float() does: blanks around them and a sign may be there. An
  /// unknown name is a ValueError that lists those there are; a field that is no finite number, or empty, one that
  /// names its row.
  Tensor numbers(const std::string& name) const;
  /// A column of words as int64 (N), numbered in the order in which they come first, and the words.
  std::pair<Tensor, std::vector<std::string>> categories(const std::string& name) const;

 private:
  size_t column(const std::string& name) const;
};

/// Fields between quotes may hold separators, line breaks and, doubled, quotes. Lines end in LF or CRLF; empty ones are
/// left out. A row with more or fewer fields than the header, a quote that does not end or stands within a field, a
/// name that is there twice, or nothing at all is an IoError that names the line.
Csv parse_csv(std::string_view text, const std::string& name, char separator = ',');
/// The same of a file of at most 2 GiB.
Csv read_csv(const std::string& path, char separator = ',');

namespace detail {
/// `text` without the blanks around it and without a plus sign: what std::from_chars reads of what Python's int() and
/// float() read.
std::string_view bare_number(std::string_view text);
}  // namespace detail

}  // namespace gradus::data
