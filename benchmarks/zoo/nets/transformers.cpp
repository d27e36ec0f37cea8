// Transformers: language models, a translator, and classifiers of images that are cut into patches.
#include <cmath>

#include <gradus/benchmarks/zoo/nets/blocks.h>
#include <gradus/benchmarks/zoo/zoo.h>

namespace gradus::zoo {

namespace {

namespace F = nn::functional;

nn::LayerNorm layer_norm(int64_t width) { return nn::LayerNorm(std::vector<int64_t>{width}); }

nn::Linear without_bias(int64_t in, int64_t out) { return nn::Linear(nn::LinearOptions(in, out).bias(false)); }

/// Returns two linear layers with GELU between them.
nn::Sequential mlp(int64_t width, int64_t hidden, const std::string& approximate = "none") {
  return nn::Sequential(nn::Linear(width, hidden), nn::GELU(nn::GELUOptions(approximate)), nn::Linear(hidden, width));
}

/// Returns 0, 1, … for the positions in tokens (N, L).
Tensor positions_of(const Tensor& tokens) { return arange(tokens.size(1), tokens.options()); }

// ---- GPT ----

/// Attention of each position to itself and to those before it, in x (N, L, width).
struct CausalAttentionImpl : nn::Module {
  CausalAttentionImpl(int64_t width, int64_t heads) : heads(heads), c_attn(width, 3 * width), c_proj(width, width) {
    register_module("c_attn", c_attn);
    register_module("c_proj", c_proj);
  }
  Tensor forward(const Tensor& x) {
    TensorList parts = c_attn(x).chunk(3, -1);
    for (Tensor& part : parts) part = part.unflatten(-1, {heads, -1}).transpose(1, 2);  // (N, heads, L, width / heads)
    const Tensor y = scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    return c_proj(y.transpose(1, 2).flatten(2));
  }

  int64_t heads;
  nn::Linear c_attn, c_proj;
};
GRADUS_MODULE(CausalAttention);

/// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) with half the width and blocks,
/// for texts of 256 bytes. The logits are products with the embeddings of tokens.
struct GptImpl : nn::Module {
  GptImpl() {
    for (int i = 0; i < 6; ++i) {
      h->push_back(Residual(nn::Sequential(layer_norm(384), CausalAttention(384, 6))));
      h->push_back(Residual(nn::Sequential(layer_norm(384), mlp(384, 4 * 384, "tanh"))));
    }
    register_module("wte", wte);
    register_module("wpe", wpe);
    register_module("h", h);
    register_module("ln_f", ln_f);
  }
  Tensor forward(const Tensor& tokens) { return linear(ln_f(h(wte(tokens) + wpe(positions_of(tokens)))), wte->weight); }

  nn::Embedding wte = small_embedding(256, 384, 0.02), wpe = small_embedding(256, 384, 0.02);
  nn::Sequential h;
  nn::LayerNorm ln_f = layer_norm(384);
};
GRADUS_MODULE(Gpt);

// ---- Llama ----

/// Returns the angles (length, width / 2) of encodings of positions: each position times frequencies that fall.
Tensor position_angles(int64_t length, int64_t width) {
  return arange(length).unsqueeze(1) * exp(arange(0, width, 2) * (-std::log(10000.0) / static_cast<double>(width)));
}

/// Divides by the root of the mean square (Zhang, Sennrich: "Root mean square layer normalization", 2019).
struct RmsNormImpl : nn::Module {
  explicit RmsNormImpl(int64_t width) { weight = register_parameter("weight", ones({width})); }
  Tensor forward(const Tensor& x) { return weight * (x * rsqrt(x.square().mean(-1, true) + 1e-6)); }

