// The iterator behind `for (auto& batch : loader)`, which iterates over one epoch of a loader.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>

#include <gradus/core/error.h>

namespace gradus::data {

/// Iterates over the batches that `Loader::next()` returns, until it returns none. Reading or advancing past the last
/// batch is a ValueError.
template <class Loader, class Batch>
class BatchIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;

  BatchIterator() = default;
  explicit BatchIterator(Loader* loader) : loader_(loader) { advance(); }
  Batch& operator*() const {
    check();
    return *batch_;
  }
  Batch* operator->() const { return &**this; }
  BatchIterator& operator++() {
    check();
    advance();
    return *this;
  }
  friend bool operator==(const BatchIterator& a, const BatchIterator& b) { return a.batch_ == b.batch_; }

 private:
  void check() const { GRADUS_CHECK(batch_, ValueError, "a loader's iterator is past the last batch"); }
  void advance() {
    batch_.reset();  // so that the next batch can reuse its memory
    batch_ = loader_->next();
  }

  Loader* loader_ = nullptr;
  std::shared_ptr<Batch> batch_;
};

}  // namespace gradus::data
