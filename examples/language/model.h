// LanguageModel: a transformer decoder for characters like GPT-2 (Radford et al., "Language models are unsupervised
// multitask learners", 2019). It has embeddings of tokens and positions, blocks that normalise their input first, and a
// linear layer that computes logits (its weights are not tied to the embedding).
#pragma once

#include <gradus/distributed/distributed.h>
#include <gradus/gradus.h>

#include <memory>
#include <vector>

using Group = std::shared_ptr<gradus::dist::ProcessGroup>;

struct LanguageModelOptions {
  int64_t vocabulary = 32;
  int64_t context = 64;  ///< number of positions that a position can attend to, including itself
  int64_t width = 64, heads = 4, blocks = 2;
};

/// Computes x + attention(norm(x)), and then x + mlp(norm(x)). Shapes: (N, L, width) to (N, L, width).
struct DecoderBlockImpl : gradus::nn::Module {
  DecoderBlockImpl(const LanguageModelOptions& options, const Group& group);
  gradus::Tensor forward(gradus::Tensor x);

  gradus::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  gradus::nn::MultiheadAttention attention{nullptr};
  gradus::nn::ParallelSelfAttention parallel_attention{nullptr};  // used instead of `attention` if there is a group
  gradus::nn::Sequential mlp;
};
GRADUS_MODULE(DecoderBlock);

/// Maps tokens (N, L) int64, where L is at most `context`, to logits (N, L, vocabulary) of the next token. With a
/// group, the layers are tensor parallel: each of n ranks has a part of every weight and of the logits, (N, L,
/// vocabulary / n), and all ranks together compute the same net. FullyShardedDataParallel uses the children as its
/// units.
struct LanguageModelImpl : gradus::nn::Module {
  explicit LanguageModelImpl(const LanguageModelOptions& options, Group group = nullptr);
  gradus::Tensor forward(const gradus::Tensor& tokens);
  /// Returns the mean cross-entropy, in nats per character, of logits from forward() and the true next characters (N,
  /// L).
  gradus::Tensor loss(const gradus::Tensor& logits, const gradus::Tensor& targets) const;

  const LanguageModelOptions options;
  const Group group;
  gradus::nn::AnyModule embed, head;
  gradus::nn::Embedding positions{nullptr};
  std::vector<DecoderBlock> blocks;
  gradus::nn::LayerNorm norm{nullptr};
};
GRADUS_MODULE(LanguageModel);

/// Options for drawing characters.
struct Sampling {
  int64_t count = 200;
  double temperature = 1;  ///< divides the logits; 0 always takes the most likely character
  int64_t top_k = 0;       ///< draws only among this number of most likely characters; 0: among all
  uint64_t seed = 1;
};

/// Returns `tokens` and more tokens, each drawn with the probability that the model predicts. All ranks must call it
/// with the same arguments.
std::vector<int64_t> generate(const LanguageModel& model, std::vector<int64_t> tokens, const Sampling& sampling);
