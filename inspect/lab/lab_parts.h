// Parts of the pages of lab.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gradus/core/array/view.h>

namespace gradus::training::detail {

/// The first `count` elements of a CPU array as "1 0.5 nan", with enough digits to restore every bit.
std::string first_numbers(const View& x, int64_t count);

/// Maximum size of rows and texts in a page, in bytes. Further rows are left out.
inline constexpr size_t kMostBytes = 24 << 20;

/// The texts of a page without duplicates; rows refer to them by number.
class Texts {
 public:
  size_t operator()(const std::string& text) {
    const auto [entry, is_new] = numbers_.try_emplace(text, numbers_.size());
    if (is_new) list_.push_back(text), bytes_ += text.size() + 4;
    return entry->second;
  }
  const std::vector<std::string>& list() const { return list_; }
  size_t bytes() const { return bytes_; }

 private:
  std::map<std::string, size_t> numbers_;
  std::vector<std::string> list_;
  size_t bytes_ = 0;
};

/// Makes a page with data in JSON; `picture` is HTML. Data are escaped so that they cannot become part of the page's
/// HTML.
std::string lab_page(const std::string& title, const std::string& picture, const std::string& json);

}  // namespace gradus::training::detail
