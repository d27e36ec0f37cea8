// Tests the memory layout (strides) of the results of operators.
#include <algorithm>

#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;
using namespace gradus::op_testing;
using op_cases::Results;

namespace {

std::string check_strides(const OpCase& op_case, Layout layout) {
  const TensorList x = place(op_cases::make_inputs(op_case, kFloat), layout, Device());
  const TensorList ys = op_case.run(x);
  for (const Tensor& y : ys) {
    const std::string strides = to_string(y.strides());
    switch (op_case.results) {
      case Results::keep_layout: {
        const bool kept = x[0].array().is_dense() && x[0].sizes() == y.sizes();
        if (kept && !(y.strides() == x[0].strides())) return strides + " instead of " + to_string(x[0].strides());
        if (!y.array().is_dense()) return strides + " is not dense";
        break;
      }
      case Results::image: {
        // Images of one channel or one pixel are both contiguous and channels-last; they count as contiguous.
        const auto is_last = [](const Tensor& t) { return t.dim() == 4 && !t.is_contiguous(); };
        const bool last = layout == Layout::channels_last && std::any_of(x.begin(), x.end(), is_last);
        const MemoryFormat format = last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
        const bool decided = layout == Layout::contiguous || layout == Layout::channels_last;
        if (decided && y.dim() == 4 && !y.is_contiguous(format)) return strides + " for " + to_string(y.sizes());
        break;
      }
      case Results::view:
        if (!(y.array().storage() == x[0].array().storage())) return "is a copy";
        break;
      case Results::any: break;
    }
  }
  return "";
}

}  // namespace

TEST_CASE("results have the layout that their operator promises") {
  for (const std::string backend_name : {"naive", "openmp"}) {
    if (!has_backend(backend_name)) continue;
    const BackendGuard guard(backend_name);
    for (const OpCase& op_case : op_cases::all_cases()) {
      for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::strided, Layout::channels_last}) {
        if (!op_case.runs_in(kFloat) || (op_case.contiguous_only && layout != Layout::contiguous)) continue;
        const std::string where = backend_name + " " + op_cases::name(layout) + " " + op_case.name + ": ";
        CHECK(where + guarded([&] { return check_strides(op_case, layout); }) == where);
      }
    }
  }
}

TEST_CASE("convolution and pooling are channels-last if the input or the weight is") {
  const Tensor x = randn({2, 3, 6, 6}), w = randn({4, 3, 3, 3});
  const auto last = MemoryFormat::channels_last;
  CHECK(conv2d(x, w).is_contiguous());
  CHECK(conv2d(x.contiguous(last), w).is_contiguous(last));
  CHECK(conv2d(x, w.contiguous(last)).is_contiguous(last));
  CHECK(conv2d_relu(x, w.contiguous(last)).is_contiguous(last));
  CHECK(max_pool2d(x.contiguous(last), 2).is_contiguous(last));
  CHECK(max_pool2d(x, 2).is_contiguous());

  SECTION("an image of one channel lies both ways and follows the weight") {
    const Tensor gray = randn({2, 1, 6, 6}), filter = randn({4, 1, 3, 3});
    CHECK(gray.is_contiguous(last));
    CHECK(conv2d(gray, filter).is_contiguous());
    CHECK(conv2d(gray.contiguous(last), filter.contiguous(last)).is_contiguous());
    CHECK(conv2d(gray, randn({4, 2, 3, 3}).contiguous(last).slice(1, 0, 1)).sizes() == Shape{2, 4, 4, 4});
    const Tensor pixels = randn({2, 3, 1, 1});
    CHECK(conv2d(pixels, randn({4, 3, 1, 1})).sizes() == Shape{2, 4, 1, 1});
    CHECK(conv2d(pixels, w.contiguous(last), {}, 1, 1).is_contiguous(last));
  }

  SECTION("a filter of one channel lies both ways and is taken as it was last told to lie") {
    const Tensor gray = randn({2, 1, 6, 6}), filter = randn({4, 1, 3, 3}), told = filter.to(last);
    CHECK(told.equal(filter));
    CHECK(told.to(last).data_ptr() == told.data_ptr());
    for (const Tensor& same : {told, told.clone(), told.to(kDouble), told * 2, zeros_like(told), told.contiguous()})
      CHECK(conv2d(gray.to(same.dtype()), same).is_contiguous(last));
    CHECK(conv2d(gray.to(last), filter).is_contiguous(last));
    CHECK(conv2d(gray, told.to(MemoryFormat::contiguous)).is_contiguous());
    const Tensor leaf(told.array(), true);
    conv2d_relu(gray, leaf).sum().backward();
    CHECK(leaf.grad().strides() == leaf.strides());
    CHECK(max_pool2d(gray.to(last), 2).strides() == Shape{9, 1, 3, 1});
  }
}

