#include <gradus/data/datasets/synthetic_digits.h>

#include <gradus/core/parallel/parallel.h>
#include <gradus/data/datasets/draw_digit.h>

namespace gradus::data::datasets {
namespace {

struct Sheets {
  Array images, labels;
};

Sheets draw(size_t count, uint64_t seed, uint64_t first) {
  const int64_t n = static_cast<int64_t>(count);
  const Sheets sheets = {Array::empty({n, 1, kDigitSize, kDigitSize}, DType::u8), Array::empty({n}, DType::u8)};
  uint8_t* pixels = sheets.images.data<uint8_t>();
  uint8_t* labels = sheets.labels.data<uint8_t>();
  parallel_for(n, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      labels[i] = static_cast<uint8_t>(
          draw_digit(seed, first + static_cast<uint64_t>(i), pixels + i * kDigitSize * kDigitSize));
  });
  return sheets;
}

ImageDataset make(size_t count, uint64_t seed, ImageDataset::Mode mode) {
  constexpr uint64_t kFirstTestIndex = uint64_t{1} << 32;
  GRADUS_CHECK(count < kFirstTestIndex, ValueError, "at most 2^32 - 1 digits, got ", count);
  const Sheets sheets = draw(count, seed, mode == ImageDataset::kTrain ? 0 : kFirstTestIndex);
  return ImageDataset(sheets.images, sheets.labels, 10, mode, "synthetic digits");
}

}  // namespace

SyntheticDigits::SyntheticDigits(size_t count, uint64_t seed, Mode mode) : ImageDataset(make(count, seed, mode)) {}

}  // namespace gradus::data::datasets
