#include <gradus/autograd/diagnosis/graph_dump.h>

#include <iomanip>
#include <map>
#include <set>
#include <sstream>

#include <gradus/autograd/accumulate_grad.h>

namespace gradus::autograd {
namespace {

// Returns every node in the graph of `root` once.
std::vector<Ref<Node>> nodes_behind(const Tensor& root) {
  std::vector<Ref<Node>> found;
  std::set<Node*> seen;
  if (Ref<Node> start = gradient_edge(root).node) {
    seen.insert(start.get());
    found.push_back(std::move(start));
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const Ref<Node> node = found[i];
    for (const Edge& edge : node->edges())
      if (edge.node && seen.insert(edge.node.get()).second) found.push_back(edge.node);
  }
  return found;
}

std::string describe(const Array& array) { return std::string(gradus::name(array.dtype())) + to_string(array.shape()); }

// Formats the elements of a small tensor in row-major order with `before` as a prefix; "" for larger tensors.
std::string numbers(const char* before, const Tensor& x) {
  constexpr int64_t kMost = 8;
  if (!x.defined() || x.numel() == 0 || x.numel() > kMost) return "";
  const Tensor flat = x.detach().to(kCPU).to(kDouble).reshape(-1);
  std::ostringstream text;
  text << std::setprecision(4) << before;
  for (int64_t i = 0; i < flat.numel(); ++i) text << (i > 0 ? ", " : "") << flat[i].item<double>();
  return text.str();
}

}  // namespace

std::string graph_to_dot(const Tensor& root) {
  const std::vector<Ref<Node>> nodes = nodes_behind(root);
  std::map<const Node*, int> number;
  for (const Ref<Node>& node : nodes) number.emplace(node.get(), static_cast<int>(number.size()));

  std::string dot = "digraph autograd {\n  rankdir=BT;\n  node [shape=box, fontname=\"monospace\"];\n";
  for (const Ref<Node>& node : nodes) {
    std::string label = node->name();
    if (!node->module_path().empty()) label += "\\n" + node->module_path();
    if (node->is_accumulator()) {
      const Tensor& leaf = static_cast<const AccumulateGrad&>(*node).leaf();
      label += "\\n" + describe(leaf.array()) + numbers("\\n", leaf) + numbers("\\ngradient ", leaf.grad());
    }
    int64_t bytes = 0;
    for (const Saved* saved = node->saved(); saved; saved = saved->next()) {
      if (!saved->peek().defined()) continue;
      const int64_t size = static_cast<int64_t>(saved->peek().nbytes());
      bytes += size;
      label += "\\nsaved " + std::string(saved->name()) + ": " + describe(saved->peek()) + ", " + std::to_string(size) +
               " B" + numbers("\\n", Tensor(saved->peek()));
    }
    if (bytes > 0) label += "\\n" + std::to_string(bytes) + " B saved";
    dot += "  n" + std::to_string(number[node.get()]) + " [label=\"" + label + "\"" +
           (node->is_accumulator() ? ", style=filled, fillcolor=lightblue" : "") + "];\n";
  }
  for (const Ref<Node>& node : nodes)
    for (const Edge& edge : node->edges()) {
      if (!edge.node) continue;
      dot += "  n" + std::to_string(number[edge.node.get()]) + " -> n" + std::to_string(number[node.get()]);
      if (edge.input < edge.node->outputs().size())
        dot += " [label=\"" + to_string(edge.node->outputs()[edge.input].shape) + "\"]";
      dot += ";\n";
    }
  return dot + "}\n";
}

int64_t saved_bytes(const Tensor& root) {
  std::map<const void*, int64_t> storages;  // keyed by the address of the first byte
  for (const Ref<Node>& node : nodes_behind(root))
    for (const Saved* saved = node->saved(); saved; saved = saved->next())
      if (saved->peek().defined())
        storages[saved->peek().storage().data()] = static_cast<int64_t>(saved->peek().storage().bytes());
  int64_t bytes = 0;
  for (const auto& [data, size] : storages) bytes += size;
  return bytes;
}

std::vector<Tensor> leaves_behind(const Tensor& root) {
  std::vector<Tensor> leaves;
  for (const Ref<Node>& node : nodes_behind(root))
    if (node->is_accumulator()) leaves.push_back(static_cast<const AccumulateGrad&>(*node).leaf());
  return leaves;
}

}  // namespace gradus::autograd
