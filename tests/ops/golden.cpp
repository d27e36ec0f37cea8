#include "golden.h"

#include <set>

#include <gradus/core/io/safetensors.h>
#include <gradus/tests/catch.h>

namespace gradus::op_testing {
namespace {

using Arrays = std::map<std::string, Array>;

const Arrays& stored() {
  static const Arrays all = [] {
    std::set<std::string> families;
    for (const OpCase& op_case : op_cases::all_cases())
      if (!op_case.torch.empty()) families.insert(op_case.family);
    Arrays arrays;
    for (const std::string& family : families)
      arrays.merge(io::load_safetensors(test::source_path("tests/golden/op_cases/" + family + ".safetensors")));
    return arrays;
  }();
  return all;
}

/// The stored tensors named key + "0", key + "1", … (`count` of them). A tensor that is not stored is undefined.
TensorList listed(const std::string& key, size_t count) {
  TensorList found(count);
  for (size_t i = 0; i < count; ++i) {
    const auto entry = stored().find(key + std::to_string(i));
    if (entry != stored().end()) found[i] = Tensor(entry->second);
  }
  return found;
}

}  // namespace

Golden golden_of(const OpCase& op_case, DType dtype) {
  const std::string key = op_case.name + (is_floating(dtype) ? "/" : "@" + std::string(name(dtype)) + "/");
  const size_t inputs = op_case.inputs.size();
  size_t outputs = 0;
  while (stored().contains(key + "y" + std::to_string(outputs))) ++outputs;
  Golden golden;
  golden.inputs = listed(key + "x", inputs);
  for (Tensor& x : golden.inputs)
    if (x.is_floating_point()) x = x.to(dtype);
  golden.results = {listed(key + "y", outputs), listed(key + "g", inputs), listed(key + "h", inputs),
                    listed(key + "hdy", outputs)};
  golden.directions = {listed(key + "dy", outputs), listed(key + "v", inputs)};
  return golden;
}

std::string golden_call(const OpCase& op_case) {
  const auto entry = stored().find(op_case.name + "/torch");
  if (entry == stored().end()) return "";
  return std::string(static_cast<const char*>(entry->second.data()), static_cast<size_t>(entry->second.numel()));
}

}  // namespace gradus::op_testing
