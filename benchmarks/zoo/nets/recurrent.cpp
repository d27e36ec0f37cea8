// Recurrent nets: language models, taggers, a classifier of images, and a decoder with attention.
#include <gradus/benchmarks/zoo/zoo.h>

namespace gradus::zoo {

namespace {

/// Maps sequences (N, L, features) to logits (N, L, classes): a recurrent layer, and a linear layer of its output at
/// each step.
template <class Layer>
struct Readout : nn::Module {
  Readout(const Layer& layer, int64_t features, int64_t classes) : layer(layer), head(features, classes) {
    register_module("layer", layer);
    register_module("head", head);
  }
  Tensor forward(const Tensor& x) { return head(std::get<0>(layer(x))); }

  Layer layer;
  nn::Linear head;
};

/// A language model of 2000 tokens, with two GRU layers (Cho et al., "Learning phrase representations using RNN
/// encoder-decoder for statistical machine translation", 2014).
nn::Sequential gru_language() {
  const nn::GRU gru(nn::GRUOptions(256, 256).num_layers(2).batch_first(true));
  return nn::Sequential(nn::Embedding(2000, 256), Readout<nn::GRU>(gru, 256, 2000));
}

/// A language model of 4000 tokens with one wide LSTM (Jozefowicz et al., "Exploring the limits of language modeling",
/// 2016, use 2048 features and more).
nn::Sequential lstm_1024() {
  const nn::LSTM lstm(nn::LSTMOptions(256, 1024).batch_first(true));
  return nn::Sequential(nn::Embedding(4000, 256), Readout<nn::LSTM>(lstm, 1024, 4000));
}

/// Tags each of 5000 words with one of 20 names (Huang et al., "Bidirectional LSTM-CRF models for sequence tagging",
/// 2015), without the conditional random field.
nn::Sequential bilstm_tagger() {
  const nn::LSTM lstm(nn::LSTMOptions(128, 256).num_layers(2).bidirectional(true).batch_first(true));
  return nn::Sequential(nn::Embedding(5000, 128), Readout<nn::LSTM>(lstm, 512, 20));
}

/// Classifies frames of speech (Sak et al., "Long short-term memory based recurrent neural network architectures for
/// large vocabulary speech recognition", 2014): 40 filters to 48 phones.
Readout<nn::LSTM> projected_lstm() {
  const nn::LSTM lstm(nn::LSTMOptions(40, 512).num_layers(2).proj_size(128).batch_first(true));
  return Readout<nn::LSTM>(lstm, 128, 48);
}

/// Reads an image (N, 28, 28) row by row, and classifies it by the last state (Elman, "Finding structure in time",
/// 1990).
struct PixelRowRnnImpl : nn::Module {
  PixelRowRnnImpl() {
    register_module("rnn", rnn);
    register_module("head", head);
  }
  Tensor forward(const Tensor& images) { return head(std::get<0>(rnn(images)).select(1, -1)); }

  nn::RNN rnn{nn::RNNOptions(28, 128).batch_first(true)};
  nn::Linear head{128, 10};
};
GRADUS_MODULE(PixelRowRnn);

/// A GRU encodes a sentence. Another one writes its translation, and looks at the encoder's states before each word
/// (Luong et al., "Effective approaches to attention-based neural machine translation", 2015).
struct AttentionSeq2SeqImpl : nn::Module {
  AttentionSeq2SeqImpl() {
    register_module("source", source);
    register_module("target", target);
    register_module("encoder", encoder);
    register_module("decoder", decoder);
    register_module("query", query);
    register_module("combine", combine);
    register_module("head", head);
  }
  /// Maps tokens (N, S) and (N, T) to logits (N, T, 2000) of the next tokens.
  Tensor forward(const Tensor& sentence, const Tensor& translation) {
    const auto [states, last] = encoder(source(sentence));  // (N, S, 256), (1, N, 256)
    const Tensor words = target(translation);
    Tensor h = last[0], attended = zeros_like(h);
    TensorList outputs;
    for (int64_t t = 0; t < words.size(1); ++t) {
      h = decoder(cat({words.select(1, t), attended}, 1), h);
      const Tensor weights = softmax(bmm(states, query(h).unsqueeze(2)), 1);  // (N, S, 1)
      const Tensor context = (weights * states).sum(1);
      attended = tanh(combine(cat({context, h}, 1)));
      outputs.push_back(attended);
    }
    return head(stack(outputs, 1));
  }

  nn::Embedding source{2000, 128}, target{2000, 128};
  nn::GRU encoder{nn::GRUOptions(128, 256).batch_first(true)};
  nn::GRUCell decoder{128 + 256, 256};
  nn::Linear query{nn::LinearOptions(256, 256).bias(false)}, combine{512, 256}, head{256, 2000};
};
GRADUS_MODULE(AttentionSeq2Seq);

Net attention_seq2seq() {
  const AttentionSeq2Seq net;
  return one_phase(net.ptr(), [net](const TensorList& batch) {
    const Tensor logits = net(batch[0], batch[1].slice(1, 0, -1));
    return nn::functional::cross_entropy(logits.flatten(0, 1), batch[1].slice(1, 1).flatten());
  });
}

}  // namespace

std::vector<Entry> recurrent_nets() {
  using Inputs = std::vector<Input>;
  return {{"gru_language", 32, [] { return language_model(nn::AnyModule(gru_language())); },
           [](int64_t batch) {
             return Inputs{{"integers", {batch, 65}, 2000}};
           }},
          {"lstm_1024", 16, [] { return language_model(nn::AnyModule(lstm_1024())); },
           [](int64_t batch) {
             return Inputs{{"integers", {batch, 33}, 4000}};
           }},
          {"bilstm_tagger", 32, [] { return step_classifier(nn::AnyModule(bilstm_tagger())); },
           [](int64_t batch) {
             return Inputs{{"integers", {batch, 40}, 5000}, {"integers", {batch, 40}, 20}};
           }},
          {"projected_lstm", 16, [] { return step_classifier(nn::AnyModule(projected_lstm())); },
           [](int64_t batch) {
             return Inputs{{"normal", {batch, 60, 40}}, {"integers", {batch, 60}, 48}};
           }},
          image_classifier("pixel_row_rnn", 128, {28, 28}, 10, [] { return PixelRowRnn(); }),
          {"attention_seq2seq", 32, attention_seq2seq, [](int64_t batch) {
             return Inputs{{"integers", {batch, 24}, 2000}, {"integers", {batch, 25}, 2000}};
           }}};
}

}  // namespace gradus::zoo
