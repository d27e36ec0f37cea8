// Layers compared with PyTorch's. The parameters are inputs of a case, after those of forward and in the order of
// registration, so that their gradients are compared, too. There are no finite differences, because layers are composed
// of operators that have their own cases. Layers with random numbers are tested in evaluation mode.
#include <gradus/layers/layers.h>
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

namespace {

/// Sets the module's parameters to the inputs from number `first` on.
void take_parameters(nn::Module& module, X x, size_t first) {
  for (const Tensor& input : x) {
    if (!input.is_floating_point()) continue;
    module.to(input.device(), input.dtype());
    break;
  }
  for (const Tensor& parameter : module.parameters()) {
    const Tensor& given = x.at(first++);
    GRADUS_CHECK(parameter.sizes() == given.sizes(), ShapeError, "a parameter of shape ", parameter.sizes(),
                 " was given ", given.sizes());
    parameter.set_requires_grad(false);
    parameter.copy_(given);
  }
  GRADUS_CHECK(first == x.size(), ValueError, "the case has ", x.size(), " inputs, its module takes ", first);
}

/// The tensors in a layer's result.
template <class Result>
TensorList listed(Result result) {
  TensorList tensors;
  nn::detail::visit_tensors(result, [&](const Tensor& tensor) {
    if (tensor.defined()) tensors.push_back(tensor);
  });
  return tensors;
}

/// Calls torch.nn.`module` with replaced parameters: the arguments come first, then one input for each parameter.
std::string in_python(const std::string& module, size_t arguments, const std::string& call) {
  return std::string("(lambda m: torch.nn.utils.stateless.functional_call(m, dict(zip((n for n, _ in m.named_parameters()), "
                     "x[")
      .append(std::to_string(arguments)).append(":])), ").append(call).append("))(torch.nn.").append(module)
      .append(".double())");
}

/// Adds a case for the layer made by `make`, whose forward takes the first kArguments inputs.
template <size_t kArguments = 1, class Make>
OpCase& add_layer(CaseList& cases, const std::string& name, std::vector<Input> inputs, Make make,
                  const std::string& python) {
  Run run = [make](X x) {
    auto layer = make();
    take_parameters(*layer, x, kArguments);
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return listed(layer(x[I]...));
    }(std::make_index_sequence<kArguments>{});
  };
  return cases.add(name, std::move(inputs), std::move(run),
                   in_python(python, kArguments, "tuple(x[:" + std::to_string(kArguments) + "])"))
      .without_finite_differences();
}

template <class Holder>
Holder evaluated(Holder layer) {
  layer->eval();
  return layer;
}

void add_linear_layers(CaseList& cases) {
  add_layer(cases, "Linear", {{2, 3}, {4, 3}, {4}}, [] { return nn::Linear(3, 4); }, "Linear(3, 4)");
  add_layer(cases, "Linear.no_bias", {{2, 3}, {4, 3}}, [] { return nn::Linear(nn::LinearOptions(3, 4).bias(false)); },
            "Linear(3, 4, bias=False)");
  add_layer<2>(cases, "Bilinear", {{3, 2}, {3, 4}, {2, 2, 4}, {2}}, [] { return nn::Bilinear(2, 4, 2); },
               "Bilinear(2, 4, 2)");
  add_layer(cases, "Flatten", {{2, 3, 4}}, [] { return nn::Flatten(); }, "Flatten()");
  add_layer(cases, "Unflatten", {{2, 6}}, [] { return nn::Unflatten(1, std::vector<int64_t>{2, 3}); },
            "Unflatten(1, (2, 3))").only_contiguous();
  add_layer(cases, "Identity", {{2, 3}}, [] { return nn::Identity(); }, "Identity()");
  add_layer(cases, "Embedding", {index({2, 3}, 5), {5, 4}}, [] { return nn::Embedding(5, 4); }, "Embedding(5, 4)");
}

