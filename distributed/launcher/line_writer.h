// Lines for a file that may be read slowly, or not at all.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace gradus::dist {

/// Writes lines to a descriptor on a thread of its own, so that whoever has lines never waits for whoever reads them.
/// (A non-blocking descriptor would be so for every process that shares it, the user's shell among them.)
class LineWriter {
 public:
  explicit LineWriter(int descriptor);
  /// Does not wait for what is not written yet.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// Takes any line at once; full() says when it is better to have no more for a while.
  void put(std::string_view line);
  bool full() const { return waiting() >= (1 << 20); }
  /// Bytes that are not written yet.
  size_t waiting() const;
  /// Bytes that left, written or lost: what grows while somebody reads.
  size_t gone() const;
  /// A descriptor that becomes readable when nothing waits any more, until acknowledge().
  int emptied() const;
  void acknowledge();

  /// Drops what waits and all that comes, because of `cause`.
  void give_up(std::string_view cause);
  /// "<number> bytes were lost: <cause>", "" if none were.
  std::string losses() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's too: it may be in a write that never returns
};

/// Writes all of `text`, waiting for as long as it takes. Returns the number of bytes that were written, fewer than
/// there are after an error, which errno says.
size_t write_all(int descriptor, std::string_view text);

}  // namespace gradus::dist
