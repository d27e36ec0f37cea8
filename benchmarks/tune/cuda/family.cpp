#include <gradus/benchmarks/tune/cuda/family.h>

#include <limits>
#include <sstream>

#include <gradus/core/error.h>
#include <gradus/core/registry.h>

namespace gradus::tune {

void CudaOperands::reset() { backend("cuda").fill(result(), std::numeric_limits<double>::quiet_NaN()); }

void CudaProblem::run(const std::string&) { GRADUS_FAIL(Error, "measure_cuda() measures kernels of CUDA"); }

std::vector<Family> cuda_families() {
  return {cuda_conv2d(), cuda_gemm(), cuda_softmax(), cuda_attention(), cuda_recurrent()};
}

std::map<std::string, Regret> regrets_of_selected(const std::vector<Measurement>& measurements) {
  std::map<std::string, Regret> result;
  for (const Measurement& each : measurements) {
    const std::string selected = family_of(each.family).problem(each.device, each.problem)->selected();
    std::map<std::string, double> order;  // the selected one first
    for (const auto& [name, us] : each.us) order[name] = name == selected ? 0 : 1;
    std::istringstream words(each.problem);
    std::string first, second;
    words >> first >> second;
    result[each.family].add(each, order);
    result[each.family + ' ' + first + ' ' + second].add(each, order);
  }
  return result;
}

}  // namespace gradus::tune
