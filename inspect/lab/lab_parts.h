// Parts of the pages of lab.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gradus/core/array/view.h>

namespace gradus::training::detail {

/// The first `count` elements of an array on the CPU as text such as "1 0.5 nan", with enough digits to restore all
/// bits.
std::string first_numbers(const View& x, int64_t count);

/// The limit for the rows and texts of a page in bytes. Further rows are left out.
inline constexpr size_t kMostBytes = 24 << 20;

/// The texts of a page. Each is stored once, and rows refer to it by number.
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

/// The page for data in JSON. `picture` is HTML and is inserted unchanged. The data are escaped, so that their texts
/// cannot become a part of the page's HTML.
std::string lab_page(const std::string& title, const std::string& picture, const std::string& json);

}  // namespace gradus::training::detail
