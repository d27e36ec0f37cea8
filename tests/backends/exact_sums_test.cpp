// Sums whose exact results are known. They show that no row at the end of a block is missed, and that partial sums
// passed between blocks are more precise than float.
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// The sums of x (R, C) over `axis` on the given backend.
std::vector<double> summed(Backend& backend, const Array& x, int axis, ReduceOp op = ReduceOp::sum) {
  const Device device(backend.device_type());
  Shape kept = x.shape();
  kept[axis] = 1;
  const Array there = copy_to(x, device), y = Array::empty(kept, x.dtype(), device);
  backend.reduce(op, there, 1u << axis, y);
  return values(y);
}

// Every second column of a wider array.
Array with_gaps(const Shape& shape, DType dtype) {
  return Array::empty({shape[0], 2 * shape[1]}, dtype).slice(1, 0, 2 * shape[1], 2);
}

}  // namespace

TEST_CASE("sums of ones count any number of rows and columns") {
  for (const std::string& name : backend_names()) {
    Backend& backend = gradus::backend(name);
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64})
      for (int64_t rows : {1, 2, 63, 64, 65, 127, 128, 129, 193, 512, 513, 1025})
        for (int64_t columns : {1, 3, 8, 17, 65, 515})
          for (bool gaps : {false, true}) {
            const Array x = gaps ? with_gaps({rows, columns}, dtype) : Array::empty({rows, columns}, dtype);
            gradus::backend("naive").fill(x, 1);
            INFO(name << " " << gradus::name(dtype) << " (" << rows << ", " << columns << ")"
                      << (gaps ? ", gaps" : ""));
            const auto expected = [](int64_t count, int64_t sum) {
              return std::vector<double>(static_cast<size_t>(count), static_cast<double>(sum));
            };
            REQUIRE(summed(backend, x, 0) == expected(columns, rows));
            REQUIRE(summed(backend, x, 1) == expected(rows, columns));
          }
  }
}

TEST_CASE("sums of float32 keep digits between blocks that float would lose") {
  // 2^24, then a one in each block. A float cannot represent 2^24 + 1, so a float total would stay at 2^24.
  constexpr int64_t kBlocks = 64, kLength = 2048;
  constexpr double kLarge = 0x1p24;
  const Array row = Array::empty({1, kBlocks * kLength}, DType::f32);
  backend("naive").fill(row, 0);
  float* numbers = row.data<float>();
  numbers[0] = static_cast<float>(kLarge);
  for (int64_t block = 1; block < kBlocks; ++block) numbers[block * kLength + 7] = 1;
  numbers[7] = 1;  // an even count
  const Array columns = Array::empty({kBlocks * kLength, 5}, DType::f32);
  backend("naive").copy(row.view({kBlocks * kLength, 1}).expand({kBlocks * kLength, 5}), columns);
  for (const std::string& name : backend_names()) {
    INFO(name);
    // The ones that are added to the large number may be lost: those in its block, or in its thread on a GPU.
    const double lost = backend(name).device_type() == DeviceType::cpu ? 2 : 8;
    for (double sum : summed(backend(name), row, 1)) CHECK(std::abs(sum - (kLarge + kBlocks)) <= lost);
    for (double sum : summed(backend(name), columns, 0)) CHECK(std::abs(sum - (kLarge + kBlocks)) <= lost);
    for (double mean : summed(backend(name), columns, 0, ReduceOp::mean))
      CHECK(std::abs(mean * (kBlocks * kLength) - (kLarge + kBlocks)) <= lost + 2);
  }
}

TEST_CASE("the gradients of normalisation's parameters keep digits between blocks that float would lose") {
  // dy is 2^24 in the first row or image, then 0, and 1 from `begin` on, in other blocks of the sums.
  struct Case {
    Shape x;
    uint32_t axes;
    Shape parameters;
    int64_t begin;
  };
  const Case cases[] = {{{1000, 3}, 0b10, {1, 3}, 64},               // layer norm of many short rows
                        {{1000, 40}, 0b10, {1, 40}, 64},             // of rows that several threads share
                        {{80, 2600}, 0b10, {1, 2600}, 64},           // of few long rows
                        {{2000, 3}, 0b01, {1, 3}, 512},              // batch norm of rows
                        {{8, 3, 16, 32}, 0b1101, {1, 3, 1, 1}, 1}};  // and of images
  constexpr double kLarge = 0x1p24;
  for (const auto& [shape, axes, parameters, begin] : cases) {
    const Array x = Array::empty(shape, DType::f32), dy = Array::empty(shape, DType::f32);
    const Shape statistics = reduced_shape(shape, axes, true);
    const Array mean = Array::empty(statistics, DType::f32), variance = Array::empty(statistics, DType::f32);
    Backend& naive = backend("naive");
    naive.fill(x, 1), naive.fill(dy, 0), naive.fill(mean, 0), naive.fill(variance, 1);
    naive.fill(dy.slice(0, begin, shape[0]), 1);
    Array first = dy.slice(0, 0, 1);
    while (first.ndim() > 2) first = first.slice(first.ndim() - 1, 0, 1).squeeze(first.ndim() - 1);
    naive.fill(first, kLarge);
    const int64_t ones = (shape[0] - begin) * (shape.size() > 2 ? shape[2] * shape[3] : 1);
    for (const std::string& name : backend_names()) {
      if (backend(name).device_type() != DeviceType::cpu) continue;  // the blocks of GPUs are others
      CAPTURE(name, shape, axes);
      const Array dx = Array::empty(shape, DType::f32), dweight = Array::empty(parameters, DType::f32);
      const Array dbias = Array::empty(parameters, DType::f32);
      backend(name).normalize_backward({.dy = dy,
                                        .x = x,
                                        .mean = mean,
                                        .variance = variance,
                                        .axes = axes,
                                        .eps = 0,
                                        .fixed_statistics = true,
                                        .dx = dx,
                                        .dweight = dweight,
                                        .dbias = dbias});
      for (const Array& gradient : {dweight, dbias}) {
        double worst = 0;
        for (const double sum : values(gradient))
          worst = std::max(worst, std::abs(sum - (kLarge + static_cast<double>(ones))));
        CHECK(worst <= 1);
      }
    }
  }
}