  Tensor weight;
};
GRADUS_MODULE(RmsNorm);

/// Causal attention whose queries and keys are rotated by the angles of their positions (Su et al., "RoFormer: enhanced
/// transformer with rotary position embedding", 2021). Two heads of queries share one of keys and values (Ainslie et
/// al., "GQA: training generalized multi-query transformer models", 2023).
struct RotaryAttentionImpl : nn::Module {
  RotaryAttentionImpl(int64_t length, int64_t width, int64_t heads)
      : head_width(width / heads), q_proj(without_bias(width, width)), k_proj(without_bias(width, width / 2)),
        v_proj(without_bias(width, width / 2)), o_proj(without_bias(width, width)) {
    register_module("q_proj", q_proj);
    register_module("k_proj", k_proj);
    register_module("v_proj", v_proj);
    register_module("o_proj", o_proj);
    cosines = register_buffer("cosines", cos(position_angles(length, head_width)));
    sines = register_buffer("sines", sin(position_angles(length, head_width)));
  }
  /// Maps (N, L, heads * head_width) to (N, heads, L, head_width).
  Tensor split(const Tensor& x) const { return x.unflatten(-1, {-1, head_width}).transpose(1, 2); }
  Tensor rotate(const Tensor& x) const {
    const TensorList halves = x.chunk(2, -1);
    return cat({halves[0] * cosines - halves[1] * sines, halves[1] * cosines + halves[0] * sines}, -1);
  }
  Tensor forward(const Tensor& x) {
    const Tensor q = rotate(split(q_proj(x))), k = rotate(split(k_proj(x))), v = split(v_proj(x));
    const Tensor y = scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), {}, 0, true);
    return o_proj(y.transpose(1, 2).flatten(2));
  }

  int64_t head_width;
  nn::Linear q_proj, k_proj, v_proj, o_proj;
  Tensor cosines, sines;
};
GRADUS_MODULE(RotaryAttention);

/// Linear layers, of which one is gated (Shazeer, "GLU variants improve transformer", 2020).
struct SwiGluImpl : nn::Module {
  SwiGluImpl(int64_t width, int64_t hidden)
      : gate_proj(without_bias(width, hidden)), up_proj(without_bias(width, hidden)),
        down_proj(without_bias(hidden, width)) {
    register_module("gate_proj", gate_proj);
    register_module("up_proj", up_proj);
    register_module("down_proj", down_proj);
  }
  Tensor forward(const Tensor& x) { return down_proj(silu(gate_proj(x)) * up_proj(x)); }

  nn::Linear gate_proj, up_proj, down_proj;
};
GRADUS_MODULE(SwiGlu);

/// A small Llama (Touvron et al., "Llama 2: open foundation and fine-tuned chat models", 2023) for 128 of 2000 tokens.
nn::Sequential llama() {
  nn::Sequential net;
  net->push_back(nn::Embedding(2000, 256));
  for (int i = 0; i < 4; ++i) {
    net->push_back(Residual(nn::Sequential(RmsNorm(256), RotaryAttention(128, 256, 8))));
    net->push_back(Residual(nn::Sequential(RmsNorm(256), SwiGlu(256, 688))));
  }
  net->push_back(RmsNorm(256));
  net->push_back(without_bias(256, 2000));
  return net;
}

// ---- BERT ----

/// Devlin et al., "BERT: pre-training of deep bidirectional transformers for language understanding", 2019, in the size
/// that Turc et al. call mini, for 8000 tokens: trained to guess hidden tokens.
struct BertImpl : nn::Module {
  BertImpl() {
    register_module("words", words);
    register_module("positions", positions);
    register_module("norm", norm);
    register_module("encoder", encoder);
    register_module("transform", transform);
    bias = register_parameter("bias", zeros({8000}));
  }
  /// The sentence in row n of tokens (N, L) ends at last[n]. A token is hidden where chance (N, L) is below 0.15.
  Tensor loss(const Tensor& tokens, const Tensor& last, const Tensor& chance) {
    const Tensor is_padding = positions_of(tokens) > last.unsqueeze(1);
    const Tensor is_hidden = (chance < 0.15) & ~is_padding;
    const int64_t mask_token = 103, ignored = -100;
    const Tensor x = words(tokens.masked_fill(is_hidden, mask_token)) + positions(positions_of(tokens));
    const Tensor y = encoder(norm(x).transpose(0, 1), Tensor(), is_padding).transpose(0, 1);
    const Tensor logits = linear(transform(y), words->weight, bias);
    return F::cross_entropy(logits.flatten(0, 1), tokens.masked_fill(~is_hidden, ignored).flatten());
  }

