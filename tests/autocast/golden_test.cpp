// Operators under autocast beside PyTorch's: types, numbers and gradients, by the lists of either device
// (tests/golden/make_autocast.py, which the cases here repeat).
#include <gradus/gradus.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include <gradus/core/io/safetensors.h>
#include <gradus/tests/autocast/other_device.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// The inputs of a case: x in its type, t in float32.
struct Inputs {
  std::map<std::string, Tensor> typed, wide;
  const Tensor& x(const char* name) const { return typed.at(name); }
  const Tensor& t(const char* name) const { return wide.at(name); }
  Tensor labels() const { return tensor({0, 3, 1}, kLong).to(x("a").device()); }
  Tensor places() const { return labels().index_select(0, tensor({0, 2}, kLong).to(x("a").device())); }
  Tensor ones(const Shape& shape) const { return gradus::ones(shape, x("a").device()); }
};
struct Case {
  std::function<Tensor(const Inputs&)> run;
  const char* first = "a";  // whose gradient is compared
};

// Gives a recurrent layer's parameters (weight_ih…, weight_hh…, bias_ih…, bias_hh…) the inputs' first rows.
void set_weights(nn::Module& layer, const Inputs& in) {
  const NoGradGuard no_grad;
  layer.to(in.x("a").device());
  for (const auto& parameter : layer.named_parameters()) {
    const std::string& name = parameter.key();
    const std::string input = (name[0] == 'w' ? "w" : "b") + name.substr(name.find('_'), 3);
    parameter.value().copy_(in.t(input.c_str()).narrow(0, 0, parameter.value().size(0)));
  }
}

template <class Layer>
Tensor recurrent(const Inputs& in) {
  Layer layer(4, 3);
  set_weights(*layer, in);
  return std::get<0>(layer->forward(in.x("seq")));
}

template <class Cell>
Tensor cell(const Inputs& in) {
  Cell layer(4, 3);
  set_weights(*layer, in);
  if constexpr (std::is_same_v<Cell, nn::LSTMCell>) return std::get<0>(layer->forward(in.x("a")));
  else return layer->forward(in.x("a"));
}

Tensor bilinear(const Inputs& in) {
  nn::Bilinear layer(4, 4, 2);
  layer->to(in.x("a").device());
  {
    const NoGradGuard no_grad;
    layer->weight.copy_(in.t("bil"));
    layer->bias.copy_(in.t("v").narrow(0, 0, 2));
  }
  return layer->forward(in.x("a"), in.x("a"));
}

#define CASE(...) \
  Case { \
    [](const Inputs& in) -> Tensor { return __VA_ARGS__; } \
  }
#define CASE_OF(first, ...) \
  Case { \
    [](const Inputs& in) -> Tensor { return __VA_ARGS__; }, first \
  }

