#include <gradus/layers/rare_layers.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <gradus/autograd/ops/attention.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/pad.h>
#include <gradus/autograd/ops/pool.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/layers/init.h>
#include <gradus/layers/layer_printer.h>

namespace gradus::nn {

// ---- EmbeddingBag ----

EmbeddingBagMode::EmbeddingBagMode(Reduction reduction) : kind(reduction == kSum ? sum : mean) {
  GRADUS_CHECK(reduction != kNone, ValueError, "the mode of an EmbeddingBag is kSum, kMean or kMax");
}

namespace {

/// Places (bags, longest) in the flat indices; those behind a bag's end are -1.
Tensor places_of(const Tensor& offsets, int64_t count, bool include_last_offset) {
  GRADUS_CHECK(offsets.defined() && offsets.dim() == 1 && offsets.numel() > 0, ShapeError,
               "embedding_bag: indices of one dimension need offsets (bags)");
  const Tensor begins = offsets.to(kCPU, kLong).contiguous();
  std::vector<int64_t> ends(begins.data_ptr<int64_t>(), begins.data_ptr<int64_t>() + begins.numel());
  if (!include_last_offset) ends.push_back(count);
  const int64_t bags = static_cast<int64_t>(ends.size()) - 1;
  int64_t longest = 1;
  for (int64_t bag = 0; bag < bags; ++bag) {
    GRADUS_CHECK(ends[bag] >= 0 && ends[bag] <= ends[bag + 1] && ends[bag + 1] <= count, IndexError,
                 "embedding_bag: bag ", bag, " of ", count, " indices is [", ends[bag], ", ", ends[bag + 1], ")");
    longest = std::max(longest, ends[bag + 1] - ends[bag]);
  }
  const Tensor places = full({bags, longest}, -1, kLong);
  for (int64_t bag = 0; bag < bags; ++bag)
    std::iota(places.data_ptr<int64_t>() + bag * longest,
              places.data_ptr<int64_t>() + bag * longest + ends[bag + 1] - ends[bag], ends[bag]);
  return places.to(offsets.device());
}

}  // namespace

Tensor functional::embedding_bag(const Tensor& indices, const Tensor& weight, const EmbeddingBagFuncOptions& options) {
  GRADUS_CHECK(indices.dim() == 1 || (indices.dim() == 2 && !options.offsets().defined()), ShapeError,
               "embedding_bag takes indices (bags, length), or (n) with offsets, got shape ", indices.sizes());
  const Tensor& factors = options.per_sample_weights();
  GRADUS_CHECK(!factors.defined() || (options.mode() == kSum && factors.sizes() == indices.sizes()), ValueError,
               "per_sample_weights go with mode kSum and have the shape of the indices");
  Tensor bags = indices, counts = full(indices.sizes(), true, TensorOptions(kBool).device(indices.device()));
  Tensor scale = factors;
  if (indices.dim() == 1) {
    const Tensor places = places_of(options.offsets(), indices.size(0), options.include_last_offset());
    counts = places >= 0;
    const Tensor flat = places.clamp_min(0).reshape(-1);
    if (indices.numel() == 0) return zeros({places.size(0), weight.size(1)}, weight.options());
    bags = indices.index_select(0, flat).reshape(places.sizes());
    if (factors.defined()) scale = factors.index_select(0, flat).reshape(places.sizes());
  }
  const int64_t padding = nn::detail::padding_row(options.padding_idx(), weight.size(0));
  if (padding >= 0) counts = counts.logical_and(bags != padding);
  if (options.max_norm()) embedding_renorm_(weight, bags, *options.max_norm(), options.norm_type());
  const Tensor rows = embedding(weight, bags, padding, options.scale_grad_by_freq(), options.sparse());
  const Tensor counted = counts.unsqueeze(-1);  // (bags, longest, 1)
  if (options.mode() == EmbeddingBagMode::max) {
    const Tensor largest = rows.masked_fill(counted.logical_not(), -std::numeric_limits<double>::infinity()).amax(1);
    return largest.masked_fill(counts.any(1, true).logical_not(), 0.0);
  }
  Tensor factor = counted.to(weight.dtype());
  if (scale.defined()) factor = factor * scale.unsqueeze(-1);
  const Tensor sum = (rows * factor).sum(1);
  return options.mode() == kSum ? sum : sum / factor.sum(1).clamp_min(1);
}

void EmbeddingBagImpl::reset() {
  const int64_t rows = options.num_embeddings(), columns = options.embedding_dim();
  GRADUS_CHECK(rows > 0 && columns > 0, ValueError, "EmbeddingBag of ", rows, " rows with ", columns, " columns");
  if (options.padding_idx()) options.padding_idx(detail::padding_row(options.padding_idx(), rows));
  const Tensor given = std::exchange(options._weight(), Tensor());  // serves once
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
    padding.back() = longest - sequence.size(0);  // behind the first dimension
    padded.push_back(pad(sequence, padding, kConstant, padding_value));
  }
  return stack(padded, batch_first ? 0 : 1);
}

}  // namespace gradus::nn
