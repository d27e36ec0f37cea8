// Conversion of a tensor's element or a Scalar to a C++ type: a value that does not fit is an error, as in PyTorch.
#include <limits>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

template <class T>
T item_of(double value) {
  return full({}, value, kDouble).item<T>();
}

}  // namespace

TEST_CASE("item of a value that the type cannot represent is an error") {
  CHECK_THROWS_WITH(full({1}, 1e20).item<int>(),
                    contains("[item]") && contains("cannot be converted to type int32 without overflow"));
  CHECK_THROWS_AS(item_of<int64_t>(1e20), ValueError);
  CHECK_THROWS_AS(item_of<int64_t>(0x1p63), ValueError);
  CHECK(item_of<int64_t>(-0x1p63) == std::numeric_limits<int64_t>::min());
  CHECK_THROWS_AS(item_of<int>(2147483648.0), ValueError);
  CHECK(item_of<int>(2147483647.0) == 2147483647);
  CHECK(item_of<int>(-2147483648.0) == std::numeric_limits<int>::min());
  CHECK(item_of<int>(-2.9) == -2);
  for (const double value : {kNaN, kInf, -kInf}) {
    CHECK_THROWS_AS(item_of<int>(value), ValueError);
    CHECK_THROWS_AS(item_of<int64_t>(value), ValueError);
    CHECK_THROWS_AS(item_of<uint8_t>(value), ValueError);
    CHECK_THROWS_AS(item_of<int16_t>(value), ValueError);
    CHECK(item_of<bool>(value));
  }
  CHECK_THROWS_AS(item_of<uint8_t>(256), ValueError);
  CHECK_THROWS_AS(item_of<uint8_t>(255.5), ValueError);
  CHECK_THROWS_AS(item_of<uint8_t>(-1), ValueError);
  CHECK_THROWS_AS(item_of<uint8_t>(-0.5), ValueError);
  CHECK(item_of<uint8_t>(255) == 255);
  CHECK_THROWS_AS(item_of<int8_t>(128), ValueError);
  CHECK_THROWS_AS(item_of<uint64_t>(-1), ValueError);
  CHECK(item_of<uint64_t>(0x1p62) == uint64_t{1} << 62);
  CHECK_THROWS_AS(item_of<float>(1e300), ValueError);
  CHECK(item_of<float>(kInf) == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(item_of<float>(kNaN)));
  CHECK_THROWS_AS(item_of<Half>(65510), ValueError);
  CHECK_THROWS_AS(item_of<BFloat16>(3.4e38), ValueError);
}

TEST_CASE("item of an integer wraps only for unsigned types") {
  const auto of = [](int64_t value) { return tensor({value}, kLong); };
  CHECK_THROWS_AS(of(int64_t{1} << 31).item<int>(), ValueError);
  CHECK_THROWS_AS(of(-(int64_t{1} << 31) - 1).item<int>(), ValueError);
  CHECK_THROWS_AS(of(300).item<uint8_t>(), ValueError);
  CHECK_THROWS_AS(of(-256).item<uint8_t>(), ValueError);
  CHECK(of(-1).item<uint8_t>() == 255);
  CHECK(of(-255).item<uint8_t>() == 1);
  CHECK(of(-1).item<uint64_t>() == std::numeric_limits<uint64_t>::max());
  CHECK_THROWS_AS(of(70000).item<Half>(), ValueError);
  CHECK(of(70000).item<float>() == 70000);
  CHECK(of(300).item<bool>());
}

TEST_CASE("conversions of a Scalar follow the rules of item") {
  CHECK_THROWS_AS(Scalar(1e20).toInt(), ValueError);
  CHECK_THROWS_AS(Scalar(1e20).toLong(), ValueError);
  CHECK_THROWS_AS(Scalar(kNaN).toLong(), ValueError);
  CHECK_THROWS_AS(Scalar(1e300).toFloat(), ValueError);
  CHECK_THROWS_AS(Scalar(int64_t{1} << 40).toInt(), ValueError);
  CHECK(Scalar(2.5).toInt() == 2);
  CHECK(Scalar(1e300).toDouble() == 1e300);
  CHECK(Scalar(kNaN).toBool());
}

TEST_CASE("numbers that do not fit an operator's type are errors as in PyTorch") {
  const Tensor u8 = tensor({5}, kByte), i32 = tensor({5}, kInt), i64 = tensor({5}, kLong), f32 = tensor({5}, kFloat),
               f16 = tensor({5}, kHalf), yes = tensor({1}, kBool), at = tensor({0}, kLong);
  for (const Scalar& value : {Scalar(300), Scalar(-256), Scalar(256.0), Scalar(-1.0), Scalar(kNaN), Scalar(kInf)}) {
    CHECK_THROWS_AS(u8.clone().fill_(value), ValueError);
    CHECK_THROWS_AS(full({2}, value, kByte), ValueError);
    CHECK_THROWS_AS(full_like(u8, value), ValueError);
    CHECK_THROWS_AS(u8.new_full({1}, value), ValueError);
    CHECK_THROWS_AS(u8.masked_fill(yes, value), ValueError);
    CHECK_THROWS_AS(u8.index_fill(0, at, value), ValueError);
    CHECK_THROWS_AS(u8.scatter(0, at, value), ValueError);
    CHECK_THROWS_AS(pad(u8, {1, 1}, PadMode::constant, value.to_double()), ValueError);
  }
  CHECK(u8.clone().fill_(-1).item<int>() == 255);
  CHECK(u8.masked_fill(yes, -1).item<int>() == 255);
  CHECK_THROWS_AS(i32.masked_fill(yes, 1e20), ValueError);
  CHECK_THROWS_AS(i64.clone().fill_(1e20), ValueError);
  CHECK_THROWS_AS(f16.masked_fill(yes, 1e5), ValueError);
  CHECK_THROWS_AS(f32.clone().fill_(1e300), ValueError);
  CHECK(f16.masked_fill(yes, kInf).item<float>() == static_cast<float>(kInf));
  CHECK_THROWS_AS(arange(0, 3, 1e20, kLong), ValueError);
  for (const double never : {kInf, -kInf, std::nan("")}) {
    CHECK_THROWS_WITH(arange(never, 3, 1.0), contains("must be finite"));
    CHECK_THROWS_WITH(arange(0, never, 1.0), contains("must be finite"));
    CHECK_THROWS_WITH(arange(0, 3, never), contains("must be finite"));
  }
  CHECK_THROWS_AS(where(yes, u8, 300), ValueError);
  CHECK_THROWS_AS(where(yes, 300, u8), ValueError);
  CHECK_THROWS_AS(add(u8, u8, 300), ValueError);
  CHECK_THROWS_AS(sub(u8, u8, 300), ValueError);
  CHECK_THROWS_AS(add(i64, i64, 2.5), ValueError);
  CHECK_THROWS_AS(u8.addcmul(u8, u8, 300), ValueError);
  CHECK_THROWS_AS(f32.addcmul(f32, f32, 1e300), ValueError);
  CHECK_THROWS_AS(u8.pow(300), ValueError);
  CHECK((u8 + 300).item<int>() == 49);  // operators wrap, as in PyTorch
  CHECK((u8 * 300).item<int>() == (5 * 300) % 256);
}
