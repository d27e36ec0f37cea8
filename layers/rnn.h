// Recurrent layers for whole sequences (RNN, LSTM, GRU) and for single steps (RNNCell, LSTMCell, GRUCell).
//
// The input is x, the hidden state h and, for LSTM, the cell state c. W are the weights of the input and U those of the
// hidden state, each with its bias; * is element-wise (Elman 1990; Hochreiter and Schmidhuber 1997; Cho et al. 2014):
//   RNN   h' = tanh(W x + U h), or relu
//   LSTM  i = sigmoid(Wi x + Ui h), f = sigmoid(Wf x + Uf h), g = tanh(Wg x + Ug h), o = sigmoid(Wo x + Uo h)
//         c' = f * c + i * g,  h' = o * tanh(c')
//   GRU   r = sigmoid(Wr x + Ur h), z = sigmoid(Wz x + Uz h), n = tanh(Wn x + r * (Un h)),  h' = (1 - z) * n + z * h
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include <gradus/autograd/ops/nn/sequence.h>
#include <gradus/layers/layer.h>
#include <gradus/layers/module/init.h>

namespace gradus::nn {

/// The activation of an RNN: torch::kTanh or torch::kReLU.
using RNNNonlinearity = init::Nonlinearity;

namespace detail {

/// The options that RNN, LSTM and GRU share.
template <class Options>
struct RecurrentOptions {
  RecurrentOptions(int64_t input_size, int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  void print(LayerPrinter& printer) const {
    printer("input_size", input_size_)("hidden_size", hidden_size_)("num_layers", num_layers_)("bias", bias_);
    printer("batch_first", batch_first_)("dropout", dropout_)("bidirectional", bidirectional_);
  }
  GRADUS_ARG_OF(Options, int64_t, input_size);
  GRADUS_ARG_OF(Options, int64_t, hidden_size);
  GRADUS_ARG_OF(Options, int64_t, num_layers) = 1;
  GRADUS_ARG_OF(Options, bool, bias) = true;
  /// True if sequences are (N, L, input_size) instead of (L, N, input_size).
  GRADUS_ARG_OF(Options, bool, batch_first) = false;
  /// Probability with which outputs of all layers but the last are dropped in training.
  GRADUS_ARG_OF(Options, double, dropout) = 0;
  GRADUS_ARG_OF(Options, bool, bidirectional) = false;
};

/// The options that the cells share.
template <class Options>
struct CellOptions {
  CellOptions(int64_t input_size, int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  void print(LayerPrinter& printer) const { printer.value(input_size_).value(hidden_size_)("bias", bias_, !bias_); }
  GRADUS_ARG_OF(Options, int64_t, input_size);
  GRADUS_ARG_OF(Options, int64_t, hidden_size);
  GRADUS_ARG_OF(Options, bool, bias) = true;
};

}  // namespace detail

struct RNNOptions : detail::RecurrentOptions<RNNOptions> {
  using RecurrentOptions::RecurrentOptions;
  GRADUS_ARG(RNNNonlinearity, nonlinearity) = kTanh;
};

struct LSTMOptions : detail::RecurrentOptions<LSTMOptions> {
  using RecurrentOptions::RecurrentOptions;
  void print(detail::LayerPrinter& printer) const {
    RecurrentOptions::print(printer);
    printer("proj_size", proj_size_, proj_size_ > 0);
  }
  /// Copies the options that all recurrent layers share from another layer's options.
  template <class Other>
  explicit LSTMOptions(const detail::RecurrentOptions<Other>& other)
      : RecurrentOptions(other.input_size(), other.hidden_size()) {
    num_layers(other.num_layers()).bias(other.bias()).batch_first(other.batch_first());
    dropout(other.dropout()).bidirectional(other.bidirectional());
  }
  /// If not 0, an additional weight projects the hidden states to this size (Sak et al. 2014).
  GRADUS_ARG(int64_t, proj_size) = 0;
};

struct GRUOptions : detail::RecurrentOptions<GRUOptions> {
  using RecurrentOptions::RecurrentOptions;
};

namespace detail {

using RNNOptionsBase = LSTMOptions;

/// Base of the recurrent layers. Parameters have PyTorch's names: weight_ih_l0 (gates * hidden, input), weight_hh_l0
/// (gates * hidden, hidden), bias_ih_l0, bias_hh_l0, weight_hr_l0 (proj, hidden), then those of the reverse direction
/// (…_l0_reverse), then those of the next layer. All are initialised from U(-1 / sqrt(hidden), 1 / sqrt(hidden)).
class RecurrentBase : public Module {
 public:
  void reset_parameters();
  /// Does nothing. LibTorch packs the weights for cuDNN here.
  void flatten_parameters() {}
  /// All weights, one layer after another.
  TensorList all_weights() const { return parameters(false); }

  /// The options of the layer. In an RNN or a GRU, options that only an LSTM has, such as proj_size, have their
  /// defaults.
  RNNOptionsBase options_base{0, 0};

 protected:
  void register_weights(RecurrentCell cell, const LSTMOptions& options);
  void register_weights(RecurrentCell cell, const RNNOptions& options);
  void register_weights(RecurrentCell cell, const GRUOptions& options) { register_weights(cell, LSTMOptions(options)); }
  /// Returns the outputs of the last layer and the final states of all layers.
  std::tuple<Tensor, RecurrentState> run(const Tensor& x, RecurrentState initial);

 private:
  int64_t directions() const { return options_base.bidirectional() ? 2 : 1; }

