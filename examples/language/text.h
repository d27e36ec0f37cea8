// Characters to learn from: those of a file, or of sentences that the program makes up.
#pragma once

#include <gradus/autograd/autograd.h>

#include <string>
#include <vector>

/// Sentences "the red dog likes the old cat, and the red dog runs." of words that are drawn independently: what a
/// reader cannot know is six words of each, so that no model's loss is below `entropy`.
struct Sentences {
  std::string text;
  double entropy;  ///< in nats a character: of a sentence, by the mean length of one
};
Sentences make_sentences(int64_t count, uint64_t seed);

/// A text as numbers: 0, 1, … are its different bytes in ascending order. The first 90 % are to train on.
class Text {
 public:
  /// Less than 10 windows of `length` + 1 characters are a ValueError.
  Text(const std::string& text, int64_t length);

  struct Batch {
    gradus::Tensor tokens, targets;  ///< (N, length) int64; each target is the character behind its token
  };
  /// Windows `begin` … `end` - 1 of those that training step `step` draws from all places of the training text.
  Batch training(uint64_t seed, int64_t step, int64_t begin, int64_t end) const;
  /// At most `count` windows of the test text, one behind the other.
  Batch test(int64_t count) const;

  const std::vector<int64_t>& tokens() const { return tokens_; }
  /// The number of different bytes, rounded up to a multiple of 8: any usual number of ranks can share it.
  int64_t vocabulary() const { return (static_cast<int64_t>(bytes_.size()) + 7) / 8 * 8; }
  std::vector<int64_t> encode(const std::string& text) const;  ///< A byte that the text does not have: a ValueError.
  std::string decode(const std::vector<int64_t>& tokens) const;

 private:
  Batch windows(const std::vector<int64_t>& begins) const;

  const int64_t length_;
  std::string bytes_;
  std::vector<int64_t> tokens_;
  int64_t training_characters_ = 0;
};
