#include <gradus/distributed/sharding/sharded_embedding.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus::nn {
namespace {

using dist::ProcessGroup;
using enum BinaryOp;

/// Sends sent[rank] rows of x (rows, columns) to each rank, and returns the received[rank] rows of each, by rank.
Array exchange_rows(ProcessGroup& group, const Array& x, std::vector<int64_t> sent, std::vector<int64_t> received) {
  const int64_t columns = x.shape()[1], rows = std::accumulate(received.begin(), received.end(), int64_t{0});
  const Array y = Array::empty({rows, columns}, x.dtype(), x.device());
  for (int64_t& count : sent) count *= columns;
  for (int64_t& count : received) count *= columns;
  group.all_to_all_v(x, sent, y, received);
  return y;
}

struct ShardedLookup final : Node {
  Saved order{this, "order"}, rows{this, "rows"};
  std::vector<int64_t> sent, received;
  dist::GroupPtr group;
  std::shared_ptr<detail::RowGradients> gradients;

  Array forward(const Array& weight, const detail::LookupRoute& route, const dist::GroupPtr& ranks,
                const std::shared_ptr<detail::RowGradients>& to) {
    const Array asked = ops::index_select(weight, 0, route.rows);                  // (M, D)
    const Array found = exchange_rows(*ranks, asked, route.received, route.sent);  // (N, D), in the order of the route
    const Array y = Array::empty_like(found);
    ops::index_into(y, 0, route.order, found, /*accumulate=*/false);
    order = route.order, rows = route.rows;
    sent = route.sent, received = route.received, group = ranks, gradients = to;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    GRADUS_CHECK(!GradMode::is_enabled(), AutogradError,
                 "ShardedEmbedding is not differentiable twice: its gradient is sparse");
    const Array values = exchange_rows(*group, ops::index_select(dy.array(), 0, order.array()), sent, received);
    gradients->rows.push_back(rows.array());
    gradients->values.push_back(ops::binary_scalar(mul, values, 1.0 / group->size()));
    return {Tensor()};
  }
};

/// The x with m x = 1 mod rows, by Euclid's algorithm; 0 if m and rows have a common factor.
int64_t inverse_of(int64_t m, int64_t rows) {
  int64_t rest = rows, next = m, x = 0, next_x = 1;
  while (next != 0) {
    const int64_t quotient = rest / next;
    rest = std::exchange(next, rest - quotient * next);
    x = std::exchange(next_x, x - quotient * next_x);
  }
  return rest > 1 ? 0 : x < 0 ? x + rows : x;
}

}  // namespace

void ShardedEmbeddingImpl::reset() {
  const int64_t rows = options.num_embeddings(), columns = options.embedding_dim();
  const bool hashes = options.placement() == RowPlacement::hash;
  GRADUS_CHECK(rows > 0 && columns > 0, ValueError, "ShardedEmbedding of ", rows, " rows with ", columns, " columns");
  GRADUS_CHECK(!hashes || rows < int64_t{1} << 31, ValueError, "RowPlacement::hash takes less than 2^31 rows, not ",
               rows, ": place them by range");
  if (hashes) {
    multiplier_ = std::llround(static_cast<double>(rows) * (std::sqrt(5.0) - 1) / 2);
    while ((inverse_ = inverse_of(multiplier_, rows)) == 0) ++multiplier_;
  }
  rows_per_rank_ = ceil_div(rows, group->size());
  gradients_ = std::make_shared<detail::RowGradients>();
  const int64_t first = group->rank() * rows_per_rank_, count = std::clamp<int64_t>(rows - first, 0, rows_per_rank_);
  const std::string suffix = "_" + std::to_string(group->rank()) + "_of_" + std::to_string(group->size());
  weight = register_parameter("weight" + suffix, empty({count, columns}));
  squares = register_buffer("squares" + suffix, zeros({count}));
  dist::draw_normal_part(weight, [&](int64_t i) { return (first + i) * inverse_ % rows; });
}

ShardedEmbeddingImpl::Place ShardedEmbeddingImpl::place_of(int64_t row) const {
  const int64_t place = row * multiplier_ % options.num_embeddings();
  return {place / rows_per_rank_, place % rows_per_rank_};
}

