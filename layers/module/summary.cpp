#include <gradus/layers/module/summary.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include <gradus/autograd/node.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/layers/layer.h>

namespace gradus::nn {

namespace detail {

namespace {

/// Observes a running model. Hooks record each module's outputs, and kernels are counted for the module in which they
/// run.
class Recorder : private Observer, NoCopy {
 public:
  struct Record {
    Module* module;
    bool was_training;
    LayerSummary layer;
    unsigned before = 0, after = 0;  // ids of the hooks
  };

  explicit Recorder(Module& model) {
    std::map<const Module*, std::string> names;
    model.apply([&](const std::string& name, Module& module) {
      Record& record = records_.emplace_back(Record{&module, module.is_training(), {}});
      record.layer.name = name;
      record.layer.type = short_type(module.name());
      record.layer.depth = name.empty() ? 0 : 1 + static_cast<int>(std::count(name.begin(), name.end(), '.'));
    });
    for (size_t i = 0; i < records_.size(); ++i) {
      index_[records_[i].module] = i;
      Module& module = *records_[i].module;
      records_[i].before =
          module.register_forward_pre_hook([this](Module& called, TensorList&) { running_.push_back(&called); });
      records_[i].after = module.register_forward_hook([this](Module& called, const TensorList&, TensorList& outputs) {
        running_.pop_back();
        LayerSummary& layer = records_[index_.at(&called)].layer;
        ++layer.calls;
        layer.output_shapes.clear();
        for (const Tensor& output : outputs) layer.output_shapes.push_back(output.defined() ? output.sizes() : Shape());
      });
    }
    model.eval();
    add_observer(this);
  }

  // train() cannot throw here: eval() in the constructor called it on the same modules, and it did not throw.
  // NOLINTNEXTLINE(bugprone-exception-escape)
  ~Recorder() override {
    remove_observer(this);
    for (Record& record : records_) {
      record.module->remove_hook(record.before);
      record.module->remove_hook(record.after);
      record.module->train(record.was_training);  // also sets its children, whose own records follow and correct this
    }
  }

  /// Finds the output shapes of layers whose forward was called directly, without hooks. Recorded operators know their
  /// layer, and the last operator of a layer made its output.
  void complete(const TensorList& outputs) {
    std::set<const Node*> seen;
    std::vector<const Node*> open;
    std::map<std::string, const Node*> last;
    auto meet = [&](const Node* node) {
      if (node && seen.insert(node).second) open.push_back(node);
    };
    std::vector<Ref<Node>> alive;
    for (const Tensor& output : outputs)
      if (output.defined() && output.requires_grad()) meet(alive.emplace_back(output.grad_fn()).get());
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      const Node*& latest = last[node->module_path()];
      if (!node->module_path().empty() && (!latest || latest->sequence() < node->sequence())) latest = node;
      for (const Edge& edge : node->edges()) meet(edge.node.get());
    }
    for (Record& record : records_) {
      const auto found = last.find(record.module->path());
      if (!record.layer.output_shapes.empty() || found == last.end() || !found->second) continue;
      record.layer.output_shapes.push_back(found->second->outputs()[0].shape);
    }
  }

  std::vector<Record>& records() { return records_; }

 private:
  void on_end(const ObservedEvent& event) override {
    if (event.kind != ObservedEvent::Kind::kernel || !event.leaf) return;
    const std::string_view name = event.name;
    if (!name.starts_with("matmul") && !name.starts_with("linear") && !name.starts_with("conv")) return;
    const void* module = ModuleFrame::current() ? ModuleFrame::current()->module
                         : running_.empty()     ? records_.front().module
                                                : running_.back();
    const auto found = index_.find(static_cast<const Module*>(module));
    records_[found == index_.end() ? 0 : found->second].layer.multiply_adds += event.flops / 2;
  }

  std::vector<Record> records_;
  std::map<const Module*, size_t> index_;
  std::vector<const Module*> running_;
};

}  // namespace

Tensor summary_input(const Module& module, const Shape& size, std::optional<DType> dtype) {
  const TensorList parameters = module.parameters();
  const TensorOptions own = parameters.empty() ? TensorOptions(kFloat) : parameters[0].options();
  return zeros(size, dtype ? own.dtype(*dtype) : own);
}

ModelSummary summarize(Module& model, const std::function<TensorList()>& run) {
  ModelSummary summary;
  {
    Recorder recorder(model);
    AutoGradMode recording(true);
    recorder.complete(run());
    std::set<const TensorImpl*> counted;
    for (Recorder::Record& record : recorder.records()) {
      for (const Tensor& parameter : record.module->parameters(false)) {
        if (!counted.insert(parameter.impl()).second) continue;
        record.layer.parameters += parameter.numel();
        if (parameter.requires_grad()) summary.trainable_parameters += parameter.numel();
        summary.parameter_bytes += static_cast<int64_t>(parameter.nbytes());
      }
      summary.parameters += record.layer.parameters;
      summary.multiply_adds += record.layer.multiply_adds;
      summary.layers.push_back(std::move(record.layer));
    }
  }
  for (const Tensor& buffer : model.buffers()) summary.buffers += buffer.numel();
  return summary;
}

}  // namespace detail

namespace {

/// Formats 1234567 as "1,234,567".
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const ModelSummary& summary) {
  using Row = std::vector<std::string>;
  std::vector<Row> rows = {{"Layer", "Type", "Output shape", "Parameters", "Multiply-adds"}};
  for (const LayerSummary& layer : summary.layers) {
    const std::string own_name = layer.name.substr(layer.name.rfind('.') + 1);
    std::string shapes;
    for (const Shape& shape : layer.output_shapes) shapes += (shapes.empty() ? "" : ", ") + to_string(shape);
    rows.push_back({std::string(static_cast<size_t>(2 * layer.depth), ' ') + (layer.depth ? own_name : "(model)"),
                    layer.type, shapes.empty() ? "-" : shapes, grouped(layer.parameters),
                    grouped(layer.multiply_adds)});
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows)
    for (size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  for (const Row& row : rows) {
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - row[column].size(), ' ');
      stream << (column ? "  " : "") << (column < 3 ? row[column] + padding : padding + row[column]);
    }
    stream << "\n";
  }
  stream << "parameters: " << grouped(summary.parameters) << " (" << format_bytes(summary.parameter_bytes)
         << "), trainable " << grouped(summary.trainable_parameters) << "; buffers: " << grouped(summary.buffers)
         << "; multiply-adds: " << grouped(summary.multiply_adds) << "\n";
  return stream;
}

}  // namespace gradus::nn
