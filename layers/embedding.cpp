#include <gradus/layers/embedding.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <utility>

#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/nn/sequence.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/layers/module/init.h>

namespace gradus::nn {

// ---- Tables ----

int64_t detail::padding_row(std::optional<int64_t> padding_idx, int64_t rows) {
  if (!padding_idx) return -1;
  const int64_t index = *padding_idx;
  GRADUS_CHECK(index >= -rows && index < rows, IndexError, "padding_idx ", index, " of an Embedding of ", rows,
               " rows");
  return index < 0 ? rows + index : index;
}

template <class Derived, class Options>
void detail::TableLayer<Derived, Options>::reset() {
  Options& options = this->options;
  const char* const name = std::is_same_v<Derived, EmbeddingImpl> ? "Embedding" : "EmbeddingBag";
  const int64_t rows = options.num_embeddings(), columns = options.embedding_dim();
  GRADUS_CHECK(rows > 0 && columns > 0, ValueError, name, " of ", rows, " rows with ", columns, " columns");
  if (options.padding_idx()) options.padding_idx(padding_row(options.padding_idx(), rows));
  const Tensor given = std::exchange(options._weight(), Tensor());  // cleared, so that a later reset() draws new values
  GRADUS_CHECK(!given.defined() || given.sizes() == Shape({rows, columns}), ShapeError, "the weight of an ", name,
               " of ", rows, " rows with ", columns, " columns has shape ", given.sizes());
  weight = this->register_parameter("weight", given.defined() ? given : empty({rows, columns}));
  if (!given.defined()) reset_parameters();
}

template <class Derived, class Options>
void detail::TableLayer<Derived, Options>::reset_parameters() {
  init::normal_(weight);
  if (this->options.padding_idx()) init::zeros_(weight.detach()[*this->options.padding_idx()]);
}

template struct detail::TableLayer<EmbeddingImpl, EmbeddingOptions>;
template struct detail::TableLayer<EmbeddingBagImpl, EmbeddingBagOptions>;

// ---- Embedding ----

Tensor functional::embedding(const Tensor& indices, const Tensor& weight, const EmbeddingFuncOptions& options,
                             Loc where) {
  const OpContext context("embedding", where);
  const int64_t padding = nn::detail::padding_row(options.padding_idx(), weight.size(0));
  if (options.max_norm()) embedding_renorm_(weight, indices, *options.max_norm(), options.norm_type(), where);
  return gradus::embedding(weight, indices, padding, options.scale_grad_by_freq(), options.sparse(), where);
}

Tensor EmbeddingImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return functional::embedding(x, weight, functional::EmbeddingFuncOptions().lookup(options), Loc{});
}

void EmbeddingOptions::print(detail::LayerPrinter& printer) const {
  printer("num_embeddings", num_embeddings())("embedding_dim", embedding_dim());
  printer("padding_idx", padding_idx())("max_norm", max_norm());
  printer("norm_type", norm_type(), norm_type() != 2);
  printer("scale_grad_by_freq", true, scale_grad_by_freq())("sparse", true, sparse());
}

Embedding Embedding::from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& options) {
  GRADUS_CHECK(embeddings.dim() == 2, ShapeError, "embeddings need two dimensions, got shape ", embeddings.sizes());
  Embedding made(EmbeddingOptions(embeddings.size(0), embeddings.size(1))._weight(embeddings).lookup(options));
  made->weight.set_requires_grad(!options.freeze());
  return made;
}

// ---- EmbeddingBag ----

EmbeddingBagMode::EmbeddingBagMode(Reduction reduction) : kind(reduction == kSum ? sum : mean) {
  GRADUS_CHECK(reduction != kNone, ValueError, "the mode of an EmbeddingBag is kSum, kMean or kMax");
}

