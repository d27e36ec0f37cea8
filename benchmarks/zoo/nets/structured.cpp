// Nets of tables, time series, point clouds and graphs.
#include <gradus/benchmarks/zoo/nets/blocks.h>
#include <gradus/benchmarks/zoo/zoo.h>

namespace gradus::zoo {

namespace {

namespace F = nn::functional;

/// Returns linear layers from widths[0] to widths[1], from there to widths[2] and so on, with ReLU between them.
nn::Sequential linear_layers(const std::vector<int64_t>& widths) {
  nn::Sequential net;
  for (size_t i = 1; i < widths.size(); ++i) {
    if (i > 1) net->push_back(nn::ReLU());
    net->push_back(nn::Linear(widths[i - 1], widths[i]));
  }
  return net;
}

// ---- Recommenders ----

/// Naumov et al., "Deep learning recommendation model for personalization and recommendation systems", 2019: 13 numbers
/// and 8 lists of 4 categories of a user and an item, to the logit of a click.
struct DlrmImpl : nn::Module {
  DlrmImpl() {
    for (int i = 0; i < kTables; ++i)
      tables->push_back(nn::EmbeddingBag(nn::EmbeddingBagOptions(10000, kWidth).mode(kSum)));
    register_module("bottom", bottom);
    register_module("tables", tables);
    register_module("top", top);
  }
  Tensor forward(const Tensor& numbers, const Tensor& categories) {  // (N, 13), (N, 8, 4)
    const Tensor dense = relu(bottom(numbers));
    TensorList vectors{dense};
    for (int i = 0; i < kTables; ++i)
      vectors.push_back(tables->at<nn::EmbeddingBag>(i).forward(categories.select(1, i)));
    const Tensor all = stack(vectors, 1);                   // (N, 9, width)
    const Tensor products = bmm(all, all.transpose(1, 2));  // (N, 9, 9), symmetric
    return top(cat({dense, products.index({Slice(), pairs[0], pairs[1]})}, 1)).squeeze(1);
  }

  static constexpr int kTables = 8;
  static constexpr int64_t kWidth = 32;
  Tensor pairs = register_buffer("pairs", tril_indices(kTables + 1, kTables + 1, -1));
  nn::Sequential bottom = linear_layers({13, 256, 128, kWidth});
  nn::ModuleList tables;
  nn::Sequential top = linear_layers({kWidth + kTables * (kTables + 1) / 2, 256, 128, 1});
};
GRADUS_MODULE(Dlrm);

Net dlrm() {
  const Dlrm net;
  return one_phase(net.ptr(), [net](const TensorList& batch) {
    return F::binary_cross_entropy_with_logits(net(batch[0], batch[1]), batch[2]);
  });
}

/// Rendle, "Factorization machines", 2010: 20 of 50000 categories to a rating.
struct FactorizationMachineImpl : nn::Module {
  FactorizationMachineImpl() {
    register_module("weights", weights);
    register_module("factors", factors);
    bias = register_parameter("bias", zeros({1}));
  }
  Tensor forward(const Tensor& categories) {  // (N, 20)
    const Tensor v = factors(categories);     // (N, 20, 16)
    const Tensor products = (v.sum(1).square() - v.square().sum(1)).sum(1) / 2;
    return bias + weights(categories).sum({1, 2}) + products;
  }

  nn::Embedding weights = small_embedding(50000, 1, 0.01), factors = small_embedding(50000, 16, 0.01);
  Tensor bias;
};
GRADUS_MODULE(FactorizationMachine);

// ---- Time series ----

/// A convolution of sequences (N, C, L), each of whose results sees only its own step and those before it.
struct CausalConvImpl : nn::Module {
  CausalConvImpl(int64_t in, int64_t out, int64_t dilation)
      : conv(nn::Conv1dOptions(in, out, 3).dilation(dilation)), padding(2 * dilation) {
    register_module("conv", conv);
  }
  Tensor forward(const Tensor& x) { return conv(F::pad(x, F::PadFuncOptions({padding, 0}))); }

  nn::Conv1d conv;
  int64_t padding;
};
GRADUS_MODULE(CausalConv);

/// A temporal convolutional network (Bai et al., "An empirical evaluation of generic convolutional and recurrent
/// networks for sequence modeling", 2018), without weight normalisation and dropout.
nn::Sequential tcn() {
  nn::Sequential net;
  net->push_back(nn::Conv1d(8, 64, 1));
  for (const int64_t dilation : {1, 2, 4, 8, 16, 32}) {
    net->push_back(
        Residual(nn::Sequential(CausalConv(64, 64, dilation), nn::ReLU(), CausalConv(64, 64, dilation), nn::ReLU())));
    net->push_back(nn::ReLU());
  }
  net->push_back(nn::Conv1d(64, 8, 1));
  return net;
}

/// N-BEATS with generic blocks (Oreshkin et al., "N-BEATS: neural basis expansion analysis for interpretable time
/// series forecasting", 2020). Each block explains a part of the past, and adds what follows from it to the forecast.
struct NBeatsImpl : nn::Module {
  NBeatsImpl() {
    for (int i = 0; i < 8; ++i) {
      blocks->push_back(linear_layers({kPast, 256, 256, 256, 256}));
      coefficients->push_back(nn::Linear(256, 2 * kCoefficients));
      if (i < 7) backcasts->push_back(nn::Linear(kCoefficients, kPast));
      forecasts->push_back(nn::Linear(kCoefficients, kFuture));
    }
    register_module("blocks", blocks);
    register_module("coefficients", coefficients);
    register_module("backcasts", backcasts);
    register_module("forecasts", forecasts);
  }
  Tensor forward(const Tensor& past) {  // (N, 60) to (N, 12)
    Tensor x = past, future = past.new_zeros({past.size(0), kFuture});
    for (size_t i = 0; i < blocks->size(); ++i) {
      const Tensor hidden = relu(blocks->at<nn::Sequential>(i).forward(x));
      const TensorList theta = coefficients->at<nn::Linear>(i).forward(hidden).chunk(2, 1);
      future = future + forecasts->at<nn::Linear>(i).forward(theta[1]);
      if (i < backcasts->size()) x = x - backcasts->at<nn::Linear>(i).forward(theta[0]);
    }
    return future;
  }