  nn::Embedding words = small_embedding(8000, 256, 0.02), positions = small_embedding(128, 256, 0.02);
  nn::LayerNorm norm = layer_norm(256);
  nn::TransformerEncoder encoder{nn::TransformerEncoderOptions(
      nn::TransformerEncoderLayerOptions(256, 4).dim_feedforward(1024).dropout(0).activation(kGELU), 4)};
  nn::Sequential transform{nn::Linear(256, 256), nn::GELU(), layer_norm(256)};
  Tensor bias;
};
GRADUS_MODULE(Bert);

Net bert() {
  const Bert net;
  return one_phase(net.ptr(), [net](const TensorList& batch) { return net->loss(batch[0], batch[1], batch[2]); });
}

// ---- Translator ----

/// The encoder and decoder of Vaswani et al., "Attention is all you need", 2017, half as wide and deep as there, for
/// two languages with the same 4000 tokens.
struct TranslatorImpl : nn::Module {
  TranslatorImpl() {
    register_module("words", words);
    register_module("transformer", transformer);
    const Tensor angles = position_angles(64, 256);
    encodings = register_buffer("encodings", stack({sin(angles), cos(angles)}, 2).flatten(1));
  }
  /// Maps tokens (N, L) to (L, N, 256).
  Tensor embed(const Tensor& tokens) {
    return (16 * words(tokens) + encodings.slice(0, 0, tokens.size(1))).transpose(0, 1);
  }
  /// The sentence in row n of source (N, S) ends at last[n]. All of the target (N, T + 1) counts.
  Tensor loss(const Tensor& source, const Tensor& last, const Tensor& target) {
    const Tensor is_padding = positions_of(source) > last.unsqueeze(1);
    const Tensor before = target.slice(1, 0, -1), position = positions_of(before);
    const Tensor is_later = position > position.unsqueeze(1);  // (T, T)
    const Tensor y =
        transformer(embed(source), embed(before), Tensor(), is_later, Tensor(), is_padding, Tensor(), is_padding);
    const Tensor logits = linear(y.transpose(0, 1), words->weight);
    return F::cross_entropy(logits.flatten(0, 1), target.slice(1, 1).flatten(),
                            F::CrossEntropyFuncOptions().label_smoothing(0.1));
  }

  nn::Embedding words = small_embedding(4000, 256, 1.0 / 16);
  nn::Transformer transformer{nn::TransformerOptions(256, 4, 3, 3).dim_feedforward(1024).dropout(0)};
  Tensor encodings;
};
GRADUS_MODULE(Translator);

Net translator() {
  const Translator net;
  return one_phase(net.ptr(), [net](const TensorList& batch) { return net->loss(batch[0], batch[1], batch[2]); });
}

// ---- Images ----

/// Cuts images (N, 3, 32, 32) into 64 patches, and maps each to features: (N, 64, width).
struct PatchesImpl : nn::Module {
  explicit PatchesImpl(int64_t width) : proj(nn::Conv2dOptions(3, width, 4).stride(4)) {
    register_module("proj", proj);
  }
  Tensor forward(const Tensor& images) { return proj(images).flatten(2).transpose(1, 2); }

  nn::Conv2d proj;
};
GRADUS_MODULE(Patches);

