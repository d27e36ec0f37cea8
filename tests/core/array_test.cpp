#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/core/array/strided_loop.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using gradus::test::contains;

namespace {

// Returns an int64 array with the elements 0, 1, 2, … in memory order.
Array counting(const Shape& shape) {
  const Array x = Array::empty(shape, DType::i64);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int64_t>()[i] = i;
  return x;
}

// Returns the elements of x in logical order. Their addresses are computed here from the strides, without the library.
std::vector<int64_t> elements(const Array& x) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t rest = i, at = 0;
    for (int axis = x.ndim() - 1; axis >= 0; --axis) {
      at += rest % x.size(axis) * x.stride(axis);
      rest /= x.size(axis);
    }
    out.push_back(x.data<int64_t>()[at]);
  }
  return out;
}

}  // namespace

TEST_CASE("new arrays have the requested layout") {
  const Array x = Array::empty({2, 3, 4, 5}, DType::f16, {}, MemoryFormat::channels_last);
  CHECK(x.strides() == Strides{60, 1, 15, 3});
  CHECK(x.is_contiguous(MemoryFormat::channels_last));
  CHECK_FALSE(x.is_contiguous());
  CHECK(x.is_dense());
  CHECK(x.nbytes() == 240);
  CHECK(Array::empty_like(x).strides() == x.strides());
  CHECK(Array::empty_like(x, DType::f64).dtype() == DType::f64);
  CHECK(Array::empty_like(x.slice(1, 0, 2)).is_contiguous());
  CHECK_FALSE(Array().defined());
  CHECK(Array::empty({0, 3}).numel() == 0);
  CHECK(Array::empty({}).numel() == 1);
  CHECK_THROWS_AS(Array::empty({int64_t{1} << 61}, DType::f64), ShapeError);
  CHECK_THROWS_AS(Array::empty({2, -1}), ShapeError);
  CHECK(Array::empty_strided({2, 3}, {1, 2}, DType::f32).is_dense());
  CHECK_THROWS_AS(Array::empty_strided({2, 3}, {1, 1}, DType::f32), ShapeError);
  CHECK_THROWS_AS(Array::empty_strided({2, 3}, {6, 2}, DType::f32), ShapeError);
  CHECK_THROWS_AS(Array::empty_strided({2, 3}, {1}, DType::f32), ShapeError);
}

TEST_CASE("typed access checks the type") {
  const Array x = Array::empty({2}, DType::f32);
  CHECK(x.data<float>() == x.data());
  CHECK_THROWS_WITH(x.data<double>(), contains("float64") && contains("float32"));
}

TEST_CASE("transpose, permute, squeeze and unsqueeze only change the view") {
  const Array x = counting({2, 3, 4});
  CHECK(elements(x.transpose(0, -1).select(1, 0)) == std::vector<int64_t>{0, 12, 1, 13, 2, 14, 3, 15});
  CHECK(x.permute({2, 0, 1}).shape() == Shape{4, 2, 3});
  CHECK(x.permute({2, 0, -2}).strides() == Strides{1, 12, 4});
  CHECK(x.permute({2, 0, 1}).storage() == x.storage());
  CHECK_THROWS_AS(x.permute({0, 1}), ShapeError);
  CHECK_THROWS_AS(x.permute({0, 1, 1}), ShapeError);
  CHECK_THROWS_AS(x.transpose(0, 3), IndexError);
  CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 4, 1});
  CHECK(x.unsqueeze(0).squeeze(0).shape() == x.shape());
  CHECK(x.squeeze(1).shape() == x.shape());
  CHECK(elements(x.unsqueeze(1)) == elements(x));
  const Array scalar = counting({});
  CHECK(scalar.transpose(0, -1).ndim() == 0);
  CHECK(scalar.unsqueeze(0).shape() == Shape{1});
  CHECK(scalar.squeeze(0).ndim() == 0);
}

