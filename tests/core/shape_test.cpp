#include <gradus/core/array/shape.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using gradus::test::contains;

TEST_CASE("Dims holds up to eight values in place") {
  Dims dims{2, 3};
  dims.push_back(4);
  dims.insert(0, 9);
  CHECK(dims == Dims{9, 2, 3, 4});
  dims.erase(1);
  CHECK(dims == Dims{9, 3, 4});
  dims.resize(4, 7);
  CHECK(dims == Dims(std::vector<int64_t>{9, 3, 4, 7}));
  CHECK(dims.vec() == std::vector<int64_t>{9, 3, 4, 7});
  CHECK(dims.front() == 9);
  CHECK(dims.back() == 7);
  CHECK_FALSE(dims == Dims{9, 3, 4});
  CHECK_FALSE(dims == Dims{9, 3, 4, 8});
  CHECK(Dims().empty());
  CHECK_THROWS_AS(Dims({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  Dims full = Dims::filled(kMaxDims, 1);
  CHECK_THROWS_AS(full.push_back(1), ShapeError);
  CHECK_THROWS_AS(full.resize(9), ShapeError);
  CHECK_THROWS_AS(full.resize(-1), ShapeError);
}

TEST_CASE("shapes print as Python tuples") {
  CHECK(to_string(Shape{}) == "()");
  CHECK(to_string(Shape{3}) == "(3,)");
  CHECK(to_string(Shape{2, 0, 4}) == "(2, 0, 4)");
}

TEST_CASE("numel_of rejects negative sizes and overflow") {
  CHECK(numel_of({}) == 1);
  CHECK(numel_of({2, 3, 4}) == 24);
  CHECK(numel_of({2, 0, 4}) == 0);
  CHECK(numel_of({INT64_MAX}) == INT64_MAX);
  CHECK_THROWS_AS(numel_of({2, -1}), ShapeError);
  CHECK_THROWS_AS(numel_of({INT64_MAX, 2}), ShapeError);
  CHECK_THROWS_AS(numel_of({int64_t{1} << 40, int64_t{1} << 40, 0}), ShapeError);
}

TEST_CASE("sizes that do not fit in 64 bits are rejected") {
  CHECK(checked_sum(INT64_MAX, -1) == INT64_MAX - 1);
  CHECK(checked_product(int64_t{1} << 31, int64_t{1} << 31) == int64_t{1} << 62);
  CHECK(checked_bytes({3, 0, 5}, DType::f64) == 0);
  CHECK(checked_bytes({3, 5}, DType::f16) == 30);
  CHECK_THROWS_WITH(checked_sum(INT64_MAX, 1), contains("9223372036854775807 + 1"));
  CHECK_THROWS_WITH(checked_product(int64_t{1} << 32, int64_t{1} << 32), contains("4294967296 * 4294967296"));
  CHECK_THROWS_WITH(checked_bytes({int64_t{1} << 62}, DType::f32), contains("(4611686018427387904,)"));
  CHECK_THROWS_AS(infer_shape({0, int64_t{1} << 32, int64_t{1} << 32}, 0, {0}), ShapeError);
}

TEST_CASE("row-major and channels-last strides") {
  CHECK(contiguous_strides({2, 3, 4}) == Strides{12, 4, 1});
  CHECK(contiguous_strides({}) == Strides{});
  CHECK(contiguous_strides({2, 0, 4}) == Strides{4, 4, 1});
  CHECK(channels_last_strides({2, 3, 4, 5}) == Strides{60, 1, 15, 3});
  CHECK(channels_last_strides({2, 0, 4, 5}) == Strides{20, 1, 5, 1});  // a size of 0 counts as 1
  CHECK(channels_last_strides({2, 3, 0, 5}) == Strides{15, 1, 15, 3});
  CHECK(channels_last_strides({2, 3, 4, 0}) == Strides{12, 1, 3, 3});
  CHECK(axes_by_stride({60, 1, 15, 3}) == Dims{0, 2, 3, 1});
  CHECK_THROWS_AS(channels_last_strides({2, 3, 4}), ShapeError);
}

TEST_CASE("axes are ordered by falling strides, and in their own order where strides are equal") {
  CHECK(axes_by_stride({1, 12, 4}) == Dims{1, 2, 0});
  CHECK(axes_by_stride({2, 2, 1}) == Dims{0, 1, 2});
  CHECK(axes_by_stride({1, 0, 1, 0}) == Dims{0, 2, 1, 3});
  CHECK(axes_by_stride({0, 0, 0, 0, 0}) == Dims{0, 1, 2, 3, 4});
  CHECK(axes_by_stride({}).empty());
}

TEST_CASE("broadcasting follows NumPy and names both shapes if it fails") {
  CHECK(broadcast_shapes({2, 1, 4}, {3, 1}) == Shape{2, 3, 4});
  CHECK(broadcast_shapes({}, {5}) == Shape{5});
  CHECK(broadcast_shapes({0}, {1}) == Shape{0});
  CHECK(broadcast_shapes({1, 3}, {2, 0, 1}) == Shape{2, 0, 3});
  CHECK_THROWS_WITH(broadcast_shapes({2, 3}, {4, 3}), contains("(2, 3)") && contains("(4, 3)"));
  CHECK_THROWS_AS(broadcast_shapes({2}, {0}), ShapeError);
}

TEST_CASE("axes count from both ends") {
  CHECK(normalize_axis(-1, 3) == 2);
  CHECK(normalize_axis(0, 3) == 0);
  CHECK(normalize_axis(0, 0) == 0);
  CHECK(normalize_axis(-1, 0) == 0);
  CHECK_THROWS_AS(normalize_axis(3, 3), IndexError);
  CHECK_THROWS_WITH(normalize_axis(-4, 3), contains("-3 to 2") && contains("-4"));
  CHECK(axis_mask({}, 3) == 0b111);
  CHECK(axis_mask({0, -1}, 3) == 0b101);
  CHECK(axis_mask({-1}, 0) == 0);
  CHECK_THROWS_AS(axis_mask({1, -2}, 3), ShapeError);
}

TEST_CASE("reduced shapes keep or drop axes") {
  CHECK(reduced_shape({2, 3, 4}, 0b101, true) == Shape{1, 3, 1});
  CHECK(reduced_shape({2, 3, 4}, 0b101, false) == Shape{3});
  CHECK(reduced_shape({2, 3, 4}, 0b111, false) == Shape{});
}

TEST_CASE("one size may be inferred") {
  CHECK(infer_shape({2, -1}, 12, {3, 4}) == Shape{2, 6});
  CHECK(infer_shape({-1}, 0, {0}) == Shape{0});
  CHECK(infer_shape({}, 1, {1, 1}) == Shape{});
  CHECK_THROWS_AS(infer_shape({-1, -1}, 12, {12}), ShapeError);
  CHECK_THROWS_AS(infer_shape({5, -1}, 12, {12}), ShapeError);
  CHECK_THROWS_AS(infer_shape({-2, 6}, 12, {12}), ShapeError);
  CHECK_THROWS_AS(infer_shape({0, -1}, 0, {0}), ShapeError);  // any size would do for -1
  CHECK_THROWS_AS(infer_shape({INT64_MAX, INT64_MAX}, 1, {1}), ShapeError);
  CHECK_THROWS_WITH(infer_shape({5, 5}, 12, {3, 4}), contains("(3, 4)") && contains("(5, 5)"));
}
