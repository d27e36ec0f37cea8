// A language model: a decoder of characters, as GPT-2 has it (Radford et al., "Language models are unsupervised
// multitask learners", 2019): token and position embeddings, blocks with their norms in front, a head of its own.
#pragma once

#include <gradus/distributed/distributed.h>
#include <gradus/gradus.h>

#include <memory>
#include <vector>

using Group = std::shared_ptr<gradus::dist::ProcessGroup>;

struct LanguageModelOptions {
  int64_t vocabulary = 32;
  int64_t context = 64;  ///< positions that the model can look back at, itself included
  int64_t width = 64, heads = 4, blocks = 2;
};

/// x + attention(norm(x)), then x + mlp(norm(x)): (N, L, width) to the same shape.
struct DecoderBlockImpl : gradus::nn::Module {
  DecoderBlockImpl(const LanguageModelOptions& options, const Group& group);
  gradus::Tensor forward(gradus::Tensor x);

  gradus::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  gradus::nn::MultiheadAttention attention{nullptr};
  gradus::nn::ParallelSelfAttention parallel_attention{nullptr};  // in its place where there is a group
  gradus::nn::Sequential mlp;
};
GRADUS_MODULE(DecoderBlock);

/// Tokens (N, L) int64, L at most context, to logits (N, L, vocabulary) of what comes next. With a group the layers are
/// tensor parallel: a rank has its part of every weight and of the logits, (N, L, vocabulary / n), and all ranks
/// together are the same net. The children are what FullyShardedDataParallel takes as units.
struct LanguageModelImpl : gradus::nn::Module {
  explicit LanguageModelImpl(const LanguageModelOptions& options, Group group = nullptr);
  gradus::Tensor forward(const gradus::Tensor& tokens);
  /// The mean cross-entropy, in nats a character, of logits from forward() at the characters (N, L) that came.
  gradus::Tensor loss(const gradus::Tensor& logits, const gradus::Tensor& targets) const;

  const LanguageModelOptions options;
  const Group group;
  gradus::nn::AnyModule embed, head;
  gradus::nn::Embedding positions{nullptr};
  std::vector<DecoderBlock> blocks;
  gradus::nn::LayerNorm norm{nullptr};
};
GRADUS_MODULE(LanguageModel);

/// How characters are drawn.
struct Sampling {
  int64_t count = 200;
  double temperature = 1;  ///< logits are divided by it: below 1 bolder guesses are rarer; 0 takes the likeliest always
  int64_t top_k = 0;       ///< only so many of the likeliest may come; 0: all
  uint64_t seed = 1;
};

/// `tokens` and `count` more, each drawn by the probability that the model gives it. All ranks call it alike.
std::vector<int64_t> generate(const LanguageModel& model, std::vector<int64_t> tokens, const Sampling& sampling);
