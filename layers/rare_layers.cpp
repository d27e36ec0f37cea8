#include <gradus/layers/rare_layers.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <utility>

#include <gradus/autograd/ops/attention.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/pad.h>
#include <gradus/autograd/ops/pool.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/layers/module/init.h>
#include <gradus/layers/module/layer_printer.h>

namespace gradus::nn {

// ---- EmbeddingBag ----

EmbeddingBagMode::EmbeddingBagMode(Reduction reduction) : kind(reduction == kSum ? sum : mean) {
  GRADUS_CHECK(reduction != kNone, ValueError, "the mode of an EmbeddingBag is kSum, kMean or kMax");
}

namespace {

/// Bag i contains the flat indices [ends[i], ends[i + 1]).
using BagEnds = std::vector<int64_t>;

BagEnds ends_of(const Tensor& offsets, int64_t count, bool include_last_offset) {
  GRADUS_CHECK(offsets.defined() && offsets.dim() == 1, ShapeError,
               "embedding_bag: indices of one dimension need offsets (bags)");
  const Tensor begins = offsets.to(kCPU, kLong).contiguous();
  BagEnds ends(begins.data_ptr<int64_t>(), begins.data_ptr<int64_t>() + begins.numel());
  if (!include_last_offset) ends.push_back(count);
  GRADUS_CHECK(!ends.empty(), ShapeError, "embedding_bag: offsets that include the last one cannot be empty");
  GRADUS_CHECK(ends.size() == 1 || ends[0] == 0, IndexError, "embedding_bag: the first bag begins at 0, not at ",
               ends[0]);
  for (size_t bag = 0; bag + 1 < ends.size(); ++bag)
    GRADUS_CHECK(ends[bag] <= ends[bag + 1] && ends[bag + 1] <= count, IndexError, "embedding_bag: bag ", bag, " of ",
                 count, " indices is [", ends[bag], ", ", ends[bag + 1], ")");
  return ends;
}

Tensor on_device(const std::vector<int64_t>& numbers, Device device) {
  return numbers.empty() ? empty({0}, TensorOptions(kLong).device(device)) : tensor(numbers, kLong).to(device);
}

/// The bag of each index, shape (n).
Tensor bags_of(const BagEnds& ends, int64_t count, Device device) {
  std::vector<int64_t> bags(static_cast<size_t>(count));
  for (size_t bag = 0; bag + 1 < ends.size(); ++bag)
    std::fill(bags.begin() + ends[bag], bags.begin() + ends[bag + 1], static_cast<int64_t>(bag));
  return on_device(bags, device);
}

/// The rows from which maxima are chosen; rows that are not counted are -infinity.
Tensor candidates_of(const Tensor& rows, const Tensor& counted) {
  return rows.detach().masked_fill(counted.logical_not(), -std::numeric_limits<double>::infinity());
}

/// For each bag and column, the position in rows (n, D) of the largest element: shape (bags, D). Of equal elements the
/// first is chosen. For a bag in which `counted` (n) is false everywhere, the position is unspecified. Bags whose
/// lengths have the same number of bits are padded to one length and processed together, so that memory is linear in n.
Tensor places_of_maxima(const Tensor& rows, const Tensor& counted, const BagEnds& ends) {
  const NoGradGuard no_grad;
  const Tensor candidates = candidates_of(rows, counted);
  std::map<int, std::vector<size_t>> classes;  // bags by the number of bits of their length
  for (size_t bag = 0; bag + 1 < ends.size(); ++bag)
    classes[std::bit_width(static_cast<uint64_t>(ends[bag + 1] - ends[bag]))].push_back(bag);
  const Device device = rows.device();
  const Tensor places =
      zeros({static_cast<int64_t>(ends.size()) - 1, rows.size(1)}, TensorOptions(kLong).device(device));
  for (const auto& [bits, bags] : classes) {
    if (bits == 0) continue;
    const int64_t length = (int64_t{1} << bits) - 1;  // a shorter bag repeats its last index
    std::vector<int64_t> padded, numbers(bags.begin(), bags.end());
    for (const size_t bag : bags)
      for (int64_t i = 0; i < length; ++i) padded.push_back(std::min(ends[bag] + i, ends[bag + 1] - 1));
    const Tensor from = on_device(padded, device).reshape({-1, length, 1});  // (bags, length, 1)
    const Tensor values = candidates.index_select(0, from.reshape({-1})).reshape({from.size(0), length, rows.size(1)});
    const Tensor best = values.argmax(1, true);  // (bags, 1, D)
    index_copy_(places, 0, on_device(numbers, device), from.expand(values.sizes()).gather(1, best).squeeze(1));
  }
  return places;
}

}  // namespace

// Looks up the rows of all indices once, then adds the rows of each bag or chooses the largest. If the indices are a
// matrix, bags are an axis, and no data have to be copied from the host.
Tensor functional::embedding_bag(const Tensor& indices, const Tensor& weight, const EmbeddingBagFuncOptions& options) {
  GRADUS_CHECK(indices.dim() == 1 || (indices.dim() == 2 && !options.offsets().defined()), ShapeError,
               "embedding_bag takes indices (bags, length), or (n) with offsets, got shape ", indices.sizes());
  const Tensor& factors = options.per_sample_weights();
  GRADUS_CHECK(!factors.defined() || (options.mode() == kSum && factors.sizes() == indices.sizes()), ValueError,
               "per_sample_weights go with mode kSum and have the shape of the indices");
  const bool is_max = options.mode() == EmbeddingBagMode::max;
  GRADUS_CHECK(!is_max || !options.scale_grad_by_freq(), ValueError,
               "mode kMax cannot be combined with scale_grad_by_freq: a row gets gradients only from bags in which it "
               "is largest");
  const bool is_matrix = indices.dim() == 2;
  BagEnds ends;
  if (!is_matrix) ends = ends_of(options.offsets(), indices.size(0), options.include_last_offset());
  const int64_t count = ends.size() < 2 ? 0 : ends.back();
  const auto kept = [&](const Tensor& x) { return is_matrix ? x : x.narrow(0, 0, count); };
  const Tensor used = kept(indices);  // (bags, length) or (n)
  const int64_t padding = nn::detail::padding_row(options.padding_idx(), weight.size(0));
  if (options.max_norm()) embedding_renorm_(weight, used, *options.max_norm(), options.norm_type());
  // (bags, length, D) or (n, D)
  Tensor rows = embedding(weight, used, padding, options.scale_grad_by_freq(), options.sparse());
  const Tensor counted = (used != padding).unsqueeze(-1);  // if padding is -1, all are counted
  const Tensor bag = is_matrix ? Tensor() : bags_of(ends, count, indices.device());
  const DType type = weight.dtype() == kDouble ? kDouble : kFloat;
  // (bags, …) sums of `parts` (bags, length, …) or (n, …), in float32 for half types.
  const auto sums = [&](const Tensor& parts) {
    if (is_matrix) return parts.to(type).sum(1);
    const Tensor none = zeros({static_cast<int64_t>(ends.size()) - 1, parts.size(1)}, parts.options().dtype(type));
    return none.index_add(0, bag, parts.to(type));
  };
  if (is_max) {
    if (used.numel() == 0) return sums(rows).to(weight.dtype());
    const Tensor empty = sums(counted) == 0;  // (bags, 1)
    const Tensor largest = is_matrix ? rows.gather(1, candidates_of(rows, counted).argmax(1, true)).squeeze(1)
                                     : rows.gather(0, places_of_maxima(rows, counted, ends));
    return largest.masked_fill(empty, 0.0);
  }
  if (padding >= 0) rows = rows.masked_fill(counted.logical_not(), 0.0);
  if (factors.defined()) rows = rows.to(type) * kept(factors).to(type).unsqueeze(-1);
  Tensor result = sums(rows);
  if (options.mode() == kMean) result = result / sums(counted).clamp_min(1);
  return result.to(weight.dtype());
}

void EmbeddingBagImpl::reset() {
  const int64_t rows = options.num_embeddings(), columns = options.embedding_dim();
  GRADUS_CHECK(rows > 0 && columns > 0, ValueError, "EmbeddingBag of ", rows, " rows with ", columns, " columns");
  if (options.padding_idx()) options.padding_idx(detail::padding_row(options.padding_idx(), rows));
  const Tensor given = std::exchange(options._weight(), Tensor());  // used only once
  GRADUS_CHECK(!given.defined() || given.sizes() == Shape({rows, columns}), ShapeError,
               "the weight of an EmbeddingBag of ", rows, " rows with ", columns, " columns has shape ", given.sizes());
  weight = register_parameter("weight", given.defined() ? given : empty({rows, columns}));
  if (!given.defined()) reset_parameters();
}

void EmbeddingBagImpl::reset_parameters() {
  init::normal_(weight);
  if (options.padding_idx()) init::zeros_(weight.detach()[*options.padding_idx()]);
}

Tensor EmbeddingBagImpl::forward(const Tensor& indices, const Tensor& offsets, const Tensor& per_sample_weights) {
  const auto frame = enter();
  return functional::embedding_bag(indices, weight,
                                   functional::EmbeddingBagFuncOptions()
                                       .offsets(offsets)
                                       .max_norm(options.max_norm())
                                       .norm_type(options.norm_type())
                                       .scale_grad_by_freq(options.scale_grad_by_freq())
                                       .mode(options.mode())
                                       .sparse(options.sparse())
                                       .per_sample_weights(per_sample_weights)
                                       .include_last_offset(options.include_last_offset())
                                       .padding_idx(options.padding_idx()));
}

void EmbeddingBagImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter printer(stream, "EmbeddingBag");
  printer("num_embeddings", options.num_embeddings())("embedding_dim", options.embedding_dim());
  if (options.max_norm()) printer("max_norm", *options.max_norm());
  printer("norm_type", options.norm_type(), options.norm_type() != 2);
  printer("scale_grad_by_freq", true, options.scale_grad_by_freq())("sparse", true, options.sparse());
  printer("mode", options.mode() == kSum ? "kSum" : "kMax", !(options.mode() == kMean));
  if (options.padding_idx()) printer("padding_idx", *options.padding_idx());
}

