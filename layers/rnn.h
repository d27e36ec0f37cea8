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

#include <gradus/core/options.h>
#include <gradus/layers/module/init.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

/// The activation of an RNN: torch::kTanh or torch::kReLU.
using RNNNonlinearity = init::Nonlinearity;

struct RNNOptions {
  RNNOptions(int64_t input_size, int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  GRADUS_ARG(int64_t, input_size);
  GRADUS_ARG(int64_t, hidden_size);
  GRADUS_ARG(int64_t, num_layers) = 1;
  GRADUS_ARG(RNNNonlinearity, nonlinearity) = kTanh;
  GRADUS_ARG(bool, bias) = true;
  /// True if sequences are (N, L, input_size) instead of (L, N, input_size).
  GRADUS_ARG(bool, batch_first) = false;
  /// Probability with which outputs of all layers but the last are dropped in training.
  GRADUS_ARG(double, dropout) = 0;
  GRADUS_ARG(bool, bidirectional) = false;
};

struct LSTMOptions {
  LSTMOptions(int64_t input_size, int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  GRADUS_ARG(int64_t, input_size);
  GRADUS_ARG(int64_t, hidden_size);
  GRADUS_ARG(int64_t, num_layers) = 1;
  GRADUS_ARG(bool, bias) = true;
  GRADUS_ARG(bool, batch_first) = false;
  GRADUS_ARG(double, dropout) = 0;
  GRADUS_ARG(bool, bidirectional) = false;
  /// Size to which an additional weight projects the hidden states; 0 for none (Sak et al. 2014).
  GRADUS_ARG(int64_t, proj_size) = 0;
};

struct GRUOptions {
  GRUOptions(int64_t input_size, int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  GRADUS_ARG(int64_t, input_size);
  GRADUS_ARG(int64_t, hidden_size);
  GRADUS_ARG(int64_t, num_layers) = 1;
  GRADUS_ARG(bool, bias) = true;
  GRADUS_ARG(bool, batch_first) = false;
  GRADUS_ARG(double, dropout) = 0;
  GRADUS_ARG(bool, bidirectional) = false;
};

namespace detail {

using RNNOptionsBase = LSTMOptions;

/// The weights of one layer in one direction. Missing biases and a missing projection are undefined.
struct RecurrentWeights {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;
};
/// Hidden state, and the cell state of an LSTM.
struct RecurrentState {
  Tensor hidden, cell;
};

/// Base of the recurrent layers. Parameters have PyTorch's names: weight_ih_l0 (gates * hidden, input), weight_hh_l0
/// (gates * hidden, hidden), bias_ih_l0, bias_hh_l0, weight_hr_l0 (proj, hidden), then those of the reverse direction
/// (…_l0_reverse), then those of the next layer. All are initialised from U(-1 / sqrt(hidden), 1 / sqrt(hidden)).
class RecurrentBase : public Module {
 public:
  void reset_parameters();
  /// Does nothing. LibTorch packs the weights for cuDNN here.
  void flatten_parameters() {}
  /// All weights, one layer after another.
  std::vector<Tensor> all_weights() const { return parameters(false); }

  /// The union of the options of all kinds.
  RNNOptionsBase options_base{0, 0};

 protected:
  enum class Cell : uint8_t { rnn, lstm, gru };
  explicit RecurrentBase(Cell cell) : cell_(cell) {}
  void register_weights(const RNNOptionsBase& options, RNNNonlinearity nonlinearity = kTanh);
  /// Returns the outputs of the last layer and the final states of all layers.
  std::tuple<Tensor, RecurrentState> run(const Tensor& x, RecurrentState initial);
  void print(std::ostream& stream, const char* name) const;

 private:
  int64_t directions() const { return options_base.bidirectional() ? 2 : 1; }
  /// Runs one layer in one direction over input (L, N, features). Returns the outputs and updates the state.
  Tensor run_direction(const Tensor& input, const RecurrentWeights& weights, bool reverse, RecurrentState* state) const;

  Cell cell_;
  RNNNonlinearity nonlinearity_ = kTanh;
  std::vector<RecurrentWeights> weights_;  // indexed by layer and direction
};

}  // namespace detail

/// Inputs: x (L, N, input_size), or (N, L, input_size) with batch_first, or (L, input_size); h0 (layers * directions,
/// N, hidden_size), zeros if undefined. Results: (output (L, N, directions * hidden_size), hn in h0's shape). In
/// output, the features of the forward direction come first. Errors name the layer.
class RNNImpl : public Cloneable<RNNImpl, detail::RecurrentBase> {
 public:
  RNNImpl(int64_t input_size, int64_t hidden_size) : RNNImpl(RNNOptions(input_size, hidden_size)) {}
  explicit RNNImpl(const RNNOptions& options);
  void reset() override;
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& h0 = {});
  void pretty_print(std::ostream& stream) const override { print(stream, "RNN"); }