TEST_CASE("slice follows Python's rules") {
  const Array x = counting({10});
  CHECK(elements(x.slice(0, 2, 8, 3)) == std::vector<int64_t>{2, 5});
  CHECK(elements(x.slice(0, -3, 100)) == std::vector<int64_t>{7, 8, 9});
  CHECK(elements(x.slice(0, 8, 2)).empty());
  CHECK(elements(x.slice(0, 100, 200)).empty());
  CHECK(elements(x.slice(0, -100, INT64_MAX, INT64_MAX)) == std::vector<int64_t>{0});
  CHECK(elements(x.slice(0, 1, 10, 2).slice(0, 1, 5, 2)) == std::vector<int64_t>{3, 7});
  CHECK(x.view({5, 2}).slice(0, 1, 5, INT64_MAX).strides() == Strides{2, 1});  // one element, so the step is not used
  // A slice without elements does not point beyond the storage.
  CHECK(x.slice(0, 10, 10).offset() == 0);
  CHECK(x.slice(0, 4, 9).slice(0, 5, 5).offset() == 4);
  CHECK(x.view({5, 2}).slice(0, 5, 5).slice(1, 2, 2).offset() == 0);
  CHECK_THROWS_AS(x.slice(0, 0, 1, 0), ValueError);
  CHECK_THROWS_AS(x.slice(1, 0, 1), IndexError);
  CHECK_THROWS_AS(counting({}).slice(0, 0, 1), IndexError);
  CHECK(x.select(0, -1).data<int64_t>()[0] == 9);
  CHECK_THROWS_AS(x.select(0, 10), IndexError);
  CHECK_THROWS_WITH(x.select(0, -11), contains("-11") && contains("size 10"));
}

TEST_CASE("a scalar has no axis to slice or to index") {
  const Array scalar = Array::empty({});
  CHECK_THROWS_WITH(scalar.slice(0, 0, 1), test::contains("cannot slice a scalar"));
  CHECK_THROWS_WITH(scalar.select(0, 0), test::contains("cannot index a scalar"));
}

TEST_CASE("expand repeats axes of size one without a copy") {
  const Array x = counting({3, 1});
  const Array y = x.expand({2, -1, 4});
  CHECK(y.shape() == Shape{2, 3, 4});
  CHECK(y.strides() == Strides{0, 1, 0});
  CHECK(y.may_overlap());
  CHECK_FALSE(y.is_dense());
  CHECK(elements(y.select(0, 1).select(1, 3)) == std::vector<int64_t>{0, 1, 2});
  CHECK(counting({1}).expand({0}).numel() == 0);
  CHECK_THROWS_WITH(x.expand({4, 4}), contains("(3, 1)") && contains("(4, 4)"));
  CHECK_THROWS_AS(x.expand({3}), ShapeError);
  CHECK_THROWS_AS(x.expand({-1, 3, 4}), ShapeError);
  CHECK_THROWS_AS(x.expand({3, -2}), ShapeError);
}

TEST_CASE("density and overlap") {
  const Array x = counting({4, 6});
  CHECK(x.transpose(0, 1).is_dense());
  CHECK_FALSE(x.slice(1, 0, 3).is_dense());
  CHECK_FALSE(x.slice(1, 0, 3).may_overlap());
  CHECK(x.as_strided({3, 3}, {1, 1}, 0).may_overlap());
  CHECK(x.as_strided({2, 4}, {2, 1}, 0).may_overlap());        // the second row begins inside the first
  CHECK(x.as_strided({2, 2, 2}, {4, 3, 1}, 0).may_overlap());  // element 4 of the storage is also element 3 + 1
  CHECK_FALSE(x.as_strided({2, 2, 2}, {5, 3, 1}, 0).may_overlap());
  CHECK_FALSE(Array::empty({0}).may_overlap());
}

TEST_CASE("as_strided stays inside its storage") {
  const Array x = counting({10});
  CHECK(elements(x.as_strided({2, 3}, {4, 2}, 1)) == std::vector<int64_t>{1, 3, 5, 5, 7, 9});
  CHECK(x.as_strided({0}, {1}, 10).numel() == 0);
  CHECK_THROWS_AS(x.as_strided({2, 3}, {4, 2}, 2), ShapeError);
  CHECK_THROWS_AS(x.as_strided({2}, {-1}, 5), ShapeError);
  CHECK_THROWS_AS(x.as_strided({1}, {1}, -1), ShapeError);
  CHECK_THROWS_AS(x.as_strided({1}, {1}, 10), ShapeError);
  CHECK_THROWS_AS(x.as_strided({0}, {1}, 11), ShapeError);
  CHECK_THROWS_AS(x.as_strided({3, 2}, {INT64_MAX, 1}, 0), ShapeError);
  CHECK_THROWS_AS(x.as_strided({2}, {1, 1}, 0), ShapeError);
  CHECK_THROWS_AS(x.as_strided({-1}, {1}, 0), ShapeError);
}

