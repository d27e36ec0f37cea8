#include <gradus/tests/wrong_calls/wrong_calls.h>

namespace gradus::test {
namespace {

std::vector<const WrongCalls*>& tables() {
  static std::vector<const WrongCalls*> tables;
  return tables;
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// "tensors_test.cpp:31"
std::string line_of(const Loc& where) {
  const std::string file = where.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line);
}

// What the call left behind, or "".
std::string left_behind() {
  if (OpContext::current()) return "an operator that does not end";
  if (ModuleFrame::current()) return "a layer that does not end";
  if (!GradMode::is_enabled()) return "grad mode off";
  const Tensor x = tensor({{1., 2.}, {3., 4.}}, requires_grad());
  const Tensor y = (matmul(x, x) + x).sum();
  y.backward();
  if (y.item<double>() != 64.0) return "a wrong sum";
  if (!x.grad().equal(tensor({{8., 12.}, {10., 14.}}, kFloat))) return "a wrong gradient";
  return "";
}

}  // namespace

WrongCalls::WrongCalls(std::string area, std::vector<WrongCall> calls)
    : area_(std::move(area)), calls_(std::move(calls)) {
  tables().push_back(this);
}

const std::vector<const WrongCalls*>& WrongCalls::all() { return tables(); }

std::string verdict(const WrongCall& wrong) {
  std::string text;
  if (const std::string fault = wrong.run(wrong, &text); !fault.empty()) return fault;
  if (!wrong.op.empty() && text.rfind("[" + wrong.op + "] ", 0) != 0) return "does not begin with its name: " + text;
  for (const std::string& part : wrong.parts)
    if (!says(text, part)) return "does not say '" + part + "': " + text;
  if (!wrong.path.empty()) {
    if (!says(text, "layer '" + wrong.path + "'")) return "does not name the layer '" + wrong.path + "': " + text;
  } else if (!wrong.op.empty() && !wrong.without_line && !says(text, " (at " + line_of(wrong.where) + ")")) {
    return "does not cite " + line_of(wrong.where) + ": " + text;
  }
  if (const std::string left = left_behind(); !left.empty()) return "leaves " + left + " behind: " + text;
  return "";
}

std::string message_of(const WrongCall& wrong) {
  std::string text;
  const std::string fault = wrong.run(wrong, &text), place = " (at " + line_of(wrong.where) + ")";
  if (const size_t at = text.find(place); at != std::string::npos) text.erase(at, place.size());
  for (char& letter : text)
    if (letter == '\n') letter = ' ';
  return fault.empty() ? text : fault;
}

}  // namespace gradus::test
