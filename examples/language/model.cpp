#include <gradus/examples/language/model.h>

#include <cmath>
#include <random>

using namespace gradus;

namespace {

/// Make linear layers. With a group, each rank has a part of the outputs (column parallel) or a part of the inputs (row
/// parallel).
nn::AnyModule column_linear(int64_t in, int64_t out, const Group& group) {
  if (group) return nn::AnyModule(nn::ColumnParallelLinear(nn::ColumnParallelLinearOptions(in, out), group));
  return nn::AnyModule(nn::Linear(in, out));
}

nn::AnyModule row_linear(int64_t in, int64_t out, const Group& group) {
  if (group) return nn::AnyModule(nn::RowParallelLinear(nn::RowParallelLinearOptions(in, out), group));
  return nn::AnyModule(nn::Linear(in, out));
}

nn::AnyModule embedding(int64_t tokens, int64_t width, const Group& group) {
  if (group) return nn::AnyModule(nn::VocabParallelEmbedding(nn::VocabParallelEmbeddingOptions(tokens, width), group));
  return nn::AnyModule(nn::Embedding(tokens, width));
}

}  // namespace

DecoderBlockImpl::DecoderBlockImpl(const LanguageModelOptions& options, const Group& group) {
  const int64_t width = options.width, heads = options.heads;
  norm1 = register_module("norm1", nn::LayerNorm(std::vector<int64_t>{width}));
  if (group)
    parallel_attention =
        register_module("attention", nn::ParallelSelfAttention(nn::ParallelSelfAttentionOptions(width, heads), group));
  else
    attention = register_module("attention",
                                nn::MultiheadAttention(nn::MultiheadAttentionOptions(width, heads).batch_first(true)));
  norm2 = register_module("norm2", nn::LayerNorm(std::vector<int64_t>{width}));
  mlp->push_back(column_linear(width, 4 * width, group));
  mlp->push_back(nn::GELU());
  mlp->push_back(row_linear(4 * width, width, group));
  register_module("mlp", mlp);
}

Tensor DecoderBlockImpl::forward(Tensor x) {
  const Tensor later = ones({x.size(1), x.size(1)}, dtype(kBool).device(x.device())).triu(1);  // (L, L)
  const Tensor y = norm1(x);
  x = x + (parallel_attention ? parallel_attention(y, later.logical_not())
                              : std::get<0>(attention(y, y, y, Tensor(), /*need_weights=*/false, later)));
  return x + mlp(norm2(x));
}

LanguageModelImpl::LanguageModelImpl(const LanguageModelOptions& options, Group group)
    : options(options), group(std::move(group)) {
  embed = embedding(options.vocabulary, options.width, this->group);
  register_module("embed", embed.ptr());
  positions = register_module("positions", nn::Embedding(options.context, options.width));
  for (int64_t i = 0; i < options.blocks; ++i)
    blocks.push_back(register_module("block" + std::to_string(i), DecoderBlock(options, this->group)));
  norm = register_module("norm", nn::LayerNorm(std::vector<int64_t>{options.width}));
  head = column_linear(options.width, options.vocabulary, this->group);
  register_module("head", head.ptr());
}

Tensor LanguageModelImpl::forward(const Tensor& tokens) {
  const Tensor places = arange(tokens.size(1), dtype(kLong).device(tokens.device()));  // (L)
  Tensor x = embed(tokens) + positions(places);                                        // (N, L, width)
  for (const DecoderBlock& block : blocks) x = block(x);
  return head(norm(x));  // (N, L, vocabulary)
}

Tensor LanguageModelImpl::loss(const Tensor& logits, const Tensor& targets) const {
  if (group) return dist::parallel_cross_entropy(logits, targets, group);
  return cross_entropy(logits.flatten(0, 1), targets.flatten());
}

std::vector<int64_t> generate(const LanguageModel& model, std::vector<int64_t> tokens, const Sampling& sampling) {
  const NoGradGuard no_grad;
  const Device device = model->parameters()[0].device();
  const int64_t vocabulary = model->options.vocabulary;
  const int64_t kept = sampling.temperature == 0 ? 1 : sampling.top_k == 0 ? vocabulary : sampling.top_k;
  std::mt19937_64 random(sampling.seed);
  for (int64_t i = 0; i < sampling.count; ++i) {
    const int64_t seen = std::min(static_cast<int64_t>(tokens.size()), model->options.context);
    const Tensor last = tensor(std::vector<int64_t>(tokens.end() - seen, tokens.end()));
    Tensor logits = model(last.unsqueeze(0).to(device)).select(1, seen - 1);  // (1, vocabulary)
    if (model->group) logits = dist::gather_from_ranks(logits, model->group);
    logits = logits[0].to(kCPU).to(kDouble);  // (vocabulary)
    const auto [likeliest, places] = logits.topk(std::min(kept, vocabulary));
    if (kept < vocabulary) logits = full_like(logits, -INFINITY).scatter(0, places, likeliest);
    if (sampling.temperature > 0) logits = logits / sampling.temperature;
    const Tensor sums = softmax(logits, 0).cumsum(0);                    // (vocabulary)
    const double drawn = static_cast<double>(random() >> 11) * 0x1p-53;  // in [0, 1)
    tokens.push_back(std::min((sums <= drawn).sum().item<int64_t>(), vocabulary - 1));
  }
  return tokens;
}
