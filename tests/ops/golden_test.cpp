// Every case against PyTorch (tests/golden/op_cases/FAMILY.safetensors): results, gradients and second gradients, on every
// backend, in every element type and layout. Half types are held against the float64 values, with their own tolerance.
#include <set>

#include <gradus/core/io/safetensors.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

class Golden {
 public:
  static const Golden& instance() {
    static const Golden golden;
    return golden;
  }

  /// The tensors "<key>/<part><0, 1, …>" for `count` numbers; undefined where there is none.
  TensorList list(const std::string& key, const std::string& part, size_t count) const {
    TensorList found(count);
    for (size_t i = 0; i < count; ++i) {
      const auto entry = arrays_.find(key + "/" + part + std::to_string(i));
      if (entry != arrays_.end()) found[i] = Tensor(entry->second);
    }
    return found;
  }
  size_t count(const std::string& key, const std::string& part) const {
    size_t n = 0;
    while (arrays_.count(key + "/" + part + std::to_string(n))) ++n;
    return n;
  }
  /// The Python call that the values were made with.
  std::string torch(const std::string& name) const {
    const auto entry = arrays_.find(name + "/torch");
    if (entry == arrays_.end()) return "";
    return std::string(static_cast<const char*>(entry->second.data()), static_cast<size_t>(entry->second.numel()));
  }

 private:
  Golden() {
    std::set<std::string> families;
    for (const OpCase& op_case : op_cases::all_cases())
      if (!op_case.torch.empty()) families.insert(op_case.family);
    for (const std::string& family : families)
      arrays_.merge(io::load_safetensors(test::source_path("tests/golden/op_cases/" + family + ".safetensors")));
  }

  std::map<std::string, Array> arrays_;
};

std::vector<Layout> layouts_of(const OpCase& op_case) {
  if (op_case.contiguous_only) return {Layout::contiguous};
  return {Layout::contiguous, Layout::transposed, Layout::strided, Layout::channels_last};
}

std::string check_dtypes(const OpCase& op_case, const TensorList& y, const TensorList& expected, DType dtype) {
  for (size_t i = 0; i < y.size(); ++i) {
    const DType golden = expected[i].dtype();
    const DType wanted = op_case.result_dtype                        ? *op_case.result_dtype
                         : is_floating(dtype) && is_floating(golden) ? dtype
                                                                     : golden;
    if (y[i].dtype() != wanted)
      return "result " + std::to_string(i) + " is " + std::string(name(y[i].dtype())) + " instead of " +
             std::string(name(wanted));
  }
  return "";
}

std::string check_case(const OpCase& op_case, DType dtype, Layout layout, Device device) {
  const Golden& golden = Golden::instance();
  const std::string key = is_floating(dtype) ? op_case.name : op_case.name + "@" + std::string(name(dtype));
  const size_t inputs = op_case.inputs.size(), outputs = golden.count(key, "y");
  TensorList x = golden.list(key, "x", inputs);
  for (Tensor& t : x)
    if (t.is_floating_point()) t = t.to(dtype);

  const Computed expected{golden.list(key, "y", outputs), golden.list(key, "g", inputs), golden.list(key, "h", inputs),
                          golden.list(key, "hdy", outputs)};
  const Directions directions{golden.list(key, "dy", outputs), golden.list(key, "v", inputs)};
  const Computed actual = compute(op_case, place(x, layout, device), op_case.order, directions);
  if (actual.y.size() != outputs)
    return std::to_string(actual.y.size()) + " results instead of " + std::to_string(outputs);
  for (size_t i = 0; i < outputs; ++i) {
    if (op_case.order > 0 && actual.y[i].requires_grad() != directions.dy[i].defined())
      return "result " + std::to_string(i) + (actual.y[i].requires_grad() ? " requires" : " does not require") +
             " a gradient";
    if (!(actual.y[i].device() == device))
      return "result " + std::to_string(i) + " is on " + actual.y[i].device().str();
  }
  const std::string wrong = check_dtypes(op_case, actual.y, expected.y, dtype);
  if (!wrong.empty()) return wrong;
  double tolerance = is_floating(dtype) ? tolerance_of(dtype) : tolerance_of(kFloat);
  for (const Tensor& y : actual.y) tolerance = std::max(tolerance, tolerance_of(y.dtype()));
  return differences(actual, expected, op_case.tolerance * tolerance);
}

void check_all(DType dtype) {
  const OneThread one_thread;
  for (const std::string& backend_name : backend_names()) {
    const BackendGuard guard(backend_name);
    for (const OpCase& op_case : op_cases::all_cases()) {
      if (op_case.torch.empty() || !op_case.runs_in(dtype)) continue;
      for (Layout layout : layouts_of(op_case)) {
        const std::string where = backend_name + " " + std::string(name(dtype)) + " " + op_cases::name(layout) + " ";
        const std::string problem =
            guarded([&] { return check_case(op_case, dtype, layout, device_of(backend_name)); });
        CHECK(where + op_case.name + ": " + problem == where + op_case.name + ": ");
      }
    }
  }
}

}  // namespace

TEST_CASE("golden values belong to the op cases of this tree") {
  for (const OpCase& op_case : op_cases::all_cases()) {
    INFO(op_case.name << ": run tests/golden/make_golden.py");
    CHECK(Golden::instance().torch(op_case.name) == op_case.torch);
    if (op_case.torch.empty() || !op_case.runs_in(kDouble)) continue;
    const TensorList stored = Golden::instance().list(op_case.name, "x", op_case.inputs.size());
    CHECK(differences("input ", stored, op_cases::make_inputs(op_case, kDouble), 0) == "");
  }
}

TEST_CASE("operators give PyTorch's values: float64") { check_all(kDouble); }
TEST_CASE("operators give PyTorch's values: float32") { check_all(kFloat); }
TEST_CASE("operators give PyTorch's values: float16") { check_all(kHalf); }
TEST_CASE("operators give PyTorch's values: bfloat16") { check_all(kBFloat16); }
TEST_CASE("operators give PyTorch's values: int64") { check_all(kLong); }
TEST_CASE("operators give PyTorch's values: int32") { check_all(kInt); }
TEST_CASE("operators give PyTorch's values: uint8") { check_all(kByte); }
TEST_CASE("operators give PyTorch's values: bool") { check_all(kBool); }
