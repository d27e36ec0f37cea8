#include <cmath>
#include <limits>

#include <gradus/core/array/scalar.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/device.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using gradus::test::contains;

namespace {

template <class T>
T from_bits(uint16_t bits) {
  T x;
  x.bits = bits;
  return x;
}

// Rounds a double to nearest, ties to even, as a type with `digits` bits of mantissa after the leading one and the
// smallest exponent `lowest`.
double rounded(double x, int digits, int lowest, double largest) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), lowest);
  const double ulp = std::ldexp(1.0, exponent - digits);
  const double result = std::nearbyint(x / ulp) * ulp;
  return std::abs(result) > largest ? std::copysign(INFINITY, x) : result;
}

}  // namespace

TEST_CASE("every half and bfloat16 pattern survives a round trip through float") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t pattern = static_cast<uint16_t>(bits);
    const Half half = from_bits<Half>(pattern);
    const BFloat16 brain = from_bits<BFloat16>(pattern);
    const float h = half, b = brain;
    if (std::isnan(h)) CHECK(std::isnan(static_cast<float>(Half(h))));
    else if (Half(h).bits != pattern) FAIL("half pattern " << bits);
    if (std::isnan(b)) CHECK(std::isnan(static_cast<float>(BFloat16(b))));
    else if (BFloat16(b).bits != pattern) FAIL("bfloat16 pattern " << bits);
  }
}

TEST_CASE("half and bfloat16 have their IEEE values") {
  CHECK(static_cast<float>(from_bits<Half>(0x3c00)) == 1.0f);
  CHECK(static_cast<float>(from_bits<Half>(0xc000)) == -2.0f);
  CHECK(static_cast<float>(from_bits<Half>(0x7bff)) == 65504.0f);
  CHECK(static_cast<float>(from_bits<Half>(0x0001)) == std::ldexp(1.0f, -24));
  CHECK(static_cast<float>(from_bits<Half>(0x0400)) == std::ldexp(1.0f, -14));
  CHECK(static_cast<float>(from_bits<Half>(0x7c00)) == INFINITY);
  CHECK(std::signbit(static_cast<float>(from_bits<Half>(0x8000))));
  CHECK(static_cast<float>(from_bits<BFloat16>(0x3f80)) == 1.0f);
  CHECK(static_cast<float>(from_bits<BFloat16>(0xff80)) == -INFINITY);
  CHECK(static_cast<float>(Half(65519.9f)) == 65504.0f);
  CHECK(static_cast<float>(Half(65520.0f)) == INFINITY);
  CHECK(Half(std::ldexp(1.0f, -25)).bits == 0);  // half of the smallest number: a tie, rounds to zero
  CHECK(Half(std::nextafter(std::ldexp(1.0f, -25), 1.0f)).bits == 1);
  CHECK(std::isnan(static_cast<float>(BFloat16(NAN))));
  CHECK(static_cast<float>(BFloat16(std::numeric_limits<float>::max())) == INFINITY);
}

TEST_CASE("conversion to half and bfloat16 rounds to nearest even") {
  for (uint32_t bits = 0; bits < 0xffffffffu - 9973; bits += 9973) {
    float x;
    std::memcpy(&x, &bits, 4);
    if (std::isnan(x)) continue;
    if (static_cast<float>(Half(x)) != static_cast<float>(rounded(x, 10, -14, 65504))) FAIL("half of " << x);
    if (static_cast<float>(BFloat16(x)) != static_cast<float>(rounded(x, 7, -126, 0x1.fep127)))
      FAIL("bfloat16 of " << x);
  }
  // All ties between two neighbouring numbers.
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = from_bits<Half>(static_cast<uint16_t>(bits));
    const float high = from_bits<Half>(static_cast<uint16_t>(bits + 1));
    if (Half((low + high) / 2).bits != (bits & 1 ? bits + 1 : bits)) FAIL("tie above half pattern " << bits);
  }
}

TEST_CASE("dtypes have names, sizes and kinds") {
  CHECK(name(DType::bf16) == "bfloat16");
  CHECK(type_name(DType::i64) == "Long");
  CHECK(size_of(DType::f64) == 8);
  CHECK(size_of(DType::boolean) == 1);
  CHECK(is_floating(DType::bf16));
  CHECK_FALSE(is_floating(DType::i64));
  CHECK(is_integral(DType::u8));
  CHECK_FALSE(is_integral(DType::boolean));
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    visit(dtype, [&]<class T> {
      CHECK(dtype_of<T> == dtype);
      CHECK(sizeof(T) == size_of(dtype));
    });
  }
  CHECK_THROWS_WITH(visit_floating(DType::i32, []<class T> {}), contains("floating") && contains("int32"));
  CHECK_THROWS_AS(visit_numeric(DType::boolean, []<class T> {}), DTypeError);
  CHECK_THROWS_AS(visit(static_cast<DType>(99), []<class T> {}), DTypeError);
}

