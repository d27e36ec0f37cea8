#include <gradus/distributed/sharding/tensor_parallel.h>

#include <cmath>
#include <limits>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/nn/loss.h>
#include <gradus/autograd/ops/nn/norm.h>
#include <gradus/autograd/ops/nn/sequence.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/ops/ops.h>
#include <gradus/layers/module/init.h>

namespace gradus::dist {
namespace {

/// Views x (…, n d, …) as (n, …, d, …): the parts for or from each rank, one after the other.
Array by_ranks(const Array& x, int dim, int ranks) {
  Shape shape = x.shape();
  shape[dim] /= ranks;
  shape.insert(dim, ranks);
  Dims order = {dim};
  for (int i = 0; i < shape.size(); ++i)
    if (i != dim) order.push_back(i);
  return x.view(shape).permute(order);
}

Array all_gathered(const Array& x, int dim, ProcessGroup& group) {
  Shape shape = x.shape();
  shape[dim] *= group.size();
  const Array y = Array::empty(shape, x.dtype(), x.device()), parts = by_ranks(y, dim, group.size());
  const Array received = parts.is_contiguous() ? parts : Array::empty(parts.shape(), x.dtype(), x.device());
  group.all_gather(ops::contiguous(x), received);
  if (!parts.is_contiguous()) ops::copy_into(parts, received);
  return y;
}

Array part_of_sum(const Array& x, int dim, ProcessGroup& group) {
  Shape shape = x.shape();
  shape[dim] /= group.size();
  const Array y = Array::empty(shape, x.dtype(), x.device());
  group.reduce_scatter(ops::contiguous(by_ranks(x, dim, group.size())), y);
  return y;
}

/// What an operator does with x. Partners, each the gradient of the other, are next to each other: partner().
enum class Exchange : uint8_t { copy, reduce, scatter, gather, all_gather_sequence, reduce_scatter_sequence };
constexpr std::array kExchangeNames = {"copy_to_ranks",     "reduce_from_ranks",   "scatter_to_ranks",
                                       "gather_from_ranks", "all_gather_sequence", "reduce_scatter_sequence"};
const char* name_of(Exchange exchange) { return kExchangeNames[static_cast<size_t>(exchange)]; }
Exchange partner(Exchange exchange) { return static_cast<Exchange>(static_cast<uint8_t>(exchange) ^ 1); }

struct ExchangeNode final : Node {
  Exchange exchange = Exchange::copy;
  GroupPtr group;
  int dim = 0;

  const char* name() const override { return name_of(exchange); }
  Array forward(const Array& x, Exchange what, int along, const GroupPtr& ranks) {
    exchange = what, dim = along, group = ranks;
    switch (what) {
      case Exchange::scatter: {
        const int64_t part = x.shape()[dim] / group->size(), begin = group->rank() * part;
        return ops::clone(x.slice(dim, begin, begin + part), MemoryFormat::contiguous);
      }
      case Exchange::gather:
      case Exchange::all_gather_sequence: return all_gathered(x, dim, *group);
      case Exchange::reduce_scatter_sequence: return part_of_sum(x, dim, *group);
      default: break;
    }
    Array y = ops::clone(x, MemoryFormat::contiguous);
    if (what == Exchange::reduce) group->all_reduce(y);
    return y;
  }
  Grads backward(const Tensor& dy) override {
    OpScope op(name_of(partner(exchange)), Loc{});
    return {apply<ExchangeNode>(op, dy, partner(exchange), dim, group)};
  }
};

Tensor exchanged(Exchange exchange, const Tensor& x, int64_t dim, const GroupPtr& group, Loc where) {
  OpScope op(name_of(exchange), where);
  GRADUS_CHECK(group, ValueError, "the process group is null");
  GRADUS_CHECK(x.is_floating_point(), DTypeError, "x must be floating, got ", x.dtype());
  if (exchange == Exchange::copy || exchange == Exchange::reduce) return apply<ExchangeNode>(op, x, exchange, 0, group);
  const int along = normalize_axis(dim, static_cast<int>(x.dim()));
  const bool cuts = exchange == Exchange::scatter || exchange == Exchange::reduce_scatter_sequence;
  GRADUS_CHECK(!cuts || x.size(along) % group->size() == 0, ShapeError, "dimension ", along, " of x of shape ",
               x.sizes(), " cannot be cut into ", group->size(), " equal parts");
  return apply<ExchangeNode>(op, x, exchange, along, group);
}

/// This rank owns the numbers (classes, or rows of a table) from `first` to first + count - 1. `elsewhere` is true
/// where an element of `numbers` belongs to another rank; `local` has the other elements, counted from `first`.
struct OwnNumbers {
  Tensor local, elsewhere;
  OwnNumbers(const Tensor& numbers, int64_t first, int64_t count) {
    const Tensor from_first = numbers - first;
    elsewhere = (from_first < 0) | (from_first >= count);
    local = from_first.masked_fill(elsewhere, 0);
  }
};

/// On the CPU, throws an IndexError for the first number outside [0, size) that is not `ignored`. On other devices it
/// checks nothing, because the host would have to wait.
void check_numbers(const Tensor& numbers, int64_t size, const char* what, std::optional<int64_t> ignored) {
  GRADUS_CHECK(numbers.dtype() == kLong || numbers.dtype() == kInt, DTypeError, what, " must be int64 or int32, got ",
               numbers.dtype());
  if (!numbers.device().is_cpu()) return;
  const Tensor flat = numbers.to(kLong).contiguous();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const int64_t number = flat.data_ptr<int64_t>()[i];
    GRADUS_CHECK((number >= 0 && number < size) || number == ignored, IndexError, what, ": number ", i, " of them, ",
                 number, ", is outside [0, ", size, ")");
  }
}

}  // namespace