namespace {

/// Bag i contains the indices at the positions [ends[i], ends[i + 1]).
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

/// Returns a tensor of shape (n) with the number of the bag to which each index belongs.
Tensor bags_of(const BagEnds& ends, int64_t count, Device device) {
  std::vector<int64_t> bags(static_cast<size_t>(count));
  for (size_t bag = 0; bag + 1 < ends.size(); ++bag)
    std::fill(bags.begin() + ends[bag], bags.begin() + ends[bag + 1], static_cast<int64_t>(bag));
  return on_device(bags, device);
}

/// Returns `rows` with -infinity in place of the rows that are not counted, so that no maximum is chosen from these.
Tensor candidates_of(const Tensor& rows, const Tensor& counted) {
  return rows.detach().masked_fill(counted.logical_not(), -std::numeric_limits<double>::infinity());
}

/// Returns a tensor (bags, D) with the position in `rows` (n, D) of the largest element for each bag and column. Of
/// equal elements the first is chosen. For a bag in which `counted` (n) is false everywhere, the position is
/// unspecified. Bags whose lengths have the same number of bits are padded to one length and processed together, so
/// that memory is linear in n.
Tensor places_of_maxima(const Tensor& rows, const Tensor& counted, const BagEnds& ends) {
  const NoGradGuard no_grad;
  const Tensor candidates = candidates_of(rows, counted);
  std::map<int, std::vector<size_t>> classes;  // bags by the number of bits of their length
  for (size_t bag = 0; bag + 1 < ends.size(); ++bag)
    classes[std::bit_width(static_cast<uint64_t>(ends[bag + 1] - ends[bag]))].push_back(bag);
  const Device device = rows.device();
  const Tensor places = zeros({std::ssize(ends) - 1, rows.size(1)}, TensorOptions(kLong).device(device));
  for (const auto& [bits, bags] : classes) {
    if (bits == 0) continue;
    const int64_t length = (int64_t{1} << bits) - 1;  // shorter bags are padded with their last index
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
// matrix, each of its rows is a bag, and the host has to copy nothing to the device.
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
  const BagEnds ends =
      is_matrix ? BagEnds() : ends_of(options.offsets(), indices.size(0), options.include_last_offset());
  const int64_t count = ends.size() < 2 ? 0 : ends.back();
  const auto kept = [&](const Tensor& x) { return is_matrix ? x : x.narrow(0, 0, count); };
  const Tensor used = kept(indices);  // (bags, length) or (n)
  const int64_t padding = nn::detail::padding_row(options.padding_idx(), weight.size(0));
  if (options.max_norm()) embedding_renorm_(weight, used, *options.max_norm(), options.norm_type());
  // (bags, length, D) or (n, D)
  Tensor rows = embedding(weight, used, padding, options.scale_grad_by_freq(), options.sparse());
  const Tensor counted = (used != padding).unsqueeze(-1);  // true for the indices that are not padding_idx
  const Tensor bag = is_matrix ? Tensor() : bags_of(ends, count, indices.device());
  const DType type = weight.dtype() == kDouble ? kDouble : kFloat;
  // Returns the sums (bags, …) of `parts` (bags, length, …) or (n, …) over each bag. Half types are summed in float32.
  const auto sums = [&](const Tensor& parts) {
    if (is_matrix) return parts.to(type).sum(1);
    const Tensor none = zeros({std::ssize(ends) - 1, parts.size(1)}, parts.options().dtype(type));
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

Tensor EmbeddingBagImpl::forward(const Tensor& indices, const Tensor& offsets, const Tensor& per_sample_weights) {
  const auto frame = enter();
  return functional::embedding_bag(indices, weight,
                                   functional::EmbeddingBagFuncOptions()
                                       .lookup(options)
                                       .offsets(offsets)
                                       .mode(options.mode())
                                       .per_sample_weights(per_sample_weights)
                                       .include_last_offset(options.include_last_offset()));
}

void EmbeddingBagOptions::print(detail::LayerPrinter& printer) const {
  printer("num_embeddings", num_embeddings())("embedding_dim", embedding_dim())("max_norm", max_norm());
  printer("norm_type", norm_type(), norm_type() != 2);
  printer("scale_grad_by_freq", true, scale_grad_by_freq())("sparse", true, sparse());
  printer("mode", mode_ == kSum ? "kSum" : "kMax", !(mode_ == kMean));
  printer("padding_idx", padding_idx());
}

EmbeddingBag EmbeddingBag::from_pretrained(const Tensor& embeddings, bool freeze, EmbeddingBagMode mode) {
  GRADUS_CHECK(embeddings.dim() == 2, ShapeError, "embeddings need two dimensions, got shape ", embeddings.sizes());
  EmbeddingBag made(EmbeddingBagOptions(embeddings.size(0), embeddings.size(1))._weight(embeddings).mode(mode));
  made->weight.set_requires_grad(!freeze);
  return made;
}

}  // namespace gradus::nn
