#include <gradus/layers/embedding.h>

#include <utility>

#include <gradus/autograd/ops/attention.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/layers/module/init.h>
#include <gradus/layers/module/layer_printer.h>

namespace gradus::nn {

int64_t detail::padding_row(std::optional<int64_t> padding_idx, int64_t rows) {
  if (!padding_idx) return -1;
  const int64_t index = *padding_idx;
  GRADUS_CHECK(index >= -rows && index < rows, IndexError, "padding_idx ", index, " of an Embedding of ", rows,
               " rows");
  return index < 0 ? rows + index : index;
}

void EmbeddingImpl::reset() {
  const int64_t rows = options.num_embeddings(), columns = options.embedding_dim();
  GRADUS_CHECK(rows > 0 && columns > 0, ValueError, "Embedding of ", rows, " rows with ", columns, " columns");
  if (options.padding_idx()) options.padding_idx(detail::padding_row(options.padding_idx(), rows));
  if (options._weight().defined()) {
    const Tensor given = std::exchange(options, EmbeddingOptions(options)._weight(Tensor()))._weight();  // used once
    GRADUS_CHECK(given.sizes() == Shape({rows, columns}), ShapeError, "the weight of an Embedding of ", rows,
                 " rows with ", columns, " columns has shape ", given.sizes());
    weight = register_parameter("weight", given);
    return;
  }
  weight = register_parameter("weight", empty({rows, columns}));
  reset_parameters();
}

void EmbeddingImpl::reset_parameters() {
  init::normal_(weight);
  if (options.padding_idx()) init::zeros_(weight.detach()[*options.padding_idx()]);
}

Tensor EmbeddingImpl::forward(const Tensor& x) {
  const auto frame = enter();
  if (options.max_norm()) embedding_renorm_(weight, x, *options.max_norm(), options.norm_type());
  return embedding(weight, x, options.padding_idx().value_or(-1), options.scale_grad_by_freq(), options.sparse());
}

void EmbeddingImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter printer(stream, "Embedding");
  printer("num_embeddings", options.num_embeddings())("embedding_dim", options.embedding_dim());
  if (options.padding_idx()) printer("padding_idx", *options.padding_idx());
  if (options.max_norm()) printer("max_norm", *options.max_norm());
  printer("norm_type", options.norm_type(), options.norm_type() != 2);
  printer("scale_grad_by_freq", true, options.scale_grad_by_freq())("sparse", true, options.sparse());
}

Embedding Embedding::from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& options) {
  GRADUS_CHECK(embeddings.dim() == 2, ShapeError, "embeddings need two dimensions, got shape ", embeddings.sizes());
  Embedding made(EmbeddingOptions(embeddings.size(0), embeddings.size(1))
                     ._weight(embeddings)
                     .padding_idx(options.padding_idx())
                     .max_norm(options.max_norm())
                     .norm_type(options.norm_type())
                     .scale_grad_by_freq(options.scale_grad_by_freq())
                     .sparse(options.sparse()));
  made->weight.set_requires_grad(!options.freeze());
  return made;
}

}  // namespace gradus::nn
