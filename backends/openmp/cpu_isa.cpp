// Selects the instruction set of the kernels at run time. Each set is a device of the tuning table.
#include <atomic>
#include <cstdlib>
#include <string_view>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp.h>
#include <gradus/backends/openmp/simd/tuning.h>

namespace gradus {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512};

CpuIsa initial_isa() {
  if (const char* wanted = std::getenv("GRADUS_ISA"))
    for (CpuIsa isa : kAll)
      if (std::string_view(wanted) == name(isa) && isa <= best_cpu_isa()) return isa;
  return best_cpu_isa();
}

#if defined(__x86_64__)
// The AVX-512 kernels. If the processor has the extension AVX512_BF16, its dot-product instruction computes matrix
// products of bfloat16.
const openmp_detail::KernelTable& avx512_table() {
  static const openmp_detail::KernelTable table = [] {
    openmp_detail::KernelTable best = openmp_detail::avx512::kernels();
    if (__builtin_cpu_supports("avx512bf16")) best.bf16_pairs_block = openmp_detail::bf16_pairs_block_avx512;
    return best;
  }();
  return table;
}
#endif

std::atomic<CpuIsa>& current() {
  static std::atomic<CpuIsa> isa{initial_isa()};
  return isa;
}

}  // namespace

const char* name(CpuIsa isa) {
  static constexpr const char* names[] = {"baseline", "avx2", "avx512"};
  return names[static_cast<int>(isa)];
}

CpuIsa best_cpu_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
    return CpuIsa::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return CpuIsa::avx2;
#endif
  return CpuIsa::baseline;
}

CpuIsa cpu_isa() { return current().load(std::memory_order_relaxed); }

void set_cpu_isa(CpuIsa isa) {
  GRADUS_CHECK(isa <= best_cpu_isa(), ValueError, "this processor has no ", name(isa), "; its best is ",
               name(best_cpu_isa()));
  current() = isa;
}

namespace openmp_detail {

const KernelTable& kernel_table([[maybe_unused]] CpuIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case CpuIsa::avx512: return avx512_table();
    case CpuIsa::avx2: return avx2::kernels();
    case CpuIsa::baseline: break;
  }
#endif
  return baseline::kernels();
}

const KernelTable& kernel_table() { return kernel_table(cpu_isa()); }

const TuningTable& tuning_table() {
  static const TuningTable table(
#include <gradus/backends/openmp/tuning_table.txt>
  );
  return table;
}

std::vector<std::string> tuned_devices() {
  std::vector<std::string> names;
  for (const CpuIsa isa : kAll) names.emplace_back(name(isa));
  return names;
}

const KernelTable& table_of_device(const std::string& device) {
  for (const CpuIsa isa : kAll)
    if (device == name(isa)) return kernel_table(isa);
  GRADUS_FAIL(ValueError, "no instruction set ", device);
}

}  // namespace openmp_detail
}  // namespace gradus