void add_convolutions(CaseList& cases) {
  add_layer(cases, "Conv1d", {{2, 2, 6}, {3, 2, 3}, {3}},
            [] { return nn::Conv1d(nn::Conv1dOptions(2, 3, 3).stride(2).padding(1)); }, "Conv1d(2, 3, 3, 2, 1)");
  add_layer(cases, "Conv1d.same", {{1, 2, 5}, {2, 1, 2}, {2}},
            [] { return nn::Conv1d(nn::Conv1dOptions(2, 2, 2).padding(kSame).groups(2)); },
            "Conv1d(2, 2, 2, padding='same', groups=2)");
  add_layer(cases, "Conv1d.circular", {{1, 2, 5}, {2, 2, 3}, {2}},
            [] { return nn::Conv1d(nn::Conv1dOptions(2, 2, 3).padding(2).padding_mode(kCircular)); },
            "Conv1d(2, 2, 3, padding=2, padding_mode='circular')");
  add_layer(cases, "Conv2d", {{2, 2, 4, 5}, {3, 2, 3, 3}, {3}},
            [] { return nn::Conv2d(nn::Conv2dOptions(2, 3, 3).padding({1, 0})); }, "Conv2d(2, 3, 3, padding=(1, 0))");
  add_layer(cases, "Conv2d.reflect", {{1, 1, 4, 4}, {2, 1, 3, 3}, {2}},
            [] { return nn::Conv2d(nn::Conv2dOptions(1, 2, 3).padding(1).padding_mode(kReflect)); },
            "Conv2d(1, 2, 3, padding=1, padding_mode='reflect')");
  add_layer(cases, "Conv2d.same_replicate", {{1, 1, 4, 4}, {1, 1, 2, 3}, {1}},
            [] { return nn::Conv2d(nn::Conv2dOptions(1, 1, {2, 3}).padding(kSame).padding_mode(kReplicate)); },
            "Conv2d(1, 1, (2, 3), padding='same', padding_mode='replicate')");
  add_layer(cases, "ConvTranspose1d", {{2, 2, 4}, {2, 3, 3}, {3}},
            [] { return nn::ConvTranspose1d(nn::ConvTranspose1dOptions(2, 3, 3).stride(2).padding(1)); },
            "ConvTranspose1d(2, 3, 3, 2, 1)");
  add_layer(cases, "ConvTranspose2d", {{1, 2, 3, 3}, {2, 2, 3, 2}, {2}},
            [] {
              return nn::ConvTranspose2d(
                  nn::ConvTranspose2dOptions(2, 2, {3, 2}).stride(2).padding(1).output_padding({1, 0}));
            },
            "ConvTranspose2d(2, 2, (3, 2), 2, 1, (1, 0))");
}

void add_pooling(CaseList& cases) {
  add_layer(cases, "MaxPool1d", {{2, 2, 6}}, [] { return nn::MaxPool1d(nn::MaxPool1dOptions(3).stride(2)); },
            "MaxPool1d(3, 2)");
  add_layer(cases, "MaxPool2d", {{1, 2, 5, 4}}, [] { return nn::MaxPool2d(nn::MaxPool2dOptions(2).padding(1)); },
            "MaxPool2d(2, padding=1)");
  add_layer(cases, "AvgPool1d", {{2, 2, 6}}, [] { return nn::AvgPool1d(nn::AvgPool1dOptions(3).stride(2).padding(1)); },
            "AvgPool1d(3, 2, 1)");
  add_layer(cases, "AvgPool2d", {{1, 2, 5, 5}},
            [] { return nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).padding(1).count_include_pad(false)); },
            "AvgPool2d(3, 2, 1, count_include_pad=False)");
  add_layer(cases, "AdaptiveAvgPool1d", {{2, 2, 5}}, [] { return nn::AdaptiveAvgPool1d(3); }, "AdaptiveAvgPool1d(3)");
  add_layer(cases, "AdaptiveAvgPool2d", {{1, 2, 5, 4}},
            [] { return nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, std::nullopt})); },
            "AdaptiveAvgPool2d((3, None))");
  add_layer(cases, "AdaptiveMaxPool1d", {{2, 2, 5}}, [] { return nn::AdaptiveMaxPool1d(3); }, "AdaptiveMaxPool1d(3)");
  add_layer(cases, "AdaptiveMaxPool2d", {{1, 2, 5, 4}}, [] { return nn::AdaptiveMaxPool2d(2); }, "AdaptiveMaxPool2d(2)");
}