  RNNOptions options;
};
GRADUS_MODULE(RNN);

/// Like RNN, with states (h0, c0), where c0 is (layers * directions, N, hidden_size). Results: (output, (hn, cn)). With
/// proj_size, h0 and output have that size instead of hidden_size.
class LSTMImpl : public Cloneable<LSTMImpl, detail::RecurrentBase> {
 public:
  LSTMImpl(int64_t input_size, int64_t hidden_size) : LSTMImpl(LSTMOptions(input_size, hidden_size)) {}
  explicit LSTMImpl(const LSTMOptions& options);
  void reset() override;
  std::tuple<Tensor, std::tuple<Tensor, Tensor>> forward(
      const Tensor& x, const std::optional<std::tuple<Tensor, Tensor>>& h0_c0 = std::nullopt);
  void pretty_print(std::ostream& stream) const override { print(stream, "LSTM"); }

  LSTMOptions options;
};
GRADUS_MODULE(LSTM);

/// Inputs and results as in RNN.
class GRUImpl : public Cloneable<GRUImpl, detail::RecurrentBase> {
 public:
  GRUImpl(int64_t input_size, int64_t hidden_size) : GRUImpl(GRUOptions(input_size, hidden_size)) {}
  explicit GRUImpl(const GRUOptions& options);
  void reset() override;
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& h0 = {});
  void pretty_print(std::ostream& stream) const override { print(stream, "GRU"); }

  GRUOptions options;
};
GRADUS_MODULE(GRU);

struct RNNCellOptions {
  RNNCellOptions(int64_t input_size, int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  GRADUS_ARG(int64_t, input_size);
  GRADUS_ARG(int64_t, hidden_size);
  GRADUS_ARG(bool, bias) = true;
  GRADUS_ARG(RNNNonlinearity, nonlinearity) = kTanh;
};

struct LSTMCellOptions {
  LSTMCellOptions(int64_t input_size, int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  GRADUS_ARG(int64_t, input_size);
  GRADUS_ARG(int64_t, hidden_size);
  GRADUS_ARG(bool, bias) = true;
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
  void register_weights(int64_t gates, int64_t input_size, int64_t hidden_size, bool bias);
  RecurrentWeights weights() const { return {weight_ih, weight_hh, bias_ih, bias_hh, {}}; }
  /// Checks x (N, input_size) or (input_size), and returns `state`, or zeros if it is undefined.
  Tensor checked_state(const Tensor& x, const Tensor& state) const;
};

}  // namespace detail

/// Inputs: x (N, input_size) or (input_size), and hx (N, hidden_size) or (hidden_size), zeros if undefined. Returns the
/// next hidden state.
class RNNCellImpl : public Cloneable<RNNCellImpl, detail::CellBase> {
 public:
  RNNCellImpl(int64_t input_size, int64_t hidden_size) : RNNCellImpl(RNNCellOptions(input_size, hidden_size)) {}
  explicit RNNCellImpl(const RNNCellOptions& options);
  void reset() override;
  Tensor forward(const Tensor& x, const Tensor& hx = {});
  void pretty_print(std::ostream& stream) const override;

  RNNCellOptions options;
};
GRADUS_MODULE(RNNCell);

/// Like RNNCell, with states (hx, cx). Returns the next (hidden state, cell state).
class LSTMCellImpl : public Cloneable<LSTMCellImpl, detail::CellBase> {
 public:
  LSTMCellImpl(int64_t input_size, int64_t hidden_size) : LSTMCellImpl(LSTMCellOptions(input_size, hidden_size)) {}
  explicit LSTMCellImpl(const LSTMCellOptions& options);
  void reset() override;
  std::tuple<Tensor, Tensor> forward(const Tensor& x,
                                     const std::optional<std::tuple<Tensor, Tensor>>& hx_cx = std::nullopt);
  void pretty_print(std::ostream& stream) const override;

  LSTMCellOptions options;
};
GRADUS_MODULE(LSTMCell);

/// Inputs and results as in RNNCell.
class GRUCellImpl : public Cloneable<GRUCellImpl, detail::CellBase> {
 public:
  GRUCellImpl(int64_t input_size, int64_t hidden_size) : GRUCellImpl(GRUCellOptions(input_size, hidden_size)) {}
  explicit GRUCellImpl(const GRUCellOptions& options);
  void reset() override;
  Tensor forward(const Tensor& x, const Tensor& hx = {});
  void pretty_print(std::ostream& stream) const override;

  GRUCellOptions options;
};
GRADUS_MODULE(GRUCell);

}  // namespace gradus::nn