  static constexpr int64_t kPast = 60, kFuture = 12, kCoefficients = 32;
  nn::ModuleList blocks, coefficients, backcasts, forecasts;
};
GRADUS_MODULE(NBeats);

// ---- Point clouds ----

/// Returns a linear layer of each point, batch norm and ReLU.
nn::Sequential point_layer(int64_t in, int64_t out) {
  return nn::Sequential(nn::Conv1d(in, out, 1), nn::BatchNorm1d(out), nn::ReLU());
}

/// The same of a vector.
nn::Sequential vector_layer(int64_t in, int64_t out) {
  return nn::Sequential(nn::Linear(in, out), nn::BatchNorm1d(out), nn::ReLU());
}

/// Multiplies points (N, size, P) by a matrix that it computes from them.
struct PointTransformImpl : nn::Module {
  explicit PointTransformImpl(int64_t size)
      : size(size), points(point_layer(size, 64), point_layer(64, 128), point_layer(128, 512)),
        matrix(vector_layer(512, 256), vector_layer(256, 128), nn::Linear(128, size * size)) {
    register_module("points", points);
    register_module("matrix", matrix);
  }
  Tensor forward(const Tensor& x) {
    const Tensor change = matrix(points(x).amax(2)).view({-1, size, size});
    return bmm(change + eye(size, x.options()), x);
  }

  int64_t size;
  nn::Sequential points, matrix;
};
GRADUS_MODULE(PointTransform);

/// PointNet (Qi et al., "PointNet: deep learning on point sets for 3D classification and segmentation", 2017) with half
/// the features: classifies clouds of points (N, 3, P).
struct PointNetImpl : nn::Module {
  PointNetImpl() {
    register_module("points", points);
    register_module("head", head);
  }
  Tensor forward(const Tensor& clouds) { return head(points(clouds).amax(2)); }

  nn::Sequential points{PointTransform(3),   point_layer(3, 64),   PointTransform(64),
                        point_layer(64, 64), point_layer(64, 128), point_layer(128, 512)};
  nn::Sequential head{vector_layer(512, 256), vector_layer(256, 128), nn::Linear(128, 40)};
};
GRADUS_MODULE(PointNet);

// ---- Graphs ----

/// Kipf, Welling: "Semi-supervised classification with graph convolutional networks", 2017: classifies the nodes of a
/// graph.
struct GraphConvolutionImpl : nn::Module {
  GraphConvolutionImpl() {
    for (const auto& [in, out] : {std::pair{256, 128}, {128, 128}, {128, 7}}) layers->push_back(nn::Linear(in, out));
    register_module("layers", layers);
  }
  /// Maps features (nodes, 256) and edges (2, E) between nodes to logits (nodes, 7).
  Tensor forward(const Tensor& features, const Tensor& edges) {
    const Tensor self = arange(features.size(0), edges.options());
    const Tensor from = cat({edges[0], edges[1], self}), to = cat({edges[1], edges[0], self});
    const Tensor degrees = features.new_zeros({features.size(0)}).index_add(0, to, ones_like(to, features.options()));
    const Tensor scale = rsqrt(degrees),
                 weights = (scale.index_select(0, from) * scale.index_select(0, to)).unsqueeze(1);
    Tensor x = features;
    for (size_t i = 0; i < layers->size(); ++i) {
      const Tensor y = layers->at<nn::Linear>(i).forward(i > 0 ? relu(x) : x);
      const Tensor messages = weights * y.index_select(0, from);
      x = messages.new_zeros(y.sizes()).index_add(0, to, messages);
    }
    return x;
  }

  nn::ModuleList layers;
};
GRADUS_MODULE(GraphConvolution);

Net graph_convolution() {
  const GraphConvolution net;
  return one_phase(net.ptr(),
                   [net](const TensorList& batch) { return F::cross_entropy(net(batch[0], batch[1]), batch[2]); });
}

}  // namespace

std::vector<Entry> structured_nets() {
  using Inputs = std::vector<Input>;
  return {{"dlrm", 512, dlrm,
           [](int64_t batch) {
             return Inputs{{"normal", {batch, 13}}, {"integers", {batch, 8, 4}, 10000}, {"uniform", {batch}}};
           }},
          {"factorization_machine", 1024, [] { return regression(nn::AnyModule(FactorizationMachine())); },
           [](int64_t batch) {
             return Inputs{{"integers", {batch, 20}, 50000}, {"normal", {batch}}};
           }},
          {"tcn", 32, [] { return regression(nn::AnyModule(tcn())); },
           [](int64_t batch) {
             return Inputs{{"normal", {batch, 8, 256}}, {"normal", {batch, 8, 256}}};
           }},
          {"n_beats", 512, [] { return regression(nn::AnyModule(NBeats())); },
           [](int64_t batch) {
             return Inputs{{"normal", {batch, 60}}, {"normal", {batch, 12}}};
           }},
          image_classifier("pointnet", 16, {3, 512}, 40, [] { return PointNet(); }),
          {"graph_convolution", 4096, graph_convolution, [](int64_t nodes) {
             return Inputs{{"normal", {nodes, 256}}, {"integers", {2, 4 * nodes}, nodes}, {"integers", {nodes}, 7}};
           }}};
}

}  // namespace gradus::zoo