void add_activations(CaseList& cases) {
  const Input x{3, 4};
  auto add = [&](const std::string& name, auto make, const std::string& python) -> OpCase& {
    return add_layer(cases, name, {x}, make, python);
  };
  add("ReLU", [] { return nn::ReLU(); }, "ReLU()");
  add("ReLU6", [] { return nn::ReLU6(); }, "ReLU6()");
  add("LeakyReLU", [] { return nn::LeakyReLU(0.2); }, "LeakyReLU(0.2)");
  add("RReLU", [] { return evaluated(nn::RReLU()); }, "RReLU().eval()");
  add("ELU", [] { return nn::ELU(0.5); }, "ELU(0.5)");
  add("SELU", [] { return nn::SELU(); }, "SELU()");
  add("CELU", [] { return nn::CELU(0.5); }, "CELU(0.5)");
  add("GELU", [] { return nn::GELU(); }, "GELU()");
  add("GELU.tanh", [] { return nn::GELU(nn::GELUOptions().approximate("tanh")); }, "GELU(approximate='tanh')");
  add("SiLU", [] { return nn::SiLU(); }, "SiLU()");
  add("Mish", [] { return nn::Mish(); }, "Mish()");
  add("Softplus", [] { return nn::Softplus(nn::SoftplusOptions().beta(2)); }, "Softplus(2)");
  add("Softsign", [] { return nn::Softsign(); }, "Softsign()");
  add("Softshrink", [] { return nn::Softshrink(0.3); }, "Softshrink(0.3)");
  add("Hardshrink", [] { return nn::Hardshrink(0.3); }, "Hardshrink(0.3)");
  add("Tanhshrink", [] { return nn::Tanhshrink(); }, "Tanhshrink()");
  add("Hardtanh", [] { return nn::Hardtanh(nn::HardtanhOptions().min_val(-0.5).max_val(0.75)); }, "Hardtanh(-0.5, 0.75)");
  add("Hardsigmoid", [] { return nn::Hardsigmoid(); }, "Hardsigmoid()").differentiable(1)
      .tolerance({.f64 = 1e-7});  // PyTorch's gradient is 1/6 in float32
  add("Hardswish", [] { return nn::Hardswish(); }, "Hardswish()").differentiable(1);
  add("Threshold", [] { return nn::Threshold(0.1, 20); }, "Threshold(0.1, 20)");
  add("Sigmoid", [] { return nn::Sigmoid(); }, "Sigmoid()");
  add("LogSigmoid", [] { return nn::LogSigmoid(); }, "LogSigmoid()");
  add("Tanh", [] { return nn::Tanh(); }, "Tanh()");
  add("GLU", [] { return nn::GLU(); }, "GLU()");
  add("Softmax", [] { return nn::Softmax(1); }, "Softmax(1)");
  add("Softmin", [] { return nn::Softmin(0); }, "Softmin(0)");
  add("LogSoftmax", [] { return nn::LogSoftmax(1); }, "LogSoftmax(1)");
  add_layer(cases, "Softmax2d", {{2, 3, 2, 2}}, [] { return nn::Softmax2d(); }, "Softmax2d()");
  add_layer(cases, "PReLU", {x, {4}}, [] { return nn::PReLU(4); }, "PReLU(4)");
  add("Dropout.eval", [] { return evaluated(nn::Dropout(0.5)); }, "Dropout(0.5).eval()");
}