  RecurrentCell cell_ = RecurrentCell::rnn_tanh;
  std::vector<RecurrentWeights> weights_;  // index: layer * directions() + direction
};

/// Base of all layers of this file. Base is RecurrentBase for sequences and CellBase for single steps; kCell is the
/// kind of cell.
template <class Derived, class Options, class Base, RecurrentCell kCell>
struct CellLayer : Layer<Derived, Options, Base> {
  CellLayer(int64_t input_size, int64_t hidden_size) : CellLayer(Options(input_size, hidden_size)) {}
  explicit CellLayer(const Options& options_) : Layer<Derived, Options, Base>(options_) { CellLayer::reset(); }
  void reset() override { this->register_weights(kCell, this->options); }
};

/// RNN and GRU, which have no cell state.
template <class Derived, class Options, RecurrentCell kCell>
struct HiddenStateLayer : CellLayer<Derived, Options, RecurrentBase, kCell> {
  using CellLayer<Derived, Options, RecurrentBase, kCell>::CellLayer;
  TensorPair forward(const Tensor& x, const Tensor& h0 = {}) {
    const auto frame = this->enter();
    auto [output, state] = this->run(x, {h0, {}});
    return {output, state.hidden};
  }
};

}  // namespace detail

/// Inputs: x (L, N, input_size), or (N, L, input_size) with batch_first, or (L, input_size); h0 (layers * directions,
/// N, hidden_size), zeros if undefined. Results: (output (L, N, directions * hidden_size), hn in h0's shape). In
/// output, the features of the forward direction come first.
GRADUS_LAYER(RNN, HiddenStateLayer, RNNOptions, RecurrentCell::rnn_tanh);

/// Like RNN, with states (h0, c0), where c0 is (layers * directions, N, hidden_size). Results: (output, (hn, cn)). With
/// proj_size, h0 and output have that size instead of hidden_size.
struct LSTMImpl : detail::CellLayer<LSTMImpl, LSTMOptions, detail::RecurrentBase, RecurrentCell::lstm> {
  using CellLayer::CellLayer;
  std::tuple<Tensor, TensorPair> forward(const Tensor& x, const std::optional<TensorPair>& h0_c0 = std::nullopt);
};
GRADUS_MODULE(LSTM);

/// Inputs and results as in RNN.
GRADUS_LAYER(GRU, HiddenStateLayer, GRUOptions, RecurrentCell::gru);

struct RNNCellOptions : detail::CellOptions<RNNCellOptions> {
  using CellOptions::CellOptions;
  void print(detail::LayerPrinter& printer) const {
    CellOptions::print(printer);
    printer("nonlinearity", "kReLU", nonlinearity_ == kReLU);
  }
  GRADUS_ARG(RNNNonlinearity, nonlinearity) = kTanh;
};

struct LSTMCellOptions : detail::CellOptions<LSTMCellOptions> {
  using CellOptions::CellOptions;
};
using GRUCellOptions = LSTMCellOptions;

namespace detail {

/// Base of the cells: parameters weight_ih (gates * hidden, input), weight_hh (gates * hidden, hidden), bias_ih and
/// bias_hh (gates * hidden), initialised as in RecurrentBase.
class CellBase : public Module {
 public:
  void reset_parameters();
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  void register_weights(RecurrentCell cell, const RNNCellOptions& options);
  void register_weights(RecurrentCell cell, const LSTMCellOptions& options);
  /// Computes the next state. Undefined tensors of `state` are zeros; only an LSTM has a cell state.
  RecurrentState step(RecurrentCell cell, RNNNonlinearity nonlinearity, const Tensor& x, RecurrentState state) const;

 private:
  /// Checks x (N, input_size) or (input_size). Returns `state`, or zeros if `state` is undefined.
  Tensor checked_state(const Tensor& x, const Tensor& state) const;
};

/// RNNCell and GRUCell, which have no cell state.
template <class Derived, class Options, RecurrentCell kCell>
struct HiddenStateCell : CellLayer<Derived, Options, CellBase, kCell> {
  using CellLayer<Derived, Options, CellBase, kCell>::CellLayer;
  Tensor forward(const Tensor& x, const Tensor& hx = {}) {
    const auto frame = this->enter();
    RNNNonlinearity nonlinearity = kTanh;
    if constexpr (kCell == RecurrentCell::rnn_tanh) nonlinearity = this->options.nonlinearity();
    return this->step(kCell, nonlinearity, x, {hx, {}}).hidden;
  }
};

}  // namespace detail

/// Inputs: x (N, input_size) or (input_size), and hx (N, hidden_size) or (hidden_size), zeros if undefined. Returns the
/// next hidden state.
GRADUS_LAYER(RNNCell, HiddenStateCell, RNNCellOptions, RecurrentCell::rnn_tanh);

/// Like RNNCell, with states (hx, cx). Returns the next (hidden state, cell state).
struct LSTMCellImpl : detail::CellLayer<LSTMCellImpl, LSTMCellOptions, detail::CellBase, RecurrentCell::lstm> {
  using CellLayer::CellLayer;
  TensorPair forward(const Tensor& x, const std::optional<TensorPair>& hx_cx = std::nullopt);
};
GRADUS_MODULE(LSTMCell);

/// Inputs and results as in RNNCell.
GRADUS_LAYER(GRUCell, HiddenStateCell, GRUCellOptions, RecurrentCell::gru);

namespace utils::rnn {
/// Combines sequences (L_i, …) to one tensor (longest L, N, …), or (N, longest L, …) with batch_first. Shorter
/// sequences are extended by padding_value.
Tensor pad_sequence(const TensorList& sequences, bool batch_first = false, double padding_value = 0);
}  // namespace utils::rnn

}  // namespace gradus::nn

namespace gradus {
using nn::utils::rnn::pad_sequence;
}  // namespace gradus
