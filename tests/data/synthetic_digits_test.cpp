#include <zlib.h>

#include <gradus/autograd/autograd.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/data/datasets/mnist.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using data::datasets::SyntheticDigits;

namespace {
unsigned long checksum(const SyntheticDigits& digits) {
  const Array& bytes = digits.bytes();
  return crc32(0, static_cast<const Bytef*>(bytes.data()), static_cast<unsigned>(bytes.nbytes()));
}
}  // namespace

TEST_CASE("synthetic digits are the same on every machine", "[data][digits]") {
  const SyntheticDigits digits(400, 7);
  CHECK(checksum(digits) == 0xe8476cafu);
  const int threads = num_threads();
  for (int count : {1, 3}) {
    set_num_threads(count);
    CHECK(checksum(SyntheticDigits(400, 7)) == checksum(digits));
  }
  set_num_threads(threads);
}

TEST_CASE("synthetic digits: a sample depends only on seed, split and index", "[data][digits]") {
  SyntheticDigits few(20, 3), many(50, 3), other_seed(20, 4), test(20, 3, SyntheticDigits::kTest);
  CHECK(few.images().equal(many.images().slice(0, 0, 20)));
  CHECK(few.targets().equal(many.targets().slice(0, 0, 20)));
  CHECK_FALSE(few.images().equal(other_seed.images()));
  CHECK_FALSE(few.images().equal(test.images()));
  CHECK(few.get(7).data.equal(few.images()[7]));
  CHECK(few.size() == 20u);
  CHECK_FALSE(test.is_train());
}

TEST_CASE("synthetic digits: all classes occur, every image has ink and a dark background", "[data][digits]") {
  const SyntheticDigits digits(2000);
  std::vector<int> counts(10);
  for (int64_t i = 0; i < 2000; ++i) ++counts[static_cast<size_t>(digits.targets().data_ptr<int64_t>()[i])];
  for (int count : counts) {
    CHECK(count > 150);
    CHECK(count < 250);
  }
  const uint8_t* pixels = digits.bytes().data<uint8_t>();
  for (int64_t i = 0; i < 2000; ++i) {
    int bright = 0;
    for (int64_t k = 0; k < 784; ++k) bright += pixels[i * 784 + k] > 128;
    CHECK(bright > 15);
    CHECK(bright < 350);
  }
}