Tensor copy_to_ranks(const Tensor& x, const GroupPtr& group, Loc where) {
  return exchanged(Exchange::copy, x, 0, group, where);
}
Tensor reduce_from_ranks(const Tensor& x, const GroupPtr& group, Loc where) {
  return exchanged(Exchange::reduce, x, 0, group, where);
}
Tensor scatter_to_ranks(const Tensor& x, const GroupPtr& group, int64_t dim, Loc where) {
  return exchanged(Exchange::scatter, x, dim, group, where);
}
Tensor gather_from_ranks(const Tensor& x, const GroupPtr& group, int64_t dim, Loc where) {
  return exchanged(Exchange::gather, x, dim, group, where);
}
Tensor all_gather_sequence(const Tensor& x, const GroupPtr& group, int64_t dim, Loc where) {
  return exchanged(Exchange::all_gather_sequence, x, dim, group, where);
}
Tensor reduce_scatter_sequence(const Tensor& x, const GroupPtr& group, int64_t dim, Loc where) {
  return exchanged(Exchange::reduce_scatter_sequence, x, dim, group, where);
}

Tensor parallel_cross_entropy(const Tensor& logits, const Tensor& targets, const GroupPtr& group, Reduction reduction,
                              int64_t ignore_index, Loc where) {
  OpScope op("parallel_cross_entropy", where);
  GRADUS_CHECK(group, ValueError, "the process group is null");
  Shape rows = logits.sizes();
  if (rows.size() > 0) rows.erase(rows.size() - 1);
  GRADUS_CHECK(logits.dim() > 0 && targets.sizes() == rows, ShapeError, "logits of shape ", logits.sizes(),
               " need targets of shape ", rows, ", got ", targets.sizes());
  const int64_t own_classes = logits.size(-1), classes = own_classes * group->size();
  check_numbers(targets, classes, "targets", ignore_index);
  const Tensor x = size_of(logits.dtype()) < 4 ? logits.to(kFloat) : logits;

  const Tensor largest = x.detach().amax({-1}, true).contiguous();  // (…, 1), so that exp() cannot overflow
  group->all_reduce(largest.array(), ReduceKind::max);
  const Tensor shifted = x - largest;  // (…, C / n)
  const OwnNumbers own(targets, group->rank() * own_classes, own_classes);
  const Tensor picked = shifted.gather(-1, own.local.to(kLong).unsqueeze(-1)).squeeze(-1).masked_fill(own.elsewhere, 0);
  const Tensor sums = reduce_from_ranks(stack({shifted.exp().sum({-1}), picked}), group, where);  // (2, …)

  const Tensor ignored = targets == ignore_index, no_class = OwnNumbers(targets, 0, classes).elsewhere;
  const Tensor losses =
      (sums[0].log() - sums[1]).masked_fill(no_class, std::numeric_limits<double>::quiet_NaN()).masked_fill(ignored, 0);
  if (reduction == Reduction::none) return losses;
  if (reduction == Reduction::sum) return losses.sum();
  return losses.sum() / ignored.logical_not().to(losses.dtype()).sum();
}

}  // namespace gradus::dist

