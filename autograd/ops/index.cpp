// x.index({…}) and x.index_put_({…}, value), composed of views, index_select and index_copy_.
#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

// The list of indices after its integers, slices, None and Ellipsis have been applied to x, which gives `view`. The
// masks and index tensors that remain apply to the `span` dimensions of `view` that start at `axis`. If these are
// flattened to one dimension, `places` (int64, of any shape) are the selected positions in it.
struct Advanced {
  Tensor view;
  int axis = 0, span = 0;  // span == 0: no masks or index tensors, the view is the result
  Tensor places;
};

// One index tensor, or the positions at which one mask is true, for the `span` dimensions of the view that start at
// `axis`.
struct Entry {
  int axis, span;
  Tensor places, mask;
};
struct Resolved {
  Tensor view;
  std::vector<Entry> entries;
};

int64_t dimensions_of(const TensorIndex& index) {
  using Kind = TensorIndex::Kind;
  if (index.kind == Kind::integer || index.kind == Kind::slice) return 1;
  if (index.kind != Kind::tensor) return 0;
  return index.tensor.dtype() == kBool ? index.tensor.dim() : 1;
}

// Indices and masks on the CPU may index a tensor on any device.
Tensor on_device_of(const Tensor& x, const Tensor& index) {
  return index.device().is_cpu() ? index.to(x.device(), index.dtype()) : index;
}

// Makes the indexed dimensions of the view adjacent. If they are not adjacent already, they move to the front, as in
// NumPy.
void bring_together(Tensor* view, std::vector<Entry>* entries) {
  bool neighbours = true;
  for (size_t i = 1; i < entries->size(); ++i)
    neighbours &= (*entries)[i - 1].axis + (*entries)[i - 1].span == (*entries)[i].axis;
  if (neighbours) return;
  Dims order;
  uint32_t indexed = 0;
  for (Entry& entry : *entries) {
    const int first = order.size();
    for (int i = 0; i < entry.span; ++i) order.push_back(entry.axis + i), indexed |= 1u << (entry.axis + i);
    entry.axis = first;
  }
  for (int i = 0; i < view->dim(); ++i)
    if (!(indexed & (1u << i))) order.push_back(i);
  *view = view->permute(order);
}

Resolved resolve(const Tensor& x, std::vector<TensorIndex> indices) {
  using Kind = TensorIndex::Kind;
  int64_t consumed = 0, ellipses = 0;
  for (TensorIndex& index : indices) {
    GRADUS_CHECK(index.kind != Kind::tensor || index.tensor.defined(), ValueError, "an index tensor is undefined");
    if (index.kind == Kind::tensor && index.tensor.dtype() == kByte)  // uint8 tensors are masks, as in PyTorch
      index.tensor = index.tensor.to(kBool);
    consumed += dimensions_of(index);
    ellipses += index.kind == Kind::ellipsis;
  }
  GRADUS_CHECK(ellipses <= 1, IndexError, "an index can contain only one Ellipsis, got ", ellipses);
  GRADUS_CHECK(consumed <= x.dim(), IndexError, consumed, " indices for a tensor of shape ", x.sizes());

  Resolved result{x, {}};
  Tensor& view = result.view;
  int axis = 0, dimension = 0;            // the next dimension of the view, and of x
  const auto new_axis = [&](bool keep) {  // true and false insert a new dimension and take one or none of its elements
    view = view.unsqueeze(axis);
    result.entries.push_back({axis++, 1, zeros({keep ? 1 : 0}, x.options().dtype(kLong)), {}});
  };
  for (const TensorIndex& index : indices) {
    const Tensor& tensor = index.tensor;
    switch (index.kind) {
      case Kind::integer: view = view.select(axis, index.integer); break;
      case Kind::slice: view = view.slice(axis++, index.slice.start, index.slice.end, index.slice.step); break;
      case Kind::none: view = view.unsqueeze(axis++); break;
      case Kind::ellipsis:
        axis += static_cast<int>(x.dim() - consumed), dimension += static_cast<int>(x.dim() - consumed);
        break;
      case Kind::boolean: new_axis(index.integer != 0); break;
      case Kind::tensor:
        GRADUS_CHECK(tensor.dtype() == kBool || tensor.dtype() == kLong || tensor.dtype() == kInt, DTypeError,
                     "an index tensor must be int64, int32, bool or uint8 (a mask), got ", tensor.dtype(),
                     "; convert it with .to(kLong), or .to(kBool) if it is a mask");
        if (tensor.dim() == 0 && tensor.dtype() == kBool) {
          new_axis(tensor.item<bool>());
        } else if (tensor.dim() == 0) {
          view = view.select(axis, tensor.item<int64_t>());
        } else if (tensor.dtype() == kBool) {
          const int span = ndim_of(tensor);
          for (int i = 0; i < span; ++i)
            GRADUS_CHECK(tensor.sizes()[i] == x.sizes()[dimension + i], IndexError, "mask of shape ", tensor.sizes(),
                         " does not fit dimension ", dimension + i, " of the indexed shape ", x.sizes());
          result.entries.push_back({axis, span, {}, on_device_of(x, tensor)});
          axis += span;
        } else {
          const Tensor places(ops::checked_index(tensor.array(), view.size(axis), dimension));
          result.entries.push_back({axis, 1, on_device_of(x, places), {}});
          ++axis;
        }
    }
    dimension += static_cast<int>(dimensions_of(index));
  }
  return result;
}

