#include <gradus/examples/language/text.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

using namespace gradus;

namespace {

using Words = std::vector<std::string>;
const Words kAdjectives = {"red", "old", "small", "quick", "quiet", "brave", "lazy", "young"};
const Words kNouns = {"dog", "cat", "horse", "bird", "fox", "mouse", "bear", "crow"};
const Words kVerbs = {"likes", "sees", "follows", "hears"};
const Words kEndings = {"runs", "sleeps", "sings", "waits"};

}  // namespace

Sentences make_sentences(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  double nats = 0;
  const auto draw = [&](const Words& words) {
    nats += std::log(static_cast<double>(words.size()));
    return words[random() % words.size()];
  };
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    std::string subject = draw(kAdjectives);
    subject += " " + draw(kNouns);
    text += "the " + subject + " " + draw(kVerbs);
    text += " the " + draw(kAdjectives);
    text += " " + draw(kNouns) + ", and the " + subject + " ";
    text += draw(kEndings) + ".\n";
  }
  return {text, nats / static_cast<double>(text.size())};
}

Text::Text(const std::string& text, int64_t length) : length_(length) {
  const std::set<char> different(text.begin(), text.end());
  bytes_.assign(different.begin(), different.end());
  tokens_ = encode(text);
  const auto characters = static_cast<int64_t>(tokens_.size());
  training_characters_ = characters * 9 / 10;
  GRADUS_CHECK(characters >= 10 * (length + 1), ValueError, "a text of ", characters, " characters is too short for ",
               "windows of ", length, ": give a longer one, or a smaller --context");
}

Text::Batch Text::windows(const std::vector<int64_t>& begins) const {
  std::vector<int64_t> all;
  for (const int64_t begin : begins)
    all.insert(all.end(), tokens_.begin() + begin, tokens_.begin() + begin + length_ + 1);
  const Tensor both = tensor(all).view({static_cast<int64_t>(begins.size()), length_ + 1});  // (N, length + 1)
  return {both.narrow(1, 0, length_).contiguous(), both.narrow(1, 1, length_).contiguous()};
}

Text::Batch Text::training(uint64_t seed, int64_t step, int64_t begin, int64_t end) const {
  std::seed_seq both{seed, static_cast<uint64_t>(step)};
  std::mt19937_64 random(both);
  std::vector<int64_t> begins(static_cast<size_t>(end));
  for (int64_t& at : begins)
    at = static_cast<int64_t>(random() % static_cast<uint64_t>(training_characters_ - length_));
  begins.erase(begins.begin(), begins.begin() + begin);
  return windows(begins);
}

Text::Batch Text::test(int64_t count) const {
  std::vector<int64_t> begins;
  for (int64_t at = training_characters_; at + length_ < static_cast<int64_t>(tokens_.size()) && count > 0;
       at += length_, --count)
    begins.push_back(at);
  return windows(begins);
}

std::vector<int64_t> Text::encode(const std::string& text) const {
  std::vector<int64_t> tokens;
  for (const char byte : text) {
    const size_t place = bytes_.find(byte);
    GRADUS_CHECK(place != std::string::npos, ValueError, "the text has no '", byte, "', so a model of it knows none");
    tokens.push_back(static_cast<int64_t>(place));
  }
  return tokens;
}

std::string Text::decode(const std::vector<int64_t>& tokens) const {
  std::string text;
  for (const int64_t token : tokens)
    text += token < static_cast<int64_t>(bytes_.size()) ? bytes_[static_cast<size_t>(token)] : '?';
  return text;
}