TEST_CASE("view succeeds exactly if elements can be regrouped without a copy") {
  const Array x = counting({4, 6});
  CHECK(elements(x.view({2, -1})) == elements(x));
  CHECK(x.view({24}).strides() == Strides{1});
  CHECK(x.transpose(0, 1).view({2, 3, 4}).strides() == Strides{3, 1, 6});
  CHECK(elements(x.transpose(0, 1).view({2, 3, 4})) == elements(x.transpose(0, 1)));
  CHECK(x.slice(1, 0, 6, 2).view({12}).strides() == Strides{2});  // one stride fits within and between rows
  CHECK(x.slice(1, 0, 4).view({2, 2, 2, 1, 2}).shape() == Shape{2, 2, 2, 1, 2});
  CHECK(elements(x.slice(1, 0, 4).view({2, 2, 2, 1, 2})) == elements(x.slice(1, 0, 4)));
  CHECK_THROWS_WITH(x.slice(1, 0, 4).view({16}), contains("reshape"));
  CHECK_THROWS_AS(x.transpose(0, 1).view({24}), ShapeError);
  CHECK_THROWS_AS(x.view({5, -1}), ShapeError);
  CHECK(counting({0, 3}).view({3, 0, 7}).numel() == 0);
  CHECK(counting({1}).view({}).ndim() == 0);
  CHECK(counting({}).view({1, 1}).shape() == Shape{1, 1});
  CHECK(counting({1, 3}).expand({2, 3}).select(1, 0).view({2, 1}).strides() == Strides{0, 0});
  // The stride of an axis of size 1 is never used, so it may be any number.
  for (const auto& [shape, strides] :
       std::initializer_list<std::pair<Shape, Strides>>{{{1, 4, 6}, {5, 6, 1}},
                                                        {{4, 1, 6}, {6, 77, 1}},
                                                        {{4, 6, 1}, {6, 1, 13}},
                                                        {{1, 1, 24}, {0, 3, 1}},
                                                        {{24, 1, 1}, {1, 7, 2}},
                                                        {{1, 4, 1, 6, 1}, {3, 6, 1, 1, 0}}}) {
    INFO(to_string(shape) << to_string(strides));
    const Array odd = x.as_strided(shape, strides, 0);
    CHECK(odd.is_contiguous());
    for (const Shape& target : {Shape{24}, Shape{3, 8}, Shape{4, 6}, Shape{2, 1, 12}, Shape{1, 24, 1}}) {
      CHECK(elements(odd.view(target)) == elements(x));
      CHECK(odd.view(target).is_contiguous());
    }
  }
}

TEST_CASE("axes of size 1 in a view have the stride that a step along them would have") {
  const Array x = counting({4, 6}), columns = x.slice(1, 0, 6, 2);
  CHECK(x.view({1, 24}).strides() == Strides{24, 1});
  CHECK(x.view({24, 1}).strides() == Strides{1, 1});
  CHECK(x.view({4, 1, 6}).strides() == Strides{6, 6, 1});
  CHECK(x.view({1, 4, 1, 1, 6, 1}).strides() == Strides{24, 6, 6, 6, 1, 1});
  CHECK(columns.view({4, 1, 3}).strides() == Strides{6, 6, 2});
  CHECK(x.transpose(0, 1).view({6, 1, 4, 1}).strides() == Strides{1, 24, 6, 6});
  CHECK(counting({1}).view({1, 1, 1}).strides() == Strides{1, 1, 1});
  CHECK(Array::empty({}).view({1, 1}).strides() == Strides{1, 1});
}

TEST_CASE("arrays without elements are dense and contiguous in every layout, and overlap nothing") {
  for (const Shape& shape : {Shape{0}, Shape{2, 0, 4}, Shape{0, 3, 2, 2}, Shape{2, 3, 0, 1}, Shape{2, 2, 4, 0}}) {
    CAPTURE(to_string(shape));
    for (const Strides& strides :
         {contiguous_strides(shape), Dims::filled(shape.size(), 7), Dims::filled(shape.size(), 0)}) {
      const Array x(Array::empty({9}).storage(), 0, shape, strides, DType::f32);
      CHECK(x.is_dense());
      CHECK(x.is_contiguous());
      CHECK(x.is_contiguous(MemoryFormat::channels_last) == (shape.size() == 4));
      CHECK_FALSE(x.may_overlap());
      CHECK(x.view({5, 0, 2}).strides() == Strides{2, 2, 1});
    }
  }
}