detail::LookupRoute ShardedEmbeddingImpl::route(const Array& indices) const {
  const Array given = ops::to_device(ops::contiguous(ops::cast(indices, DType::i64)), Device());
  const int64_t* index = given.data<int64_t>();
  const int64_t count = given.numel(), ranks = group->size(), rows = options.num_embeddings();
  const int64_t bad = std::find_if(index, index + count, [&](int64_t i) { return i < 0 || i >= rows; }) - index;

  // Every rank learns how many indices to expect from each rank; -1 from a rank with an invalid index.
  const Array counts = ops::full({ranks}, bad < count ? -1 : 0, DType::i64);
  int64_t* sent = counts.data<int64_t>();
  if (bad == count)
    for (int64_t i = 0; i < count; ++i) ++sent[place_of(index[i]).rank];
  const Array told = Array::empty({ranks}, DType::i64, indices.device());
  group->all_to_all(ops::to_device(counts, indices.device()), told);
  const Array expected = ops::to_device(told, Device());
  const int64_t* received = expected.data<int64_t>();
  GRADUS_CHECK(bad == count, IndexError, "index ", index[bad], " at position ", bad, " is outside of the table of ",
               rows, " rows");
  for (int64_t r = 0; r < ranks; ++r)
    GRADUS_CHECK(received[r] >= 0, IndexError, "rank ", r, " looks up an index outside of the table of ", rows,
                 " rows");

  // Sorts the indices by the rank that owns their rows. Indices for the same rank keep their order.
  detail::LookupRoute route{{sent, sent + ranks}, {received, received + ranks}, {}, {}};
  std::vector<int64_t> next(static_cast<size_t>(ranks), 0);
  std::partial_sum(route.sent.begin(), route.sent.end() - 1, next.begin() + 1);
  const Array order = Array::empty({count}, DType::i64), wanted = Array::empty({count, 1}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    const Place place = place_of(index[i]);
    const int64_t to = next[static_cast<size_t>(place.rank)]++;
    order.data<int64_t>()[to] = i, wanted.data<int64_t>()[to] = place.row;
  }
  route.order = ops::to_device(order, indices.device());
  const Array asked = exchange_rows(*group, ops::to_device(wanted, indices.device()), route.sent, route.received);
  route.rows = asked.view({asked.numel()});
  return route;
}

Tensor ShardedEmbeddingImpl::forward(const Tensor& x) {
  const auto frame = enter();
  OpScope op("sharded_embedding", Loc{});
  GRADUS_CHECK(x.dtype() == kLong || x.dtype() == kInt, DTypeError, "indices must be int64 or int32, got ", x.dtype());
  GRADUS_CHECK(x.device() == weight.device(), DeviceError, "indices are on ", x.device(), ", the table on ",
               weight.device());
  const Tensor y = gradus::apply<ShardedLookup>(op, weight, route(x.array()), group, gradients_);  // (N, D)
  Shape shape = x.sizes();
  shape.push_back(options.embedding_dim());
  return y.view(shape);
}

ShardedEmbeddingImpl::RowGradient ShardedEmbeddingImpl::row_gradient() const {
  const Array& numbers = weight.array();
  if (gradients_->rows.empty())
    return {Tensor(ops::zeros({0}, DType::i64, numbers.device())),
            Tensor(ops::zeros({0, options.embedding_dim()}, numbers.dtype(), numbers.device()))};
  const auto [rows, places, counts] = ops::unique(ops::cat(gradients_->rows, 0), /*sorted=*/true);
  const Array sums = ops::zeros({rows.numel(), options.embedding_dim()}, numbers.dtype(), numbers.device());
  ops::index_into(sums, 0, places, ops::cat(gradients_->values, 0), /*accumulate=*/true);
  return {Tensor(rows), Tensor(sums)};
}

std::vector<dist::ShardedModule::Part> ShardedEmbeddingImpl::parts() const {
  // The order of the rows is that of place_of(), which does not depend on the number of ranks.
  const dist::Cut cut = {.size = options.num_embeddings(),
                         .length = rows_per_rank_,
                         .layout = options.placement() == RowPlacement::hash ? "rows by hash" : "rows by range"};
  const std::string suffix = "_" + std::to_string(group->rank()) + "_of_" + std::to_string(group->size());
  return {{"weight" + suffix, "weight", cut}, {"squares" + suffix, "squares", cut}};
}

TensorList ShardedEmbeddingImpl::part_gradients() const {
  const RowGradient gradient = row_gradient();
  *gradients_ = {{gradient.rows.array()}, {gradient.values.array()}};
  return {gradient.values};
}

void ShardedEmbeddingImpl::adagrad_step(double lr, double eps) {
  const OpContext context("ShardedEmbedding::adagrad_step");
  GRADUS_CHECK(lr >= 0 && eps >= 0, ValueError, "lr and eps must not be negative, got ", lr, " and ", eps);
  const RowGradient gradient = row_gradient();
  clear_gradient();
  const Array &rows = gradient.rows.array(), &g = gradient.values.array();  // (k), (k, D)
  if (rows.numel() == 0) return;
  const Array mean_squares =
      ops::reduce(ReduceOp::mean, ops::unary(UnaryOp::square, g), 2, /*keepdim=*/false, g.dtype());
  const Array sums = ops::binary(add, ops::index_select(squares.array(), 0, rows), mean_squares);
  ops::index_into(squares.array(), 0, rows, sums, /*accumulate=*/false);
  const Array divisor = ops::binary_scalar(add, ops::unary(UnaryOp::sqrt, sums), eps).unsqueeze(1);
  const Array change = ops::binary_scalar(mul, ops::binary(div, g, divisor), lr);
  ops::index_into(weight.array(), 0, rows, ops::binary(sub, ops::index_select(weight.array(), 0, rows), change),
                  /*accumulate=*/false);
}

}  // namespace gradus::nn
