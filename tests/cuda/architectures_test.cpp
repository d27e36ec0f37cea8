// Which devices a build serves, and what it says to the others. Needs no CUDA.
#include <gradus/backends/cuda/runtime/architectures.h>
#include <gradus/tests/catch.h>

using namespace gradus::cuda_detail;
using gradus::test::contains;

TEST_CASE("machine code runs on its own generation, PTX on later ones too") {
  CHECK(may_run_on("80-real", 80));
  CHECK(may_run_on("80-real", 86));
  CHECK_FALSE(may_run_on("80-real", 75));
  CHECK_FALSE(may_run_on("80-real", 90));
  CHECK_FALSE(may_run_on("86-real", 80));
  CHECK(may_run_on("80", 90));
  CHECK(may_run_on("80-virtual", 120));
  CHECK_FALSE(may_run_on("90-virtual", 89));
  CHECK(may_run_on("75-real 80-real 90", 75));
  CHECK(may_run_on("75-real 80-real 90", 103));
  CHECK_FALSE(may_run_on("75-real 80-real 90", 70));
  CHECK(may_run_on("90a-real", 90));
  CHECK_FALSE(may_run_on("90a", 100));
  CHECK(may_run_on("native", 90));  // nobody knows: the first launch will tell
}

TEST_CASE("instructions of a generation need code for it, not only a device") {
  CHECK(has_code_for("90-real", 90, 90));
  CHECK(has_code_for("75-real 80-real 90", 103, 90));
  CHECK_FALSE(has_code_for("80", 90, 90));
  CHECK_FALSE(has_code_for("80 90-real", 100, 90));
  CHECK_FALSE(has_code_for("80-real 90", 80, 90));
  CHECK(has_code_for("native", 90, 90));
  CHECK_FALSE(has_code_for("native", 80, 90));
}

TEST_CASE("a device that the build does not serve is told what to do") {
  CHECK(wrong_architecture("80-real", 90) ==
        "gradus was compiled for sm_80, the device is sm_90: rebuild with -DCMAKE_CUDA_ARCHITECTURES=90");
  CHECK_THAT(wrong_architecture("75-real 80-real", 90), contains("compiled for sm_75, sm_80, the device is sm_90"));
  CHECK_THAT(wrong_architecture("native", 90), contains("compiled for native"));
}