namespace gradus::nn {
namespace {

/// Each rank's share of `count` features, rows or heads. Throws a ValueError if they cannot be shared equally.
int64_t equal_part(int64_t count, const char* of_what, const dist::GroupPtr& group) {
  GRADUS_CHECK(count > 0 && count % group->size() == 0, ValueError, count, " ", of_what,
               " cannot be shared equally by ", group->size(), " ranks");
  return count / group->size();
}

/// Bounds of the uniform distributions from which Linear draws its initial values (init::reset_weight_and_bias): of the
/// weight, as in init::kaiming_uniform_ with a = sqrt(5), and of the bias.
double weight_bound(int64_t fan_in) {
  return std::sqrt(3.0) * (init::calculate_gain(kLeakyReLU, std::sqrt(5.0)) / std::sqrt(static_cast<double>(fan_in)));
}
double bias_bound(int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); }

/// Prepares x for a layer whose outputs are divided among the ranks.
Tensor for_all_ranks(const Tensor& x, std::optional<int64_t> sequence_dim, const dist::GroupPtr& group) {
  return sequence_dim ? dist::all_gather_sequence(x, group, *sequence_dim, Loc{})
                      : dist::copy_to_ranks(x, group, Loc{});
}
/// Sums y of a layer whose inputs are divided among the ranks.
Tensor sum_of_ranks(const Tensor& y, std::optional<int64_t> sequence_dim, const dist::GroupPtr& group) {
  return sequence_dim ? dist::reduce_scatter_sequence(y, group, *sequence_dim, Loc{})
                      : dist::reduce_from_ranks(y, group, Loc{});
}

}  // namespace

void ColumnParallelLinearImpl::reset() {
  const int64_t in = options.in_features(), own = equal_part(options.out_features(), "output features", group);
  GRADUS_CHECK(in > 0, ValueError, "ColumnParallelLinear of ", in, " input features");
  weight = register_parameter("weight", empty({own, in}));
  bias = register_parameter("bias", options.bias() ? empty({own}) : Tensor());
  NoGradGuard no_grad;
  const auto row_of = [first = group->rank() * own](int64_t i) { return first + i; };
  dist::draw_uniform_part(weight, in, 0, row_of, weight_bound(in));
  if (bias.defined()) dist::draw_uniform_part(bias.unsqueeze(1), 1, 0, row_of, bias_bound(in));
}

Tensor ColumnParallelLinearImpl::forward(const Tensor& x) {
  const auto frame = enter();
  const Tensor y = linear(for_all_ranks(x, options.sequence_dim(), group), weight, bias);
  return options.gather_output() ? dist::gather_from_ranks(y, group, -1, Loc{}) : y;
}

std::vector<dist::ShardedModule::Part> ColumnParallelLinearImpl::parts() const {
  const dist::Cut rows = {.size = options.out_features(), .length = options.out_features() / group->size()};
  std::vector<Part> parts = {{"weight", "weight", rows}};
  if (bias.defined()) parts.push_back({"bias", "bias", rows});
  return parts;
}

void RowParallelLinearImpl::reset() {
  const int64_t in = options.in_features(), out = options.out_features(), own = equal_part(in, "input features", group);
  GRADUS_CHECK(out > 0, ValueError, "RowParallelLinear of ", out, " output features");
  weight = register_parameter("weight", empty({out, own}));
  bias = register_parameter("bias", options.bias() ? empty({out}) : Tensor());
  const auto row_of = [](int64_t i) { return i; };
  dist::draw_uniform_part(weight, in, group->rank() * own, row_of, weight_bound(in));
  if (bias.defined()) init::uniform_(bias, -bias_bound(in), bias_bound(in));
}

Tensor RowParallelLinearImpl::forward(const Tensor& x) {
  const auto frame = enter();
  const Tensor own = options.input_is_parallel() ? x : dist::scatter_to_ranks(x, group, -1, Loc{});
  const Tensor y = sum_of_ranks(linear(own, weight), options.sequence_dim(), group);
  if (!bias.defined()) return y;
  // The bias is added once, after the sum. If the sequence is divided, each rank only has the gradient of the bias from
  // its part of the sequence, and copy_to_ranks() sums these gradients.
  return y + (options.sequence_dim() ? dist::copy_to_ranks(bias, group, Loc{}) : bias);
}