void add_normalisation(CaseList& cases) {
  add_layer(cases, "BatchNorm1d", {{4, 3}, {3}, {3}}, [] { return nn::BatchNorm1d(3); }, "BatchNorm1d(3)");
  add_layer(cases, "BatchNorm1d.sequence", {{2, 3, 4}}, [] {
    return nn::BatchNorm1d(nn::BatchNorm1dOptions(3).affine(false).track_running_stats(false));
  }, "BatchNorm1d(3, affine=False, track_running_stats=False)");
  add_layer(cases, "BatchNorm2d", {{2, 3, 2, 3}, {3}, {3}}, [] { return nn::BatchNorm2d(3); }, "BatchNorm2d(3)");
  add_layer(cases, "BatchNorm2d.eval", {{2, 3, 2, 3}, {3}, {3}}, [] { return evaluated(nn::BatchNorm2d(3)); },
            "BatchNorm2d(3).eval()");
  add_layer(cases, "BNReLU2d", {{2, 3, 2, 3}, {3}, {3}}, [] { return nn::BNReLU2d(3); },
            "Sequential(torch.nn.BatchNorm2d(3), torch.nn.ReLU())");
  add_layer(cases, "InstanceNorm1d", {{2, 3, 4}}, [] { return nn::InstanceNorm1d(3); }, "InstanceNorm1d(3)");
  add_layer(cases, "InstanceNorm2d", {{2, 3, 2, 3}, {3}, {3}},
            [] { return nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true)); }, "InstanceNorm2d(3, affine=True)");
  add_layer(cases, "LayerNorm", {{2, 3, 4}, {3, 4}, {3, 4}}, [] { return nn::LayerNorm(nn::LayerNormOptions({3, 4})); },
            "LayerNorm((3, 4))");
  add_layer(cases, "GroupNorm", {{2, 4, 3}, {4}, {4}}, [] { return nn::GroupNorm(2, 4); }, "GroupNorm(2, 4)");
  add_layer(cases, "LocalResponseNorm", {{2, 4, 3}},
            [] { return nn::LocalResponseNorm(nn::LocalResponseNormOptions(3).alpha(0.5)); }, "LocalResponseNorm(3, 0.5)");
}

void add_resizing(CaseList& cases) {
  add_layer(cases, "ConstantPad1d", {{2, 3}}, [] { return nn::ConstantPad1d(nn::PadSides<2>{1, 2}, 0.5); },
            "ConstantPad1d((1, 2), 0.5)");
  add_layer(cases, "ConstantPad2d", {{1, 2, 2}}, [] { return nn::ConstantPad2d(1, 0.5); }, "ConstantPad2d(1, 0.5)");
  add_layer(cases, "ZeroPad2d", {{1, 2, 2}}, [] { return nn::ZeroPad2d(nn::ZeroPad2dOptions({1, 0, 2, 1})); },
            "ZeroPad2d((1, 0, 2, 1))");
  add_layer(cases, "ReflectionPad1d", {{1, 2, 4}}, [] { return nn::ReflectionPad1d(2); }, "ReflectionPad1d(2)");
  add_layer(cases, "ReflectionPad2d", {{1, 2, 3, 3}}, [] { return nn::ReflectionPad2d(1); }, "ReflectionPad2d(1)");
  add_layer(cases, "ReplicationPad1d", {{1, 2, 3}}, [] { return nn::ReplicationPad1d(2); }, "ReplicationPad1d(2)");
  add_layer(cases, "ReplicationPad2d", {{1, 2, 3, 3}}, [] { return nn::ReplicationPad2d(1); }, "ReplicationPad2d(1)");
  add_layer(cases, "Upsample", {{1, 2, 2, 3}},
            [] { return nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2})); },
            "Upsample(scale_factor=(2, 2))");
  add_layer(cases, "Upsample.bilinear", {{1, 2, 2, 3}}, [] {
    return nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{5, 4}).mode(kBilinear).align_corners(true));
  }, "Upsample((5, 4), mode='bilinear', align_corners=True)");
  add_layer(cases, "PixelShuffle", {{1, 4, 2, 3}}, [] { return nn::PixelShuffle(2); }, "PixelShuffle(2)");
  add_layer(cases, "PixelUnshuffle", {{1, 1, 4, 4}}, [] { return nn::PixelUnshuffle(2); }, "PixelUnshuffle(2)");
  add_layer(cases, "Unfold", {{1, 2, 4, 4}}, [] { return nn::Unfold(nn::UnfoldOptions(2).padding(1).stride(2)); },
            "Unfold(2, padding=1, stride=2)");
  add_layer(cases, "Fold", {{1, 4, 9}}, [] { return nn::Fold(4, 2); }, "Fold((4, 4), 2)");
}

