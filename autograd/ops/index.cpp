#include <gradus/autograd/ops/index.h>

#include <gradus/autograd/op_scope.h>

namespace gradus {

Tensor Tensor::index(std::initializer_list<TensorIndex> indices, Loc where) const {
  OpScope op("index", where);
  int64_t consumed = 0, ellipses = 0;
  for (const TensorIndex& index : indices) {
    consumed += index.kind == TensorIndex::Kind::integer || index.kind == TensorIndex::Kind::slice;
    ellipses += index.kind == TensorIndex::Kind::ellipsis;
  }
  GRADUS_CHECK(ellipses <= 1, IndexError, "only one Ellipsis can stand in an index, got ", ellipses);
  GRADUS_CHECK(consumed <= dim(), IndexError, consumed, " indices for a tensor of shape ", sizes());
  Tensor result = *this;
  int64_t axis = 0;
  for (const TensorIndex& index : indices) {
    switch (index.kind) {
      case TensorIndex::Kind::integer: result = result.select(axis, index.integer, where); break;
      case TensorIndex::Kind::slice:
        result = result.slice(axis++, index.slice.start, index.slice.end, index.slice.step, where);
        break;
      case TensorIndex::Kind::none: result = result.unsqueeze(axis++, where); break;
      case TensorIndex::Kind::ellipsis: axis += dim() - consumed; break;
      default: GRADUS_FAIL(ValueError, "index tensors come next");
    }
  }
  return result.is_same(*this) ? slice(0, {}, {}, 1, where) : result;
}

const Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> indices, const Operand& value) const {
  OpScope op("index_put_", value.where);
  const Tensor window = indices.size() == 0 ? *this : index(indices, value.where);
  if (value.tensor) window.copy_(*value.tensor, false, value.where);
  else window.fill_(value.scalar, value.where);
  return *this;
}

}  // namespace gradus
