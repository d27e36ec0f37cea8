#include <gradus/backends/cudnn/conv_graph.h>

namespace gradus::cudnn_detail {
namespace {

struct Unsupported {};

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    default: return CUDNN_DATA_FLOAT;
  }
}
// Half types are summed in float32.
cudnnDataType_t sum_type(DType dtype) { return dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT; }

// The names of a convolution node's attributes, which are different for each of the three passes.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};
constexpr Names kForward = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr Names kBackwardData = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
constexpr Names kBackwardWeight = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
const Names& names_of(ConvPass pass) {
  return pass == ConvPass::forward ? kForward : pass == ConvPass::backward_data ? kBackwardData : kBackwardWeight;
}

class GraphBuilder {
 public:
  GraphBuilder(const EngineRequest& problem, ConvGraph& graph) : problem_(problem), graph_(graph) {}

  void build(cudnnHandle_t handle) {
    const Descriptor& y = tensor(kY, problem_.y);
    const bool bias = problem_.bias, relu = problem_.relu;
    const Descriptor* sum = bias || relu ? &in_registers() : &y;
    add_convolution(*sum);
    if (graph_.addend) {
      const Descriptor& before = *std::exchange(sum, &in_registers());
      add_pointwise(CUDNN_POINTWISE_ADD, before, &tensor(kAddend, problem_.y), 0, *sum);
    }
    if (bias) {
      const Descriptor& before = *std::exchange(sum, relu ? &in_registers() : &y);
      add_pointwise(CUDNN_POINTWISE_ADD, before, &tensor(kBias, {1, problem_.w[0], 1, 1}), 1, *sum);
    }
    if (relu) add_pointwise(CUDNN_POINTWISE_RELU_FWD, *sum, nullptr, 1, y);
    graph_.descriptor.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
    graph_.descriptor.set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
    if (!graph_.descriptor.finalize()) throw Unsupported();
    for (Descriptor& operation : operations_) graph_.parts.push_back(std::move(operation));
  }

 private:
  const Descriptor& finished(Descriptor part) {
    if (!part.finalize()) throw Unsupported();
    return graph_.parts.emplace_back(std::move(part));
  }

  const Descriptor& tensor(int64_t id, cudnnDataType_t type, const std::array<int64_t, 4>& sizes, bool in_memory) {
    const auto [n, c, h, w] = sizes;
    const std::array<int64_t, 4> strides = problem_.channels_last ? std::array<int64_t, 4>{h * w * c, 1, w * c, c}
                                                                  : std::array<int64_t, 4>{c * h * w, h * w, w, 1};
    Descriptor part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    part.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    part.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    part.set_all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
    part.set_all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, strides);
    part.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
    part.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, !in_memory);
    return finished(std::move(part));
  }
  const Descriptor& tensor(TensorId id, const std::array<int64_t, 4>& sizes) {
    return tensor(id, type_of(problem_.dtype), sizes, true);
  }
  // A virtual tensor with the sizes of y, which one node passes to the next.
  const Descriptor& in_registers() { return tensor(next_id_++, sum_type(problem_.dtype), problem_.y, false); }

  // Sets alpha or beta of a node, which are doubles if cuDNN computes in double.
  void set_scale(Descriptor& operation, cudnnBackendAttributeName_t name, double value) const {
    if (problem_.dtype == DType::f64) operation.set(name, value);
    else operation.set(name, static_cast<float>(value));
  }

  void add_convolution(const Descriptor& y) {
    Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, sum_type(problem_.dtype));
    convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
    convolution.set_all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, problem_.stride);
    convolution.set_all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, problem_.padding);
    convolution.set_all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, problem_.padding);
    convolution.set_all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, problem_.dilation);

    const Names& names = names_of(problem_.pass);
    Descriptor operation(names.operation);
    operation.set(names.convolution, finished(std::move(convolution)));
    operation.set(names.x, tensor(kX, problem_.x));
    operation.set(names.w, tensor(kW, problem_.w));
    operation.set(names.y, y);
    set_scale(operation, names.alpha, 1);
    set_scale(operation, names.beta, 0);
    add(std::move(operation));
  }

  // Adds a node: out = in + other_scale other, or relu(in) if `other` is null.
  void add_pointwise(cudnnPointwiseMode_t mode, const Descriptor& in, const Descriptor* other, double other_scale,
                     const Descriptor& out) {
    Descriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    pointwise.set(CUDNN_ATTR_POINTWISE_MODE, mode);
    pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, sum_type(problem_.dtype));
    if (!other) pointwise.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);

    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, finished(std::move(pointwise)));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, in);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
    set_scale(operation, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1);
    if (other) {
      operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
      set_scale(operation, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, other_scale);
    }
    add(std::move(operation));
  }

  void add(Descriptor operation) {
    if (!operation.finalize()) throw Unsupported();
    operations_.push_back(std::move(operation));
  }

  const EngineRequest& problem_;
  ConvGraph& graph_;
  std::vector<Descriptor> operations_;
  int64_t next_id_ = kAddend + 1;
};

}  // namespace

std::shared_ptr<const ConvGraph> make_graph(const EngineRequest& problem, cudnnHandle_t handle, bool addend) {
  auto graph = std::make_shared<ConvGraph>();
  graph->addend = addend;
  try {
    GraphBuilder(problem, *graph).build(handle);
  } catch (const Unsupported&) { return nullptr; }
  return graph;
}

}  // namespace gradus::cudnn_detail
