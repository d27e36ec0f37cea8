// Writes lines to a file whose reader may be slow or absent.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace gradus::dist {

/// Writes lines to a descriptor on a thread of its own, so that the thread that has lines never waits for their reader.
/// A non-blocking descriptor would not do: it would be non-blocking for every process that shares it, such as the
/// user's shell.
class LineWriter {
 public:
  explicit LineWriter(int descriptor);
  /// Does not wait for lines that are not written yet.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// Accepts any line at once. full() says when the caller should send no more for a while.
  void put(std::string_view line);
  bool full() const { return waiting() >= (1 << 20); }
  /// Number of bytes that are not written yet.
  size_t waiting() const;
  /// Number of bytes that were written or lost. It grows while there is a reader.
  size_t completed() const;
  /// A descriptor that becomes readable when no bytes are waiting any more, until acknowledge().
  int emptied() const;
  void acknowledge();

  /// Drops the waiting lines and all later ones, because of `cause`.
  void give_up(std::string_view cause);
  /// "<number> bytes of <what> were lost: <cause>"; "" if none were.
  std::string losses(std::string_view what) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may be in a write that never returns
};

/// Writes all of `text`, however long that takes. Returns the number of bytes that were written, which is smaller than
/// the length of the text after an error. The error is in errno.
size_t write_all(int descriptor, std::string_view text);

}  // namespace gradus::dist