TEST_CASE("promotion is torch.promote_types") {
  // Rows and columns: f32 f64 f16 bf16 i64 i32 u8 bool.
  constexpr DType f32 = DType::f32, f64 = DType::f64, f16 = DType::f16, bf16 = DType::bf16, i64 = DType::i64,
                  i32 = DType::i32, u8 = DType::u8, b = DType::boolean;
  const DType table[8][8] = {{f32, f64, f32, f32, f32, f32, f32, f32},  {f64, f64, f64, f64, f64, f64, f64, f64},
                             {f32, f64, f16, f32, f16, f16, f16, f16},  {f32, f64, f32, bf16, bf16, bf16, bf16, bf16},
                             {f32, f64, f16, bf16, i64, i64, i64, i64}, {f32, f64, f16, bf16, i64, i32, i32, i32},
                             {f32, f64, f16, bf16, i64, i32, u8, u8},   {f32, f64, f16, bf16, i64, i32, u8, b}};
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) CHECK(promote_types(static_cast<DType>(i), static_cast<DType>(j)) == table[i][j]);
  CHECK(promote_with_scalar(DType::f16, 2.5) == DType::f16);
  CHECK(promote_with_scalar(DType::i32, 2.5) == DType::f32);
  CHECK(promote_with_scalar(DType::u8, 300) == DType::u8);
  CHECK(promote_with_scalar(DType::boolean, 1) == DType::i64);
  CHECK(promote_with_scalar(DType::boolean, true) == DType::boolean);
}

TEST_CASE("a Scalar keeps its kind and converts without undefined behaviour") {
  CHECK(Scalar(true).kind() == Scalar::Kind::boolean);
  CHECK(Scalar(3).kind() == Scalar::Kind::integer);
  CHECK(Scalar(3.0f).kind() == Scalar::Kind::floating);
  CHECK(Scalar(Half(1.5f)).to_double() == 1.5);
  CHECK(Scalar(int64_t{1} << 60 | 1).to_int64() == (int64_t{1} << 60 | 1));
  CHECK(Scalar(-2.9).to_int64() == -2);
  CHECK(Scalar(1e30).to_int64() == INT64_MAX);
  CHECK(Scalar(-1e30).to_int64() == INT64_MIN);
  CHECK(Scalar(NAN).to_int64() == 0);
  CHECK(Scalar(0.1).to<bool>());
  CHECK(Scalar(258).cast<uint8_t>() == 2);
  CHECK_THROWS_WITH(Scalar(258).to<uint8_t>(), test::contains("258 cannot be converted to type uint8"));
  CHECK(Scalar(2.5).dtype() == DType::f32);
  CHECK(Scalar(2).dtype() == DType::i64);
}

TEST_CASE("element conversion saturates through int64, maps nonzero to true, rounds half types once") {
  using scalar::convert;
  CHECK(convert<int32_t>(-3.9f) == -3);
  CHECK(convert<int64_t>(0x1p63) == INT64_MAX);
  CHECK(convert<int64_t>(-0x1p63) == INT64_MIN);
  CHECK(convert<int64_t>(-INFINITY) == INT64_MIN);
  CHECK(convert<int32_t>(static_cast<double>(NAN)) == 0);
  CHECK(convert<uint8_t>(-1.0) == 255);
  CHECK(convert<bool>(0.25f));
  CHECK(convert<bool>(static_cast<float>(NAN)));
  CHECK_FALSE(convert<bool>(Half(-0.0f)));
  CHECK(static_cast<float>(convert<Half>(int64_t{2049})) == 2048.0f);
  CHECK(convert<int64_t>(BFloat16(-7.5f)) == -7);
}

TEST_CASE("devices parse and print") {
  CHECK(Device("cpu") == Device());
  CHECK(Device("cuda") == Device(kCUDA));  // both mean the current device
  CHECK(Device("cuda").index() == -1);
  CHECK(Device("cuda").str() == "cuda");
  CHECK_FALSE(Device("cuda") == Device("cuda:0"));
  CHECK(Device("cuda:12").index() == 12);
  CHECK(Device("cuda:1").str() == "cuda:1");
  CHECK(Device("cpu").str() == "cpu");
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:x", "cuda:007", "cuda:-1", "cuda:123", "cpu:1", "CPU"})
    CHECK_THROWS_WITH(Device(wrong), contains("unknown device"));
}
