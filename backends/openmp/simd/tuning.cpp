#include <gradus/backends/openmp/simd/tuning.h>

#include <gradus/backends/openmp/openmp.h>
#include <gradus/core/error.h>

namespace gradus::openmp_detail {

const TuningTable& tuning_table() {
  static const TuningTable table(
#include <gradus/backends/openmp/tuning_table.txt>
  );
  return table;
}

std::vector<std::string> tuned_devices() { return {name(CpuIsa::baseline), name(CpuIsa::avx2), name(CpuIsa::avx512)}; }

const KernelTable& table_of_device(const std::string& device) {
  for (const CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512})
    if (device == name(isa)) return kernel_table(isa);
  GRADUS_FAIL(ValueError, "no instruction set ", device);
}

}  // namespace gradus::openmp_detail