const std::map<std::string, Case>& cases() {
  static const std::map<std::string, Case> all = {
      {"matmul", CASE(matmul(in.x("a"), in.x("b")))},
      {"matmul_mixed", CASE(matmul(in.x("a"), in.t("b")))},
      {"mm", CASE(mm(in.x("a"), in.x("b")))},
      {"mv", CASE(mv(in.x("a"), in.x("v")))},
      {"bmm", CASE_OF("q", bmm(in.x("q"), in.x("p")))},
      {"addmm", CASE(addmm(in.x("m"), in.x("a"), in.x("b")))},
      {"addmv", CASE(addmv(in.x("d"), in.x("a"), in.x("v")))},
      {"baddbmm", CASE_OF("q", baddbmm(in.x("r"), in.x("q"), in.x("p")))},
      {"dot", CASE_OF("v", dot(in.x("v"), in.x("u")))},
      {"dot_mixed", CASE_OF("v", dot(in.x("v"), in.t("u")))},
      {"outer", CASE_OF("v", outer(in.x("v"), in.x("u")))},
      {"tensordot", CASE(tensordot(in.x("a"), in.x("b"), {1}, {0}))},
      {"tensordot_mixed", CASE(tensordot(in.x("a"), in.t("b"), {1}, {0}))},
      {"einsum", CASE(einsum("ij,jk->ik", {in.x("a"), in.x("b")}))},
      {"linear", CASE(linear(in.x("a"), in.t("w"), in.t("bias")))},
      {"conv1d", CASE_OF("seq", conv1d(in.x("seq"), in.t("k1"), in.t("c3")))},
      {"conv2d", CASE_OF("img", conv2d(in.x("img"), in.t("k"), in.t("v"), 1, 1))},
      {"conv_transpose1d", CASE_OF("seq", conv_transpose1d(in.x("seq"), in.t("kt1"), in.t("c3")))},
      {"conv_transpose2d", CASE_OF("img", conv_transpose2d(in.x("img"), in.t("kt"), in.t("v")))},
      {"scaled_dot_product_attention", CASE_OF("q", scaled_dot_product_attention(in.x("q"), in.x("q"), in.x("q")))},
      {"prelu", CASE(prelu(in.x("a") - 0.5, in.t("slope")))},
      {"lstm", {recurrent<nn::LSTM>, "seq"}},
      {"gru", {recurrent<nn::GRU>, "seq"}},
      {"rnn", {recurrent<nn::RNN>, "seq"}},
      {"lstm_cell", {cell<nn::LSTMCell>}},
      {"gru_cell", {cell<nn::GRUCell>}},
      {"rnn_cell", {cell<nn::RNNCell>}},
      {"bilinear", {bilinear}},
      {"cross", CASE_OF("s", cross(in.x("s"), in.t("s").flip({0}), 1))},
      {"cat", CASE(cat({in.x("a"), in.t("a")}))},
      {"stack", CASE(stack({in.x("a"), in.t("a")}))},
      {"addcmul", CASE(addcmul(in.x("a"), in.t("a"), in.x("a")))},
      {"addcdiv", CASE(addcdiv(in.x("a"), in.t("a"), in.x("a")))},
      {"atan2", CASE(atan2(in.x("a"), in.t("a")))},
      {"add", CASE(in.x("a") + in.t("a"))},
      {"mul", CASE(in.x("a") * in.x("a"))},
      {"index_copy", CASE(index_copy(in.x("a"), 0, in.places(), in.t("a").narrow(0, 0, 2)))},
      {"scatter_add", CASE(scatter_add(in.x("a"), 0, zeros({1, 4}, TensorOptions(kLong).device(in.x("a").device())),
                                       in.t("a").narrow(0, 0, 1)))},
      {"index_put", CASE(index_put(in.x("a"), {in.places()}, in.t("a").narrow(0, 0, 2)))},
      {"exp", CASE(exp(in.x("a")))},
      {"expm1", CASE(expm1(in.x("a")))},
      {"log", CASE(log(in.x("a")))},
      {"log10", CASE(log10(in.x("a")))},
      {"log1p", CASE(log1p(in.x("a")))},
      {"log2", CASE(log2(in.x("a")))},
      {"reciprocal", CASE(reciprocal(in.x("a")))},
      {"rsqrt", CASE(rsqrt(in.x("a")))},
      {"tan", CASE(tan(in.x("a")))},
      {"pow", CASE(pow(in.x("a"), 3))},
      {"pow_of_tensors", CASE(pow(in.x("a"), in.x("a")))},
      {"power_of_number", CASE(pow(2, in.x("a")))},
      {"one_over", CASE(1 / in.x("a"))},
      {"halved", CASE(in.x("a") / 2)},
      {"softplus", CASE(softplus(in.x("a")))},
      {"sqrt", CASE(sqrt(in.x("a")))},
      {"sin", CASE(sin(in.x("a")))},
      {"erf", CASE(erf(in.x("a")))},
      {"tanh", CASE(tanh(in.x("a")))},
      {"sigmoid", CASE(sigmoid(in.x("a")))},
      {"relu", CASE(relu(in.x("a")))},
      {"gelu", CASE(gelu(in.x("a")))},
      {"silu", CASE(silu(in.x("a")))},
      {"elu", CASE(elu(in.x("a")))},
      {"softmax", CASE(softmax(in.x("a"), 1))},
      {"log_softmax", CASE(log_softmax(in.x("a"), 1))},
      {"softmin", CASE(softmin(in.x("a"), 1))},
      {"logsumexp", CASE(logsumexp(in.x("a"), {1}))},
      {"sum", CASE(in.x("a").sum())},
      {"sum_along", CASE(in.x("a").sum({1}))},
      {"sum_double", CASE(in.x("a").sum({1}, false, kDouble))},
      {"prod", CASE(in.x("a").prod())},
      {"prod_along", CASE(in.x("a").prod(1))},
      {"cumsum", CASE(in.x("a").cumsum(1))},
      {"cumprod", CASE(in.x("a").cumprod(1))},
      {"mean", CASE(in.x("a").mean())},
      {"var", CASE(in.x("a").var())},
      {"std", CASE(in.x("a").std())},
      {"norm", CASE(in.x("a").norm())},
      {"norm_1", CASE(in.x("a").norm(1, {1}))},
      {"norm_inf", CASE(in.x("a").norm(INFINITY))},
      {"trace", CASE_OF("s", trace(in.x("s")))},
      {"layer_norm", CASE(layer_norm(in.x("a"), {4}, in.t("v"), in.t("u")))},
      {"group_norm", CASE_OF("img", group_norm(in.x("img"), 3, in.t("c3"), in.t("e3")))},
      {"batch_norm", CASE_OF("img", batch_norm(in.x("img"), in.t("c3").clone(), in.t("e3").clone(), in.t("c3"),
                                               in.t("e3"), true, 0.1, 1e-5))},
      {"instance_norm", CASE_OF("img", instance_norm(in.x("img"), {}, {}, {}, {}, true, 0.1, 1e-5))},
      {"local_response_norm", CASE_OF("img", local_response_norm(in.x("img"), 3, 1e-4, 0.75, 1))},
      {"cosine_similarity", CASE(cosine_similarity(in.x("a"), in.x("a").flip({0})))},
      {"avg_pool2d", CASE_OF("img", avg_pool2d(in.x("img"), 2))},
      {"max_pool2d", CASE_OF("img", max_pool2d(in.x("img"), 2))},
      {"adaptive_avg_pool2d", CASE_OF("img", adaptive_avg_pool2d(in.x("img"), {2, 2}))},
      {"interpolate",
       CASE_OF("img", nn::functional::interpolate(in.x("img"), nn::functional::InterpolateFuncOptions()
                                                                   .scale_factor(std::vector<double>{2, 2})
                                                                   .mode(kBilinear)
                                                                   .align_corners(false)))},
      {"embedding", CASE_OF("b", embedding(in.x("b"), in.labels()))},
      {"cross_entropy", CASE(cross_entropy(in.x("a"), in.labels()))},
      {"cross_entropy_smooth",
       CASE(cross_entropy(in.x("a"), in.labels(), {}, Reduction::mean, -100, /*label_smoothing=*/0.1))},
      {"cross_entropy_weighed", CASE(cross_entropy(in.x("a"), in.labels(), in.t("v")))},
      {"cross_entropy_of_probabilities", CASE(cross_entropy(in.x("a"), in.t("a")))},
      {"nll_loss", CASE(nll_loss(in.x("a"), in.labels()))},
      {"mse_loss", CASE(mse_loss(in.x("a"), in.t("a").flip({0})))},
      {"l1_loss", CASE(l1_loss(in.x("a"), in.t("a").flip({0})))},
      {"smooth_l1_loss", CASE(smooth_l1_loss(in.x("a"), in.t("a").flip({0})))},
      {"huber_loss", CASE(huber_loss(in.x("a"), in.t("a").flip({0})))},
      {"kl_div", CASE(kl_div(in.x("a"), in.t("a"), Reduction::sum))},
      {"poisson_nll_loss", CASE(poisson_nll_loss(in.x("a"), in.t("a")))},
      {"soft_margin_loss", CASE(soft_margin_loss(in.x("a"), in.ones({3, 4})))},
      {"hinge_embedding_loss", CASE(hinge_embedding_loss(in.x("a"), in.ones({3, 4})))},
      {"margin_ranking_loss", CASE_OF("v", margin_ranking_loss(in.x("v"), in.x("u"), in.ones({4})))},
      {"triplet_margin_loss", CASE(triplet_margin_loss(in.x("a"), in.x("a").flip({0}), in.x("a").flip({1})))},
      {"multi_margin_loss", CASE(multi_margin_loss(in.x("a"), in.labels()))},
      {"cosine_embedding_loss", CASE(cosine_embedding_loss(in.x("a"), in.x("a").flip({0}), in.ones({3})))},
      {"binary_cross_entropy", CASE(binary_cross_entropy(in.x("a"), in.t("a")))},
      {"binary_cross_entropy_with_logits", CASE(binary_cross_entropy_with_logits(in.x("a"), in.t("a")))},
  };
  return all;
}