// PyTorch's recurrent modules store their weights in a list that functional_call cannot replace. These cases call the
// underlying functions with (input, state, weights, has_biases, num_layers, dropout, train, bidirectional,
// batch_first).
void add_recurrent(CaseList& cases) {
  using W = std::vector<Input>;
  add_layer(cases, "RNN", W{{3, 2, 2}, {3, 2}, {3, 3}, {3}, {3}}, [] { return nn::RNN(2, 3); }, "")
      .torch = "torch.rnn_tanh(x[0], torch.zeros(1, 2, 3).to(x[0]), x[1:], True, 1, 0., False, False, False)";
  add_layer(cases, "RNN.relu", W{{3, 2}, {2, 2}, {2, 2}},
            [] { return nn::RNN(nn::RNNOptions(2, 2).nonlinearity(kReLU).bias(false)); }, "")
      .torch = "[y.squeeze(1) for y in torch.rnn_relu(x[0].unsqueeze(1), torch.zeros(1, 1, 2).to(x[0]), x[1:], False, 1, "
               "0., False, False, False)]";
  add_layer<2>(cases, "RNN.layers", W{{2, 2, 2}, {2, 2, 3}, {3, 2}, {3, 3}, {3}, {3}, {3, 3}, {3, 3}, {3}, {3}},
               [] { return nn::RNN(nn::RNNOptions(2, 3).num_layers(2).batch_first(true)); }, "").tolerance({.f16 = 1.2e-2})
      .torch = "torch.rnn_tanh(x[0], x[1], x[2:], True, 2, 0., False, False, True)";
  add_layer(cases, "GRU", W{{3, 2, 2}, {6, 2}, {6, 2}, {6}, {6}}, [] { return nn::GRU(2, 2); }, "")
      .torch = "torch.gru(x[0], torch.zeros(1, 2, 2).to(x[0]), x[1:], True, 1, 0., False, False, False)";
  add_layer(cases, "GRU.bidirectional", W{{2, 2, 2}, unit({6, 2}), {6, 2}, {6}, {6}, unit({6, 2}), {6, 2}, {6}, {6}},
            [] { return nn::GRU(nn::GRUOptions(2, 2).bidirectional(true)); }, "")
      .torch = "torch.gru(x[0], torch.zeros(2, 2, 2).to(x[0]), x[1:], True, 1, 0., False, True, False)";
  add_layer<2>(cases, "RNNCell", W{{2, 3}, {2, 2}, {2, 3}, {2, 2}, {2}, {2}}, [] { return nn::RNNCell(3, 2); },
               "RNNCell(3, 2)");
  add_layer<2>(cases, "GRUCell", W{{2, 3}, {2, 2}, {6, 3}, {6, 2}, {6}, {6}}, [] { return nn::GRUCell(3, 2); },
               "GRUCell(3, 2)");
  const auto lstm = [&](const std::string& name, W inputs, auto make, const std::string& options) {
    Run run = [make](X x) {
      auto layer = make();
      take_parameters(*layer, x, 3);
      return listed(layer(x[0], std::tuple(x[1], x[2])));
    };
    cases.add(name, std::move(inputs), std::move(run), "torch.lstm(x[0], x[1:3], x[3:], " + options + ")")
        .without_finite_differences();
  };
  lstm("LSTM", {{3, 2, 2}, {1, 2, 2}, {1, 2, 2}, {8, 2}, {8, 2}, {8}, {8}}, [] { return nn::LSTM(2, 2); },
       "True, 1, 0., False, False, False");
  lstm("LSTM.layers_bidirectional",
       {{2, 1, 2}, {4, 1, 1}, {4, 1, 1}, {4, 2}, {4, 1}, {4, 2}, {4, 1}, {4, 2}, {4, 1}, {4, 2}, {4, 1}},
       [] { return nn::LSTM(nn::LSTMOptions(2, 1).num_layers(2).bidirectional(true).bias(false)); },
       "False, 2, 0., False, True, False");
  lstm("LSTM.projected", {{2, 1, 2}, {1, 1, 1}, {1, 1, 2}, {8, 2}, {8, 1}, {8}, {8}, {1, 2}},
       [] { return nn::LSTM(nn::LSTMOptions(2, 2).proj_size(1)); }, "True, 1, 0., False, False, False");
  cases.add("LSTMCell", {{2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}, {8}, {8}}, Run([](X x) {
              nn::LSTMCell cell(3, 2);
              take_parameters(*cell, x, 3);
              return listed(cell(x[0], std::tuple(x[1], x[2])));
            }), in_python("LSTMCell(3, 2)", 3, "(x[0], (x[1], x[2]))")).without_finite_differences();
}