TEST_CASE("element-wise operators keep the first unambiguous operand's layout") {
  const auto last = MemoryFormat::channels_last;
  const Tensor a = randn({2, 3, 4, 5}), b = randn({2, 3, 4, 5}).contiguous(last), bias = randn({3, 1, 1});
  CHECK((a + b).is_contiguous());
  CHECK((b + a).is_contiguous(last));
  CHECK((bias + b).is_contiguous(last));
  CHECK((b * 2).is_contiguous(last));
  CHECK(relu(b).is_contiguous(last));
  CHECK((b > 0).is_contiguous(last));
  CHECK(where(a > 0, b, b).sizes() == b.sizes());

  SECTION("images of one channel that lie both ways decide nothing") {
    const Tensor either = randn({2, 1, 4, 5}), told = randn({2, 1, 4, 5}).to(last);
    REQUIRE(!(either.strides() == told.strides()));
    CHECK((either + told).strides() == told.strides());
    CHECK((told + either).strides() == told.strides());
    CHECK((either * either).strides() == either.strides());
    CHECK(where(either > 0, either, told).strides() == told.strides());
    CHECK(maximum(either, told).strides() == told.strides());
  }
  SECTION("nor does such an input of convolution and pooling against a filter") {
    const Tensor gray = randn({2, 1, 6, 6}), pixels = randn({2, 3, 1, 1}), filter = randn({4, 3, 3, 3});
    CHECK(conv2d(gray, randn({4, 1, 3, 3})).is_contiguous());
    CHECK(conv2d(gray, randn({4, 1, 3, 3}).to(last)).is_contiguous(last));
    CHECK(conv2d(pixels, filter, {}, 1, 2).is_contiguous());
    CHECK(conv2d(pixels, filter.to(last), {}, 1, 2).is_contiguous(last));
    CHECK(conv_transpose2d(gray, randn({1, 4, 3, 3})).is_contiguous());
    CHECK(conv_transpose2d(gray, randn({1, 4, 3, 3}).to(last)).is_contiguous(last));
    CHECK(max_pool2d(randn({2, 1, 6, 6}), 2).strides() == Shape{9, 9, 3, 1});
  }
}

TEST_CASE("gradients have the layout of what they belong to") {
  const auto last = MemoryFormat::channels_last;
  for (const std::string backend_name : {"naive", "openmp"}) {
    if (!has_backend(backend_name)) continue;
    const BackendGuard guard(backend_name);
    const Tensor x = Tensor(randn({2, 3, 6, 6}).contiguous(last).array(), true);
    const Tensor w = Tensor(randn({4, 3, 3, 3}).contiguous(last).array(), true);
    const Tensor m = Tensor(randn({5, 4}).t().array(), true);
    conv2d(x, w).sum().backward();
    matmul(m, m.t()).sum().backward();
    CHECK(x.grad().strides() == x.strides());
    CHECK(w.grad().strides() == w.strides());
    CHECK(m.grad().strides() == m.strides());
  }
}