std::string text_of(const Array& bytes) {
  const auto* begin = static_cast<const char*>(bytes.data());
  return {begin, begin + bytes.numel()};
}

void compare(const std::string& file, DeviceType type, DType half) {
  const auto golden = io::load_safetensors(source_path("tests/golden/" + file));
  const Device device = type == DeviceType::cpu ? Device() : other_device();
  int compared = 0;
  for (const auto& [name, one] : cases()) {
    // PyTorch refuses binary_cross_entropy under autocast on cuda.
    const bool is_known = golden.contains(name + "/float32") || golden.contains(name + "/half");
    if (!(type == DeviceType::cuda && name == "binary_cross_entropy")) CHECK((is_known ? "" : name) == "");
    for (const bool narrow : {false, true}) {
      const std::string variant = narrow ? "half" : "float32";
      INFO(name << ", " << variant);
      if (!golden.contains(name + "/" + variant)) continue;
      Inputs in;
      for (const auto& [key, numbers] : golden) {
        if (key.rfind("in/", 0) != 0) continue;
        in.wide[key.substr(3)] = Tensor(numbers).to(device);
        in.typed[key.substr(3)] = in.wide[key.substr(3)].to(device, narrow ? half : kFloat).detach().clone();
      }
      const Tensor& first = in.typed[one.first];
      first.requires_grad_();
      Tensor y;
      {
        const amp::Autocast autocast(type, half);
        y = one.run(in);
      }
      CHECK(std::string(gradus::name(y.dtype())) == text_of(golden.at(name + "/type/" + variant)));
      // PyTorch rounds in between what here is computed in float32: of half logits the log-probabilities, the squares
      // of half images, and the gates of cells, whatever the type of their state.
      const bool rounds_between = name.starts_with("gru") || name == "lstm_cell" ||
                                  (narrow && (name.starts_with("cross_entropy") || name == "local_response_norm"));
      const DType accuracy = y.dtype() == half || rounds_between ? half : kFloat;
      CHECK(error(y, Tensor(golden.at(name + "/" + variant))) <= tolerance_of(accuracy));
      ++compared;
      if (!golden.contains(name + "/grad") || narrow) continue;
      y.sum().backward();
      REQUIRE(first.grad().defined());
      CHECK(first.grad().dtype() == kFloat);
      CHECK(error(first.grad(), Tensor(golden.at(name + "/grad"))) <= 3 * tolerance_of(half));
    }
  }
  const auto is_type = [](const auto& entry) { return entry.first.find("/type/") != std::string::npos; };
  CHECK(compared == std::count_if(golden.begin(), golden.end(), is_type));  // nothing in the file is left out
}

}  // namespace

TEST_CASE("under autocast on the cpu operators give PyTorch's types, numbers and gradients") {
  for (const char* name : {"naive", "openmp"}) {
    const BackendGuard backend(name);
    INFO(name);
    compare("autocast_cpu.safetensors", kCPU, kBFloat16);
  }
}

TEST_CASE("under autocast on cuda operators give PyTorch's types, numbers and gradients") {
  compare("autocast_cuda.safetensors", kCUDA, kHalf);
}