void add_attention_layers(CaseList& cases) {
  using W = std::vector<Input>;
  add_layer<3>(cases, "MultiheadAttention", W{{3, 2, 4}, {2, 2, 4}, {2, 2, 4}, unit({12, 4}), {12}, {4, 4}, {4}},
               [] { return nn::MultiheadAttention(4, 2); }, "MultiheadAttention(4, 2)");
  add_layer<3>(cases, "MultiheadAttention.dims",
               W{{2, 1, 2}, {3, 1, 3}, {3, 1, 1}, unit({2, 2}), unit({2, 3}), {2, 1}, unit({6}), {1, 1, 2}, {1, 1, 2},
                 {2, 2}, {2}},
               [] {
                 return nn::MultiheadAttention(
                     nn::MultiheadAttentionOptions(2, 2).kdim(3).vdim(1).add_bias_kv(true).add_zero_attn(true));
               },
               "MultiheadAttention(2, 2, kdim=3, vdim=1, add_bias_kv=True, add_zero_attn=True)");
  cases.add("MultiheadAttention.masked", W{{3, 2, 4}, {12, 4}, {12}, {4, 4}, {4}}, Run([](X x) {
              nn::MultiheadAttention layer(nn::MultiheadAttentionOptions(4, 2).batch_first(true));
              take_parameters(*layer, x, 1);
              const Tensor later = triu(ones({2, 2}, TensorOptions(kBool).device(x[0].device())), 1);
              return listed(layer(x[0], x[0], x[0], Tensor(), true, later, false));
            }),
            in_python("MultiheadAttention(4, 2, batch_first=True)", 1,
                      "(x[0], x[0], x[0]), dict(attn_mask=torch.ones(2, 2).triu(1).bool(), average_attn_weights=False)"))
      .without_finite_differences();
  add_layer(cases, "TransformerEncoderLayer",
            W{{2, 2, 4}, {12, 4}, {12}, {4, 4}, {4}, {6, 4}, {6}, {4, 6}, {4}, {4}, {4}, {4}, {4}},
            [] {
              return nn::TransformerEncoderLayer(
                  nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(6).dropout(0).activation(kGELU));
            },
            "TransformerEncoderLayer(4, 2, 6, 0, 'gelu')");
}

