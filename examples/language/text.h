// Text for training: from a file, or random sentences that the program makes.
#pragma once

#include <gradus/autograd/autograd.h>

#include <string>
#include <vector>

/// Random sentences like "the red dog likes the old cat, and the red dog runs." Six words of each sentence are drawn
/// independently and cannot be predicted, so no model can have a loss below `entropy`.
struct Sentences {
  std::string text;
  double entropy;  ///< in nats per character: the entropy of a sentence divided by the mean length of a sentence
};
Sentences make_sentences(int64_t count, uint64_t seed);

/// A text as tokens: its different bytes in ascending order are numbered 0, 1, … The first 90 % of the text are for
/// training, the last 10 % for testing.
class Text {
 public:
  /// A text that is shorter than 10 windows of `length` + 1 characters is a ValueError.
  Text(const std::string& text, int64_t length);

  struct Batch {
    gradus::Tensor tokens, targets;  ///< (N, length) int64; each target is the character after its token
  };
  /// Each training step draws windows at random positions of the training text. Returns the windows `begin` to `end` -
  /// 1 of step `step`.
  Batch training(uint64_t seed, int64_t step, int64_t begin, int64_t end) const;
  /// Returns at most `count` consecutive windows of the test text.
  Batch test(int64_t count) const;

  const std::vector<int64_t>& tokens() const { return tokens_; }
  /// The number of different bytes, rounded up to a multiple of 8, so that up to 8 ranks can divide it.
  int64_t vocabulary() const { return (static_cast<int64_t>(bytes_.size()) + 7) / 8 * 8; }
  std::vector<int64_t> encode(const std::string& text) const;  ///< a byte that is not in the text is a ValueError
  std::string decode(const std::vector<int64_t>& tokens) const;

 private:
  Batch windows(const std::vector<int64_t>& begins) const;

  const int64_t length_;
  std::string bytes_;
  std::vector<int64_t> tokens_;
  int64_t training_characters_ = 0;
};
