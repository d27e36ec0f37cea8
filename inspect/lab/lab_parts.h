// What the pages of lab.h are made of.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gradus/core/array/view.h>

namespace gradus::training::detail {

/// The first `count` elements of an array of the CPU as "1 0.5 nan", each so that it is read back to the same bits.
std::string first_numbers(const View& x, int64_t count);

/// Pages have so many bytes of rows and texts at most: then no more rows follow.
inline constexpr size_t kMostBytes = 24 << 20;

/// Texts of a page, each once: rows have their numbers.
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

/// The page of data in JSON, with `picture` as it is. What the data hold cannot become a part of the page's HTML.
std::string lab_page(const std::string& title, const std::string& picture, const std::string& json);

}  // namespace gradus::training::detail
