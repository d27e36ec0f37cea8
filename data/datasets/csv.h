// Reads tables from text files with comma-separated values (RFC 4180) and a header. gradus.h does not include this
// file.
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
  std::vector<std::string> names;              ///< names of the columns, from the header
  std::vector<std::vector<std::string>> rows;  ///< the rows after the header, with one field for each column

  /// Returns a column as float32 (N). Parses numbers as Python's float() does: spaces around a number and a sign are
  /// allowed. An unknown name is a ValueError that lists the known names. A field that is empty or not a finite number
  /// is a ValueError that names its row.
  Tensor numbers(const std::string& name) const;
  /// Numbers the different words of a column in the order of their first occurrence. Returns the numbers as int64 (N),
  /// and the words in the order of their numbers.
  std::pair<Tensor, std::vector<std::string>> categories(const std::string& name) const;

 private:
  size_t column(const std::string& name) const;
};

/// Parses the text of a table; messages call it `name`. Quoted fields may contain separators, line breaks and doubled
/// quotes. Lines end with LF or CRLF; empty lines are skipped. These are an IoError that names the line: a row whose
/// number of fields differs from the header's, an unterminated quote, a quote within an unquoted field, two columns
/// with one name, and an empty text.
Csv parse_csv(std::string_view text, const std::string& name, char separator = ',');
/// Reads and parses a file of at most 2 GiB.
Csv read_csv(const std::string& path, char separator = ',');

namespace detail {
/// Removes the spaces before and after a number, and a leading plus sign. Python's int() and float() accept them, but
/// std::from_chars does not.
std::string_view bare_number(std::string_view text);
}  // namespace detail

}  // namespace gradus::data
