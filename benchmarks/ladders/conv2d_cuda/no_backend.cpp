#include <gradus/benchmarks/ladders/conv2d_cuda/backend.h>
#include <gradus/core/error.h>

namespace gradus::ladders {

void use_rung(int) { GRADUS_CHECK(false, DeviceError, "--rung: this build has no CUDA"); }

}  // namespace gradus::ladders
