#include <gradus/layers/rnn.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/nn/dropout.h>
#include <gradus/autograd/ops/nn/image.h>
#include <gradus/autograd/ops/shape.h>

namespace gradus::nn {

namespace {

RecurrentCell with_nonlinearity(RecurrentCell cell, RNNNonlinearity nonlinearity) {
  GRADUS_CHECK(nonlinearity == kTanh || nonlinearity == kReLU, ValueError,
               "the nonlinearity of an RNN is kTanh or kReLU");
  return cell == RecurrentCell::rnn_tanh && nonlinearity == kReLU ? RecurrentCell::rnn_relu : cell;
}

void fill_uniform(const TensorList& parameters, int64_t hidden_size) {
  const double bound = hidden_size > 0 ? 1 / std::sqrt(static_cast<double>(hidden_size)) : 0;
  for (const Tensor& parameter : parameters) init::uniform_(parameter, -bound, bound);
}

}  // namespace

namespace detail {

void RecurrentBase::register_weights(RecurrentCell cell, const RNNOptions& options) {
  register_weights(with_nonlinearity(cell, options.nonlinearity()), LSTMOptions(options));
}

void RecurrentBase::register_weights(RecurrentCell cell, const LSTMOptions& options) {
  GRADUS_CHECK(options.input_size() > 0 && options.hidden_size() > 0 && options.num_layers() > 0, ValueError,
               "a recurrent layer needs positive sizes, got input_size ", options.input_size(), ", hidden_size ",
               options.hidden_size(), ", num_layers ", options.num_layers());
  GRADUS_CHECK(options.dropout() >= 0 && options.dropout() <= 1, ValueError, "dropout must be in [0, 1], got ",
               options.dropout());
  GRADUS_CHECK(options.proj_size() >= 0 && options.proj_size() < options.hidden_size(), ValueError, "proj_size ",
               options.proj_size(), " must be less than hidden_size ", options.hidden_size());
  cell_ = cell;
  options_base = options;
  weights_.clear();
  const int64_t gates = gates_of(cell) * options.hidden_size();
  const int64_t state_size = options.proj_size() > 0 ? options.proj_size() : options.hidden_size();
  for (int64_t layer = 0; layer < options.num_layers(); ++layer) {
    const int64_t input_size = layer == 0 ? options.input_size() : state_size * directions();
    for (int64_t direction = 0; direction < directions(); ++direction) {
      const std::string suffix = "_l" + std::to_string(layer) + (direction ? "_reverse" : "");
      RecurrentWeights& w = weights_.emplace_back();
      w.w_ih = register_parameter("weight_ih" + suffix, empty({gates, input_size}));
      w.w_hh = register_parameter("weight_hh" + suffix, empty({gates, state_size}));
      if (options.bias()) {
        w.b_ih = register_parameter("bias_ih" + suffix, empty({gates}));
        w.b_hh = register_parameter("bias_hh" + suffix, empty({gates}));
      }
      if (options.proj_size() > 0)
        w.w_hr = register_parameter("weight_hr" + suffix, empty({options.proj_size(), options.hidden_size()}));
    }
  }
  reset_parameters();
}

void RecurrentBase::reset_parameters() { fill_uniform(parameters(false), options_base.hidden_size()); }

std::tuple<Tensor, RecurrentState> RecurrentBase::run(const Tensor& x, RecurrentState initial) {
  const bool is_lstm = cell_ == RecurrentCell::lstm;
  const OpScope op(is_lstm ? "lstm" : cell_ == RecurrentCell::gru ? "gru" : "rnn", Loc{});
  GRADUS_CHECK(x.dim() == 2 || x.dim() == 3, ShapeError, "a sequence has two or three dimensions, got x of shape ",
               x.sizes());
  GRADUS_CHECK(x.size(-1) == options_base.input_size(), ShapeError, "x of shape ", x.sizes(), " has ", x.size(-1),
               " features, expected input_size ", options_base.input_size());
  const bool batched = x.dim() == 3;
  Tensor input = !batched ? x.unsqueeze(1) : options_base.batch_first() ? x.transpose(0, 1) : x;  // (L, N, features)
  GRADUS_CHECK(input.size(0) > 0, ShapeError, "the sequence has no steps: x has shape ", x.sizes());

  const int64_t count = options_base.num_layers() * directions();
  const int64_t state_size = options_base.proj_size() > 0 ? options_base.proj_size() : options_base.hidden_size();
  auto prepared = [&](const Tensor& state, int64_t size, const char* name) {
    const Shape wanted = batched ? Shape{count, input.size(1), size} : Shape{count, size};
    if (!state.defined()) return zeros({count, input.size(1), size}, x.options());
    GRADUS_CHECK(state.sizes() == wanted, ShapeError, name, " of shape ", wanted, " is needed for x of shape ",
                 x.sizes(), ", got ", state.sizes());
    return batched ? state : state.unsqueeze(1);
  };
  const TensorList hidden = unbind(prepared(initial.hidden, state_size, "an initial state"));
  const TensorList cell =
      is_lstm ? unbind(prepared(initial.cell, options_base.hidden_size(), "an initial cell state")) : TensorList();

  TensorList last_hidden, last_cell;
  for (int64_t layer = 0; layer < options_base.num_layers(); ++layer) {
    TensorList outputs;
    for (int64_t direction = 0; direction < directions(); ++direction) {
      const size_t index = static_cast<size_t>(layer * directions() + direction);
      RecurrentState state{hidden[index], cell.empty() ? Tensor() : cell[index]};
      outputs.push_back(recurrent_sequence(cell_, input, state, weights_[index], direction == 1, Loc{}));
      last_hidden.push_back(state.hidden);
      last_cell.push_back(state.cell);
    }
    input = outputs.size() == 1 ? outputs[0] : cat(outputs, -1);
    if (options_base.dropout() > 0 && layer + 1 < options_base.num_layers())
      input = dropout(input, options_base.dropout(), is_training());
  }
  auto finished = [&](const TensorList& states) { return batched ? stack(states) : stack(states).squeeze(1); };
  RecurrentState last{finished(last_hidden), cell.empty() ? Tensor() : finished(last_cell)};
  return {!batched ? input.squeeze(1) : options_base.batch_first() ? input.transpose(0, 1) : input, std::move(last)};
}

void CellBase::register_weights(RecurrentCell cell, const RNNCellOptions& options) {
  register_weights(with_nonlinearity(cell, options.nonlinearity()),
                   LSTMCellOptions(options.input_size(), options.hidden_size()).bias(options.bias()));
}

void CellBase::register_weights(RecurrentCell cell, const LSTMCellOptions& options) {
  const int64_t input_size = options.input_size(), hidden_size = options.hidden_size();
  GRADUS_CHECK(input_size > 0 && hidden_size > 0, ValueError, "a recurrent cell needs positive sizes, got input_size ",
               input_size, " and hidden_size ", hidden_size);
  const int64_t gates = gates_of(cell) * hidden_size;
  weight_ih = register_parameter("weight_ih", empty({gates, input_size}));
  weight_hh = register_parameter("weight_hh", empty({gates, hidden_size}));
  bias_ih = register_parameter("bias_ih", options.bias() ? empty({gates}) : Tensor());
  bias_hh = register_parameter("bias_hh", options.bias() ? empty({gates}) : Tensor());
  reset_parameters();
}

void CellBase::reset_parameters() { fill_uniform(parameters(false), weight_hh.size(1)); }

Tensor CellBase::checked_state(const Tensor& x, const Tensor& state) const {
  GRADUS_CHECK(x.dim() == 1 || x.dim() == 2, ShapeError, "x must be (N, ", weight_ih.size(1), ") or (",
               weight_ih.size(1), "), got shape ", x.sizes());
  GRADUS_CHECK(x.size(-1) == weight_ih.size(1), ShapeError, "x of shape ", x.sizes(), " has ", x.size(-1),
               " features, expected input_size ", weight_ih.size(1));
  Shape wanted = x.sizes();
  wanted[wanted.size() - 1] = weight_hh.size(1);
  if (!state.defined()) return zeros(wanted, x.options());
  GRADUS_CHECK(state.sizes() == wanted, ShapeError, "a state of shape ", wanted, " is needed for x of shape ",
               x.sizes(), ", got ", state.sizes());
  return state;
}

RecurrentState CellBase::step(RecurrentCell cell, RNNNonlinearity nonlinearity, const Tensor& x,
                              RecurrentState state) const {
  const OpScope op(cell == RecurrentCell::lstm  ? "lstm_cell"
                   : cell == RecurrentCell::gru ? "gru_cell"
                                                : "rnn_cell",
                   Loc{});
  state.hidden = checked_state(x, state.hidden);
  if (cell == RecurrentCell::lstm) state.cell = checked_state(x, state.cell);
  const bool batched = x.dim() == 2;
  const auto in_batch = [&](const Tensor& rows) { return batched || !rows.defined() ? rows : rows.unsqueeze(0); };
  state = {in_batch(state.hidden), in_batch(state.cell)};
  recurrent_sequence(with_nonlinearity(cell, nonlinearity), in_batch(x).unsqueeze(0), state,
                     {weight_ih, weight_hh, bias_ih, bias_hh, {}}, false, Loc{}, op.name());
  return batched ? state : RecurrentState{state.hidden[0], state.cell.defined() ? state.cell[0] : Tensor()};
}

}  // namespace detail

// ---- Over sequences ----

std::tuple<Tensor, TensorPair> LSTMImpl::forward(const Tensor& x, const std::optional<TensorPair>& h0_c0) {
  const auto frame = enter();
  const auto [h0, c0] = h0_c0.value_or(TensorPair());
  const auto [output, state] = run(x, {h0, c0});
  return {output, {state.hidden, state.cell}};
}

// ---- One step ----

TensorPair LSTMCellImpl::forward(const Tensor& x, const std::optional<TensorPair>& hx_cx) {
  const auto frame = enter();
  const auto [hx, cx] = hx_cx.value_or(TensorPair());
  const RecurrentState next = step(RecurrentCell::lstm, kTanh, x, {hx, cx});
  return {next.hidden, next.cell};
}

// ---- pad_sequence ----

Tensor utils::rnn::pad_sequence(const TensorList& sequences, bool batch_first, double padding_value) {
  GRADUS_CHECK(!sequences.empty(), ValueError, "pad_sequence got no sequences");
  const int64_t longest = std::ranges::max(sequences, {}, [](const Tensor& x) { return x.size(0); }).size(0);
  TensorList padded;
  for (const Tensor& sequence : sequences) {
    std::vector<int64_t> padding(static_cast<size_t>(2 * sequence.dim()), 0);
    padding.back() = longest - sequence.size(0);  // at the end of the first dimension
    padded.push_back(pad(sequence, padding, kConstant, padding_value));
  }
  return stack(padded, batch_first ? 0 : 1);
}

}  // namespace gradus::nn