std::vector<dist::ShardedModule::Part> RowParallelLinearImpl::parts() const {
  const int64_t in = options.in_features();
  return {{"weight", "weight", {.size = in, .length = in / group->size(), .dim = 1}}};
}

void VocabParallelEmbeddingImpl::reset() {
  const int64_t own = equal_part(options.num_embeddings(), "rows of an embedding", group);
  GRADUS_CHECK(options.embedding_dim() > 0, ValueError, "an embedding of ", options.embedding_dim(), " columns");
  weight = register_parameter("weight", empty({own, options.embedding_dim()}));
  dist::draw_normal_part(weight, [first = group->rank() * own](int64_t i) { return first + i; });
}

Tensor VocabParallelEmbeddingImpl::forward(const Tensor& indices) {
  const auto frame = enter();
  dist::check_numbers(indices, options.num_embeddings(), "indices", std::nullopt);
  const int64_t count = weight.size(0);
  const dist::OwnNumbers own(indices, group->rank() * count, count);
  const Tensor found = embedding(weight, own.local).masked_fill(own.elsewhere.unsqueeze(-1), 0);
  return sum_of_ranks(found, options.sequence_dim(), group);
}

std::vector<dist::ShardedModule::Part> VocabParallelEmbeddingImpl::parts() const {
  return {{"weight", "weight", {.size = options.num_embeddings(), .length = weight.size(0)}}};
}

void ParallelSelfAttentionImpl::reset() {
  const int64_t size = options.embed_dim(), heads = options.num_heads();
  GRADUS_CHECK(size > 0 && heads > 0 && size % heads == 0, ValueError, "embed_dim ", size, " cannot be divided into ",
               heads, " heads of equal size");
  const int64_t own = equal_part(heads, "heads", group) * (size / heads), first = group->rank() * own;
  in_proj_weight = register_parameter("in_proj_weight", empty({3 * own, size}));
  in_proj_bias = register_parameter("in_proj_bias", options.bias() ? zeros({3 * own}) : Tensor());
  // Draws in the order of MultiheadAttention, with its initial values: xavier_uniform_, and biases of 0.
  const auto out_options =
      RowParallelLinearOptions(size, size).bias(options.bias()).sequence_dim(options.sequence_dim());
  out_proj = register_module("out_proj", RowParallelLinear(out_options, group));
  if (options.bias()) init::zeros_(out_proj->bias);
  const double bound = std::sqrt(3.0) * std::sqrt(2.0 / static_cast<double>(3 * size + size));
  dist::draw_uniform_part(
      in_proj_weight, size, 0, [&](int64_t i) { return i / own * size + first + i % own; }, bound);
}

Tensor ParallelSelfAttentionImpl::forward(const Tensor& x, const Tensor& mask) {
  const auto frame = enter();
  GRADUS_CHECK(x.dim() == 3, ShapeError, "x must be (N, L, E), got shape ", x.sizes());
  const Tensor packed = linear(for_all_ranks(x, options.sequence_dim(), group), in_proj_weight, in_proj_bias);
  return out_proj(self_attention(packed, options.num_heads() / group->size(), mask));
}

std::vector<dist::ShardedModule::Part> ParallelSelfAttentionImpl::parts() const {
  const int64_t size = options.embed_dim();
  const dist::Cut heads = {.size = size, .length = size / group->size(), .blocks = 3};  // of queries, keys and values
  std::vector<Part> parts = {{"in_proj_weight", "in_proj_weight", heads}};
  if (in_proj_bias.defined()) parts.push_back({"in_proj_bias", "in_proj_bias", heads});
  return parts;
}

void SequenceParallelLayerNormImpl::reset() {
  const auto& shape = options.normalized_shape();
  weight = register_parameter("weight", options.elementwise_affine() ? ones(shape) : Tensor());
  bias = register_parameter("bias", options.elementwise_affine() ? zeros(shape) : Tensor());
}

Tensor SequenceParallelLayerNormImpl::forward(const Tensor& x) {
  const auto frame = enter();
  const auto shared = [&](const Tensor& parameter) {
    return parameter.defined() ? dist::copy_to_ranks(parameter, group, Loc{}) : parameter;
  };
  return layer_norm(x, options.normalized_shape(), shared(weight), shared(bias), options.eps());
}

}  // namespace gradus::nn