TEST_CASE("images of one channel or one pixel are channels-last by their strides alone") {
  const auto image = [](const Shape& shape, const Strides& strides) {
    return Array(Array::empty({1000}).storage(), 0, shape, strides, DType::f32).is_channels_last();
  };
  CHECK(image({2, 3, 4, 5}, {60, 1, 15, 3}));
  CHECK_FALSE(image({2, 3, 4, 5}, {60, 20, 5, 1}));
  CHECK(image({2, 1, 4, 5}, {20, 1, 5, 1}));
  CHECK_FALSE(image({2, 1, 4, 5}, {20, 20, 5, 1}));
  CHECK(image({2, 3, 4, 1}, {12, 1, 3, 3}));
  CHECK_FALSE(image({2, 3, 4, 1}, {12, 4, 1, 1}));
  CHECK(image({2, 3, 1, 5}, {15, 1, 15, 3}));
  CHECK_FALSE(image({2, 3, 1, 5}, {15, 5, 5, 1}));
  CHECK_FALSE(image({2, 3, 1, 1}, {3, 1, 3, 3}));
  CHECK_FALSE(image({2, 0, 4, 5}, {20, 1, 5, 1}));
  CHECK_FALSE(image({2, 3, 4, 5}, {0, 0, 0, 0}));  // one element, repeated
  CHECK_FALSE(image({2, 3, 4, 1}, {6, 1, 1, 1}));  // windows that overlap
  CHECK_FALSE(Array::empty({3, 4, 5}).is_channels_last());
}

TEST_CASE("view agrees with the definition on random strided arrays") {
  // If view succeeds, the elements must be in the same order.
  uint32_t state = 1;
  auto draw = [&](uint32_t n) { return state = state * 1664525u + 1013904223u, (state >> 16) % n; };
  const Shape targets[] = {{24}, {2, 12}, {12, 2}, {2, 3, 4}, {4, 3, 2}, {2, 2, 2, 3}, {1, 24, 1}, {3, 8}};
  int succeeded = 0;
  for (int round = 0; round < 2000; ++round) {
    Array x = counting({4, 5, 6, 4});
    for (int axis = 0; axis < 4; ++axis) x = x.slice(axis, 0, 100, 1 + draw(3));
    if (draw(2)) x = x.transpose(draw(4), draw(4));
    x = x.slice(draw(4), 0, 1 + draw(4));
    for (const Shape& target : targets) {
      Strides strides;
      if (x.numel() != 24 || !x.view_strides(target, &strides)) continue;
      ++succeeded;
      if (elements(x.view(target)) != elements(x)) FAIL(to_string(x.shape()) << to_string(x.strides()));
    }
  }
  CHECK(succeeded > 50);
}

TEST_CASE("a strided loop visits each element once, in few long runs") {
  const Array a = counting({2, 3, 4}), b = a.transpose(0, 2).transpose(0, 2), c = counting({3, 1}).expand({2, 3, 4});
  const StridedLoop<2> dense(a.shape(), {&a.strides(), &b.strides()});
  CHECK(dense.ndim == 1);
  CHECK(dense.all_contiguous());
  CHECK(dense.numel == 24);
  const StridedLoop<2> broadcast(a.shape(), {&a.strides(), &c.strides()});
  CHECK(broadcast.ndim == 3);
  CHECK(broadcast.contiguous(1) == false);
  const Array turned = a.permute({2, 0, 1});  // sorting restores the order in memory
  const StridedLoop<1> sorted(turned.shape(), {&turned.strides()});
  CHECK(sorted.all_contiguous());
  // In logical order the axes have the sizes 4, 2 and 3; the last two are merged into one of size 6.
  const StridedLoop<1> logical(turned.shape(), {&turned.strides()}, /*logical_order=*/true);
  CHECK((logical.ndim == 2 && logical.shape[0] == 4 && logical.shape[1] == 6));
  CHECK((logical.strides[0][0] == 1 && logical.strides[0][1] == 4));
  const Array scalar = counting({}), empty = counting({0, 2});
  CHECK(StridedLoop<1>(scalar.shape(), {&scalar.strides()}).ndim == 0);
  CHECK(StridedLoop<1>(scalar.shape(), {&scalar.strides()}).numel == 1);
  CHECK(StridedLoop<1>(empty.shape(), {&empty.strides()}).numel == 0);
}
