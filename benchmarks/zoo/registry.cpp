#include <algorithm>

#include <gradus/benchmarks/zoo/zoo.h>

namespace gradus::zoo {

namespace F = nn::functional;

namespace {

// The frozen half. Kernels and the rules that choose them are developed with the open nets alone. The frozen nets are
// timed only at the end, so that their ratios show how fast training is for nets that no kernel was written for. Do not
// profile these nets, and do not move a name to or from this list once work on the kernels has begun. Nets that join
// the zoo are divided before they are timed: in a new family, every second name of the alphabet is frozen.
const std::vector<std::string> kFrozen[] = {  // a line for each family
    {"mobilenet_v2", "efficientnet_b0", "shufflenet_v2"},
    {"resnext29", "convnext"},
    {"network_in_network", "inception"},
    {"style_transfer", "conv_vae", "autoencoder"},
    {"bilstm_tagger", "lstm_1024", "projected_lstm"},
    {"gpt", "mlp_mixer", "vit"},
    {"factorization_machine", "n_beats", "tcn"},
    {"ssd"}};

std::vector<Entry> all_families() {
  std::vector<Entry> all;
  for (const auto& family : {mobile_nets(), residual_nets(), plain_nets(), pixel_nets(), recurrent_nets(),
                             transformer_nets(), structured_nets(), detector_nets()})
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

}  // namespace

Tensor Input::draw() const {
  if (kind == "integers") return randint(bound, shape);
  return kind == "uniform" ? rand(shape) : randn(shape);
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = all_families();
  return all;
}

bool is_frozen(const std::string& name) {
  return std::any_of(std::begin(kFrozen), std::end(kFrozen), [&](const std::vector<std::string>& family) {
    return std::find(family.begin(), family.end(), name) != family.end();
  });
}

Net one_phase(const std::shared_ptr<nn::Module>& module, std::function<Tensor(const TensorList& batch)> loss) {
  return {module, {{module, std::move(loss)}}};
}

Net classifier(const nn::AnyModule& module) {
  return one_phase(module.ptr(),
                   [module](const TensorList& batch) { return F::cross_entropy(module.forward(batch[0]), batch[1]); });
}

Net step_classifier(const nn::AnyModule& module) {
  return one_phase(module.ptr(), [module](const TensorList& batch) {
    return F::cross_entropy(module.forward(batch[0]).flatten(0, 1), batch[1].flatten());
  });
}

Net language_model(const nn::AnyModule& module) {
  return one_phase(module.ptr(), [module](const TensorList& batch) {
    const Tensor before = batch[0].slice(1, 0, -1), after = batch[0].slice(1, 1);
    return F::cross_entropy(module.forward(before).flatten(0, 1), after.flatten());
  });
}

Net regression(const nn::AnyModule& module) {
  return one_phase(module.ptr(),
                   [module](const TensorList& batch) { return F::mse_loss(module.forward(batch[0]), batch[1]); });
}

}  // namespace gradus::zoo
