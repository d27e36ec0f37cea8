// Hands the op cases to tests/golden/make_golden.py.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <gradus/tests/catch.h>
#include <gradus/tests/op_cases/op_case.h>

using namespace gradus;
using namespace gradus::op_cases;

namespace {

std::string quoted(const std::string& text) {
  std::string result(1, '"');
  for (char c : text) {
    if (c == '"' || c == '\\') result.push_back('\\');
    result.push_back(c);
  }
  result.push_back('"');
  return result;
}

template <class List, class Function>
std::string joined(const List& list, Function&& text_of) {
  std::string result;
  for (const auto& item : list) result += (result.empty() ? "" : ",") + text_of(item);
  return result;
}

// Python's json reads NaN and Infinity.
std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string json(const Tensor& x) {
  const Tensor numbers = x.to(kDouble).contiguous();
  const double* data = numbers.data_ptr<double>();
  const std::vector<double> values(data, data + numbers.numel());
  return "{\"dtype\":" + quoted(std::string(name(x.dtype()))) + ",\"shape\":[" +
         joined(x.sizes(), [](int64_t size) { return std::to_string(size); }) + "],\"values\":[" +
         joined(values, number) + "]}";
}

std::string json(const OpCase& op_case) {
  std::vector<DType> types;
  for (DType dtype : {kDouble, kLong, kInt, kByte, kBool})
    if (op_case.runs_in(dtype)) types.push_back(dtype);
  const auto inputs = [&](DType dtype) {
    return quoted(std::string(name(dtype))) + ":[" +
           joined(make_inputs(op_case, dtype), [](const Tensor& x) { return json(x); }) + "]";
  };
  return "{\"name\":" + quoted(op_case.name) + ",\"family\":" + quoted(op_case.family) +
         ",\"torch\":" + quoted(op_case.torch) + ",\"order\":" + std::to_string(op_case.order) + ",\"inputs\":{" +
         joined(types, inputs) + "}}\n";
}

}  // namespace

TEST_CASE("list the op cases", "[.]") {
  const char* path = std::getenv("GRADUS_OP_CASE_LIST");
  REQUIRE(path);
  std::vector<const OpCase*> golden;
  for (const OpCase& op_case : all_cases())
    if (!op_case.torch.empty()) golden.push_back(&op_case);
  std::ofstream(path) << "[" << joined(golden, [](const OpCase* op_case) { return json(*op_case); }) << "]";
}