struct SelfAttentionImpl : nn::Module {
  SelfAttentionImpl(int64_t width, int64_t heads)
      : attn(nn::MultiheadAttentionOptions(width, heads).batch_first(true)) {
    register_module("attn", attn);
  }
  Tensor forward(const Tensor& x) { return std::get<0>(attn(x, x, x, Tensor(), false)); }

  nn::MultiheadAttention attn;
};
GRADUS_MODULE(SelfAttention);

/// Dosovitskiy et al., "An image is worth 16x16 words: transformers for image recognition at scale", 2021, as narrow as
/// Touvron's DeiT-Ti and half as deep.
struct VitImpl : nn::Module {
  VitImpl() {
    for (int i = 0; i < 6; ++i) {
      blocks->push_back(Residual(nn::Sequential(layer_norm(192), SelfAttention(192, 3))));
      blocks->push_back(Residual(nn::Sequential(layer_norm(192), mlp(192, 4 * 192))));
    }
    register_module("patches", patches);
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
    class_token = register_parameter("class_token", zeros({1, 1, 192}));
    positions = register_parameter("positions", 0.02 * randn({65, 192}));
  }
  Tensor forward(const Tensor& images) {
    const Tensor x = patches(images);
    const Tensor y = blocks(cat({class_token.expand({x.size(0), -1, -1}), x}, 1) + positions);
    return head(norm(y.select(1, 0)));
  }

  Patches patches{192};
  nn::Sequential blocks;
  nn::LayerNorm norm = layer_norm(192);
  nn::Linear head{192, 10};
  Tensor class_token, positions;
};
GRADUS_MODULE(Vit);

/// Applies layers to the transposed input: across patches instead of across features.
struct TransposedImpl : nn::Module {
  explicit TransposedImpl(const nn::Sequential& f) : f(f) { register_module("f", f); }
  Tensor forward(const Tensor& x) { return f(x.transpose(1, 2)).transpose(1, 2); }

  nn::Sequential f;
};
GRADUS_MODULE(Transposed);

struct MlpMixerImpl : nn::Module {
  MlpMixerImpl() {
    for (int i = 0; i < 8; ++i) {
      blocks->push_back(Residual(nn::Sequential(layer_norm(256), Transposed(mlp(64, 128)))));
      blocks->push_back(Residual(nn::Sequential(layer_norm(256), mlp(256, 1024))));
    }
    register_module("patches", patches);
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
  }
  Tensor forward(const Tensor& images) { return head(norm(blocks(patches(images))).mean(1)); }

  Patches patches{256};
  nn::Sequential blocks;
  nn::LayerNorm norm = layer_norm(256);
  nn::Linear head{256, 10};
};
/// Tolstikhin et al., "MLP-Mixer: an all-MLP architecture for vision", 2021.
GRADUS_MODULE(MlpMixer);

}  // namespace

std::vector<Entry> transformer_nets() {
  using Inputs = std::vector<Input>;
  return {{"gpt", 4, [] { return language_model(nn::AnyModule(Gpt())); },
           [](int64_t batch) {
             return Inputs{{"integers", {batch, 257}, 256}};
           }},
          {"llama", 8, [] { return language_model(nn::AnyModule(llama())); },
           [](int64_t batch) {
             return Inputs{{"integers", {batch, 129}, 2000}};
           }},
          {"bert", 8, bert,
           [](int64_t batch) {
             return Inputs{{"integers", {batch, 128}, 8000}, {"integers", {batch}, 128}, {"uniform", {batch, 128}}};
           }},
          {"translator", 16, translator,
           [](int64_t batch) {
             return Inputs{{"integers", {batch, 48}, 4000}, {"integers", {batch}, 48}, {"integers", {batch, 49}, 4000}};
           }},
          image_classifier("vit", 32, {3, 32, 32}, 10, [] { return Vit(); }),
          image_classifier("mlp_mixer", 32, {3, 32, 32}, 10, [] { return MlpMixer(); })};
}

}  // namespace gradus::zoo
