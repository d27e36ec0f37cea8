// Tables in text files: comma-separated values (RFC 4180) with a header. Not included by gradus.h.
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
  std::vector<std::string> names;              ///< names of the columns
  std::vector<std::vector<std::string>> rows;  ///< rows, with one field for each column

  /// A column as float32 (N). Numbers are parsed as by Python's float(): spaces around them and a sign are allowed. An
  /// unknown name is a ValueError that lists the known names. A field that is empty or not a finite number is a
  /// ValueError that names its row.
  Tensor numbers(const std::string& name) const;
  /// A column of words as int64 (N), numbered in the order of their first occurrence, and the words.
  std::pair<Tensor, std::vector<std::string>> categories(const std::string& name) const;

 private:
  size_t column(const std::string& name) const;
};

/// Quoted fields may contain separators, line breaks and doubled quotes. Lines end with LF or CRLF; empty lines are
/// skipped. A row with another number of fields than the header, an unterminated quote or a quote within an unquoted
/// field, a duplicate name, or an empty text is an IoError that names the line.
Csv parse_csv(std::string_view text, const std::string& name, char separator = ',');
/// Parses a file of at most 2 GiB.
Csv read_csv(const std::string& path, char separator = ',');

namespace detail {
/// Removes surrounding spaces and a plus sign, which Python's int() and float() accept and std::from_chars does not.
std::string_view bare_number(std::string_view text);
}  // namespace detail

}  // namespace gradus::data
