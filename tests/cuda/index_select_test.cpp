// How the backend "cuda" sorts, decided without a GPU for the properties of an H200. The expected decisions are in
// index_plans.txt. After an intended change,
//   GRADUS_WRITE_DECISIONS=1 build/cpu-release/tests/test_cuda "plans of sorting on CUDA are those written down"
// overwrites that file, and its diff shows what changed.
#include <sstream>

#include <gradus/backends/cuda/index/select.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/decisions.h>

using namespace gradus;
using namespace gradus::cuda_detail;

TEST_CASE("plans of sorting on CUDA are those written down") {
  std::ostringstream plans;
  plans << "# What select_sort() in backends/cuda/index decides on an H200: algorithm, slots of a block, bits of keys "
           "and of\n# rows' numbers, bytes of workspace. Written by tests/cuda/index_select_test.cpp.\n\n";
  constexpr int64_t sizes[][2] = {{1, 1},     {1, 63},     {1, 2048},    {1, 2049},      {1, 1 << 20},
                                  {128, 10},  {128, 1000}, {1024, 1024}, {1024, 5000},   {8, 50257},
                                  {16384, 8}, {16385, 63}, {16385, 64},  {100000, 2048}, {1, 1 << 29}};
  for (const auto& [rows, size] : sizes)
    for (const DType dtype : {DType::f32, DType::f64, DType::u8}) {
      const SortPlan plan = select_sort(dtype, rows, size);
      plans << "sort " << rows << " x " << size << " " << name(dtype) << ": " << plan.name() << " " << plan.slots << " "
            << plan.key_bits << " " << plan.row_bits << " " << plan.workspace_bytes << "\n";
    }
  test::check_decisions("cuda/index_plans.txt", plans.str());
}

TEST_CASE("plans of sorting on CUDA: a block's memory holds its row") {
  for (int64_t size = 1; size < 5000; size += size < 70 ? 1 : 61)
    for (const int64_t rows : {1, 100, 1 << 20}) {
      const SortPlan sort = select_sort(DType::f32, rows, size);
      if (sort.algorithm == SortAlgorithm::block_sort) {
        CHECK((sort.slots >= size && sort.slots <= kBlockSort && sort.slots % 256 == 0));
        CHECK(sort.workspace_bytes == 0);
      } else {
        CHECK(int64_t{1} << sort.row_bits >= rows);
        CHECK(sort.workspace_bytes >= static_cast<size_t>(16 * rows * size));
      }
    }
}
