#include <gradus/data/datasets/csv.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <gradus/autograd/autograd.h>
#include <gradus/core/platform/file.h>

namespace gradus::data {
namespace {

/// Splits a text into rows and fields.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& name, char separator)
      : text_(text), name_(name), separator_(separator) {
    // A byte order mark, which spreadsheet programs write.
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }

  /// Reads the fields of the next row. Returns false at the end of the text.
  bool next(std::vector<std::string>& fields) {
    fields.clear();
    while (at_ < text_.size() && end_of_line()) {}
    if (at_ >= text_.size()) return false;
    first_line_ = line_;
    do fields.push_back(field());
    while (at_ < text_.size() && text_[at_] == separator_ && ++at_);
    GRADUS_CHECK(at_ >= text_.size() || end_of_line(), IoError, where(), "text after a closing quote");
    return true;
  }
  /// Returns the start of an error message, such as "'houses.csv', line 7: ".
  std::string where() const { return "'" + name_ + "', line " + std::to_string(first_line_) + ": "; }

 private:
  bool end_of_line() {
    const std::string_view rest = text_.substr(at_);
    const size_t length = rest.starts_with("\r\n") ? 2 : rest.starts_with('\n') ? 1 : 0;
    at_ += length;
    line_ += length > 0;
    return length > 0;
  }

  std::string field() {
    if (at_ < text_.size() && text_[at_] == '"') return quoted_field();
    const char ends[] = {separator_, '\n'};
    const size_t end = std::min(text_.find_first_of(std::string_view(ends, 2), at_), text_.size());
    std::string field(text_.substr(at_, end - at_));
    at_ = end;
    if (field.ends_with('\r') && text_.substr(end).starts_with('\n')) {
      // This \r is part of the CRLF at the end of the line.
      field.pop_back();
      --at_;
    }
    GRADUS_CHECK(field.find('"') == std::string::npos, IoError, where(), "a quote within the field '", field,
                 "': put all of it between quotes, and double those that belong to it");
    return field;
  }

  std::string quoted_field() {
    std::string field;
    for (++at_;; ++at_) {
      GRADUS_CHECK(at_ < text_.size(), IoError, where(), "an unterminated quote");
      if (text_[at_] == '"' && !text_.substr(++at_).starts_with('"')) return field;
      line_ += text_[at_] == '\n';
      field += text_[at_];
    }
  }

  std::string_view text_;
  const std::string& name_;
  const char separator_;
  size_t at_ = 0;
  int64_t line_ = 1, first_line_ = 1;  // number of the current line, and of the first line of the row
};

/// Parses a number as Python's float() does: spaces around it and a sign are allowed. Returns nothing if the text is
/// not a number, or a number that is not finite in float32.
std::optional<float> number_of(std::string_view text) {
  text = detail::bare_number(text);
  const char* const end = text.data() + text.size();
  float value = 0;
  auto read = std::from_chars(text.data(), end, value);
  if (read.ec == std::errc::result_out_of_range) {  // also reported for numbers too close to 0 for float32
    long double wide = 0;
    read = std::from_chars(text.data(), end, wide);
    value = static_cast<float>(wide);
  }
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

std::string_view detail::bare_number(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return text;
}

size_t Csv::column(const std::string& name) const {
  const auto found = std::ranges::find(names, name);
  std::string there;
  for (const std::string& other : names) there += (there.empty() ? "'" : ", '") + other + "'";
  GRADUS_CHECK(found != names.end(), ValueError, "there is no column '", name, "'; there are ", there);
  return static_cast<size_t>(found - names.begin());
}

Tensor Csv::numbers(const std::string& name) const {
  const size_t column = this->column(name);
  std::vector<float> values;
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::string& text = rows[row][column];
    const std::optional<float> value = number_of(text);
    GRADUS_CHECK(value, ValueError, "column '", name, "', row ", row + 1, ": '", text,
                 "' is not a number; for columns of words use categories()");
    values.push_back(*value);
  }
  return tensor(values, kFloat);
}

std::pair<Tensor, std::vector<std::string>> Csv::categories(const std::string& name) const {
  const size_t column = this->column(name);
  std::map<std::string, int64_t> numbers;
  std::vector<std::string> words;
  std::vector<int64_t> codes;
  for (const auto& row : rows) {
    const auto [place, is_new] = numbers.try_emplace(row[column], std::ssize(words));
    if (is_new) words.push_back(row[column]);
    codes.push_back(place->second);
  }
  return {tensor(codes), words};
}

Csv parse_csv(std::string_view text, const std::string& name, char separator) {
  const OpContext context("read_csv");
  CsvReader reader(text, name, separator);
  Csv table;
  GRADUS_CHECK(reader.next(table.names), IoError, "'", name, "' is empty: there is no header");
  std::set<std::string_view> known;
  for (const std::string& column : table.names)
    GRADUS_CHECK(known.insert(column).second, IoError, reader.where(), "two columns have the name '", column, "'");
  for (std::vector<std::string> row; reader.next(row);) {
    GRADUS_CHECK(row.size() == table.names.size(), IoError, reader.where(), row.size(), " fields, but the header has ",
                 table.names.size());
    table.rows.push_back(std::move(row));
  }
  return table;
}

Csv read_csv(const std::string& path, char separator) {
  const io::Bytes bytes = io::read_file(path);
  return parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, separator);
}

}  // namespace gradus::data