EmbeddingBag EmbeddingBag::from_pretrained(const Tensor& embeddings, bool freeze, EmbeddingBagMode mode) {
  GRADUS_CHECK(embeddings.dim() == 2, ShapeError, "embeddings need two dimensions, got shape ", embeddings.sizes());
  EmbeddingBag made(EmbeddingBagOptions(embeddings.size(0), embeddings.size(1))._weight(embeddings).mode(mode));
  made->weight.set_requires_grad(!freeze);
  return made;
}

// ---- Adaptive maxima ----

std::tuple<Tensor, Tensor> functional::adaptive_max_pool2d_with_indices(const Tensor& x,
                                                                        const AdaptiveMaxPool2dOptions& options) {
  GRADUS_CHECK((x.dim() == 3 || x.dim() == 4) && x.numel() > 0, ShapeError,
               "adaptive_max_pool2d_with_indices takes images (N, C, H, W) or (C, H, W), got shape ", x.sizes());
  const int64_t height = x.size(-2), width = x.size(-1);
  const int64_t h = options.output_size().h.value_or(height), w = options.output_size().w.value_or(width);
  GRADUS_CHECK(h > 0 && w > 0, ValueError, "output_size must be positive, got (", h, ", ", w, ")");
  const auto begin_of = [](int64_t part, int64_t parts, int64_t size) { return part * size / parts; };
  const auto end_of = [](int64_t part, int64_t parts, int64_t size) { return ((part + 1) * size + parts - 1) / parts; };
  TensorList maxima, indices;
  for (int64_t i = 0; i < h; ++i) {
    const int64_t top = begin_of(i, h, height), rows = end_of(i, h, height) - top;
    for (int64_t j = 0; j < w; ++j) {
      const int64_t left = begin_of(j, w, width), columns = end_of(j, w, width) - left;
      const auto [maximum, place] = x.narrow(-2, top, rows).narrow(-1, left, columns).flatten(-2).max(-1);
      maxima.push_back(maximum);
      indices.push_back((place.div(columns, "floor") + top) * width + place.remainder(columns) + left);
    }
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[sizes.size() - 2] = h, sizes.back() = w;
  return {stack(maxima, -1).reshape(sizes), stack(indices, -1).reshape(sizes)};
}

std::tuple<Tensor, Tensor> functional::adaptive_max_pool1d_with_indices(const Tensor& x,
                                                                        const AdaptiveMaxPool1dOptions& options) {
  const auto [maxima, indices] =
      adaptive_max_pool2d_with_indices(x.unsqueeze(-2), OutputSize(1, options.output_size()));
  return {maxima.squeeze(-2), indices.squeeze(-2)};
}

std::tuple<Tensor, Tensor> AdaptiveMaxPool1dImpl::forward_with_indices(const Tensor& x) {
  const auto frame = enter();
  return functional::adaptive_max_pool1d_with_indices(x, options);
}

std::tuple<Tensor, Tensor> AdaptiveMaxPool2dImpl::forward_with_indices(const Tensor& x) {
  const auto frame = enter();
  return functional::adaptive_max_pool2d_with_indices(x, options);
}

// ---- pad_sequence ----

Tensor utils::rnn::pad_sequence(const std::vector<Tensor>& sequences, bool batch_first, double padding_value) {
  GRADUS_CHECK(!sequences.empty(), ValueError, "pad_sequence got no sequences");
  int64_t longest = 0;
  for (const Tensor& sequence : sequences) longest = std::max(longest, sequence.size(0));
  TensorList padded;
  for (const Tensor& sequence : sequences) {
    std::vector<int64_t> padding(static_cast<size_t>(2 * sequence.dim()), 0);
    padding.back() = longest - sequence.size(0);  // at the end of the first dimension
    padded.push_back(pad(sequence, padding, kConstant, padding_value));
  }
  return stack(padded, batch_first ? 0 : 1);
}

}  // namespace gradus::nn