void add_loss_layers(CaseList& cases) {
  const Input x{3, 4};
  add_layer<2>(cases, "CosineSimilarity", {x, x}, [] { return nn::CosineSimilarity(); }, "CosineSimilarity()");
  add_layer<2>(cases, "PairwiseDistance", {x, x}, [] { return nn::PairwiseDistance(); }, "PairwiseDistance()");
  add_layer<2>(cases, "MSELoss", {x, x}, [] { return nn::MSELoss(); }, "MSELoss()");
  add_layer<2>(cases, "L1Loss", {x, x}, [] { return nn::L1Loss(kSum); }, "L1Loss(reduction='sum')");
  add_layer<2>(cases, "SmoothL1Loss", {x, x}, [] { return nn::SmoothL1Loss(nn::SmoothL1LossOptions().beta(0.75)); },
               "SmoothL1Loss(beta=0.75)");
  add_layer<2>(cases, "HuberLoss", {x, x}, [] { return nn::HuberLoss(nn::HuberLossOptions().delta(0.75)); },
               "HuberLoss(delta=0.75)");
  add_layer<2>(cases, "PoissonNLLLoss", {x, positive({3, 4})}, [] { return nn::PoissonNLLLoss(); }, "PoissonNLLLoss()");
  add_layer<2>(cases, "BCELoss", {unit({3, 4}), unit({3, 4})}, [] { return nn::BCELoss(); }, "BCELoss()")
      .tolerance({.f64 = 1e-10});  // as for binary_cross_entropy
  add_layer<2>(cases, "BCEWithLogitsLoss", {x, unit({3, 4})}, [] { return nn::BCEWithLogitsLoss(); },
               "BCEWithLogitsLoss()");
  add_layer<2>(cases, "KLDivLoss", {x, unit({3, 4})}, [] { return nn::KLDivLoss(kBatchMean); },
               "KLDivLoss(reduction='batchmean')");
  cases.add("SoftMarginLoss", {{3}}, Run([](X x) {
              const Tensor target = tensor({1., -1., 1.}).to(x[0].device(), x[0].dtype());
              return listed(nn::SoftMarginLoss()(x[0], target));
            }), "torch.nn.SoftMarginLoss()(x[0], torch.tensor([1., -1., 1.], dtype=x[0].dtype))");
  add_layer<2>(cases, "MultiLabelSoftMarginLoss", {x, unit({3, 4})}, [] { return nn::MultiLabelSoftMarginLoss(); },
               "MultiLabelSoftMarginLoss()");
  add_layer<3>(cases, "TripletMarginLoss", {x, x, x},
               [] { return nn::TripletMarginLoss(nn::TripletMarginLossOptions().margin(2).swap(true)); },
               "TripletMarginLoss(2, swap=True)");
  add_layer<2>(cases, "NLLLoss", {x, index({3}, 4)}, [] { return nn::NLLLoss(nn::NLLLossOptions().reduction(kSum)); },
               "NLLLoss(reduction='sum')");
  add_layer<2>(cases, "CrossEntropyLoss", {{4, 5}, index({4}, 5)},
               [] { return nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().label_smoothing(0.1).ignore_index(2)); },
               "CrossEntropyLoss(label_smoothing=0.1, ignore_index=2)");
  add_layer<2>(cases, "MultiMarginLoss", {x, index({3}, 4)}, [] { return nn::MultiMarginLoss(); }, "MultiMarginLoss()")
      .differentiable(1);
  // Losses of pairs need targets 1 and -1.
  const auto pair = [&](const std::string& name, auto make, const std::string& python) {
    cases.add(name, {x, x}, Run([make](X x) {
                auto loss = make();
                const Tensor target = tensor({1., -1., 1.}).to(x[0].device(), x[0].dtype());
                return listed(loss(x[0], x[1], target));
              }), "torch.nn." + python + "(x[0], x[1], torch.tensor([1., -1., 1.], dtype=x[0].dtype))");
  };
  pair("CosineEmbeddingLoss", [] { return nn::CosineEmbeddingLoss(nn::CosineEmbeddingLossOptions().margin(0.25)); },
       "CosineEmbeddingLoss(0.25)");
  cases.add("MarginRankingLoss", {{3}, {3}}, Run([](X x) {
              const Tensor target = tensor({1., -1., 1.}).to(x[0].device(), x[0].dtype());
              return listed(nn::MarginRankingLoss(nn::MarginRankingLossOptions().margin(0.5))(x[0], x[1], target));
            }), "torch.nn.MarginRankingLoss(0.5)(x[0], x[1], torch.tensor([1., -1., 1.], dtype=x[0].dtype))");
  cases.add("HingeEmbeddingLoss", {{3}}, Run([](X x) {
              const Tensor target = tensor({1., -1., 1.}).to(x[0].device(), x[0].dtype());
              return listed(nn::HingeEmbeddingLoss(nn::HingeEmbeddingLossOptions().margin(2))(x[0], target));
            }), "torch.nn.HingeEmbeddingLoss(2)(x[0], torch.tensor([1., -1., 1.], dtype=x[0].dtype))");
}

}  // namespace

void add_layers(CaseList& cases) {
  add_linear_layers(cases);
  add_convolutions(cases);
  add_pooling(cases);
  add_activations(cases);
  add_normalisation(cases);
  add_resizing(cases);
  add_recurrent(cases);
  add_attention_layers(cases);
  add_loss_layers(cases);
}

}  // namespace gradus::op_cases
