// How `for (auto& batch : loader)` walks over a loader's epoch.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>

namespace gradus::data {

/// Over the batches that `Loader::next()` returns until it returns none.
template <class Loader, class Batch>
class BatchIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;

  BatchIterator() = default;
  explicit BatchIterator(Loader* loader) : loader_(loader) { ++*this; }
  Batch& operator*() const { return *batch_; }
  Batch* operator->() const { return batch_.get(); }
  BatchIterator& operator++() {
    batch_.reset();  // its memory serves the next one
    batch_ = loader_->next();
    return *this;
  }
  friend bool operator==(const BatchIterator& a, const BatchIterator& b) { return a.batch_ == b.batch_; }

 private:
  Loader* loader_ = nullptr;
  std::shared_ptr<Batch> batch_;
};

}  // namespace gradus::data