Advanced combined(Resolved resolved) {
  bring_together(&resolved.view, &resolved.entries);
  Advanced result;
  result.view = std::move(resolved.view);
  if (!resolved.entries.empty()) result.axis = resolved.entries[0].axis;
  for (const Entry& entry : resolved.entries) {
    const Tensor places = entry.mask.defined() ? places_of(entry.mask) : entry.places;
    int64_t size = 1;
    for (int i = 0; i < entry.span; ++i) size *= result.view.size(entry.axis + i);
    // A negative index, which checked_index() leaves in a captured step, stays negative.
    result.places = result.span == 0 ? places : where(places < 0, places, result.places * size + places);
    result.span += entry.span;
  }
  return result;
}

// Flattens the indexed dimensions to one; a view if the strides allow it.
Tensor joined(const Advanced& index) {
  return index.span == 1 ? index.view : index.view.flatten(index.axis, index.axis + index.span - 1);
}

// The view's shape with the indexed dimensions replaced by `sizes`.
Shape with_sizes(const Advanced& index, const Shape& sizes) {
  Shape shape;
  for (int i = 0; i < index.axis; ++i) shape.push_back(index.view.sizes()[i]);
  for (int64_t size : sizes) shape.push_back(size);
  for (int i = index.axis + index.span; i < index.view.dim(); ++i) shape.push_back(index.view.sizes()[i]);
  return shape;
}

// Extends a mask of the dimensions [axis, axis + mask.dim()) so that it broadcasts to a tensor of `ndim` dimensions.
Tensor mask_for(const Tensor& mask, int axis, int64_t ndim) {
  Shape shape = mask.sizes();
  while (axis + shape.size() < ndim) shape.push_back(1);
  return mask.reshape(shape);
}

// Drops leading dimensions of size 1 that `shape` does not have, so that x[0] = ones(1, 1, 3) is accepted.
Tensor fitted(Tensor value, const Shape& shape) {
  while (value.dim() > shape.size() && value.size(0) == 1) value = value.select(0, 0);
  return value;
}

}  // namespace

Tensor Tensor::index(const std::vector<TensorIndex>& indices, Loc where) const {
  OpScope op("index", where);
  const Advanced index = combined(resolve(*this, indices));
  if (index.span == 0) return index.view.is_same(*this) ? expand(sizes()) : index.view;
  const Tensor parts = joined(index).index_select(index.axis, index.places.reshape({-1}));
  return index.places.dim() == 1 ? parts : parts.reshape(with_sizes(index, index.places.sizes()));
}

const Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, const Operand& value, bool accumulate) const {
  OpScope op("index_put_", value.where);
  Resolved resolved = resolve(*this, indices);
  if (resolved.entries.empty()) {
    if (accumulate) resolved.view.add_(value);
    else if (value.tensor) resolved.view.copy_(fitted(*value.tensor, resolved.view.sizes()));
    else resolved.view.fill_(value.scalar);
    return *this;
  }
  const Entry& first = resolved.entries[0];
  const bool one_value = !value.tensor || value.tensor->numel() == 1;
  if (resolved.entries.size() == 1 && first.mask.defined() && one_value && !accumulate) {
    resolved.view.masked_fill_(mask_for(first.mask, first.axis, resolved.view.dim()), value);
    return *this;
  }
  const Advanced index = combined(std::move(resolved));
  const Shape shown = with_sizes(index, index.places.sizes());
  const Tensor rows = value.tensor ? fitted(*value.tensor, shown) : full({}, value.scalar, options());
  GRADUS_CHECK(broadcast_shapes(rows.sizes(), shown) == shown, ShapeError, "a value of shape ", rows.sizes(),
               " does not broadcast to the indexed shape ", shown);
  const Tensor places = index.places.reshape({-1});
  const Tensor source = rows.expand(shown).reshape(with_sizes(index, {places.numel()}));
  const Tensor target = joined(index);
  if (accumulate) target.index_add_(index.axis, places, source);
  else index_copy_(target, index.axis, places, source);
  const bool copied = !(target.array().storage() == array().storage());
  if (copied) index.view.copy_(target.reshape(index.view.sizes()));
  return *this;
}

Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Operand& value, bool accumulate) {
  OpScope op("index_put", value.where);
  const DType type = value.tensor ? op.type_of(x, *value.tensor) : x.dtype();
  return x.to(type, false, /*copy=*/true).index_put_(indices, value, accumulate);
}

}  // namespace gradus
