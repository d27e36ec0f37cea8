// Tensors as datasets.
#pragma once

#include <gradus/data/dataset.h>

namespace gradus::data::datasets {

/// Sample i is row i of a tensor, TensorDataset(x), or of two, TensorDataset(inputs, targets). Rows are views that
/// share memory with the tensors.
template <class Target = example::NoTarget>
class TensorDataset : public Dataset<TensorDataset<Target>, Example<Tensor, Target>> {
 public:
  static constexpr bool kHasTarget = std::is_same_v<Target, Tensor>;
  static_assert(kHasTarget || std::is_void_v<Target>, "TensorDataset(x) or TensorDataset(inputs, targets)");

  /// x (N, …)
  explicit TensorDataset(Tensor x) requires(!kHasTarget) : data_(std::move(x)) { check(data_); }
  /// Takes rows as separate tensors, as in LibTorch.
  explicit TensorDataset(const std::vector<Tensor>& rows) requires(!kHasTarget) {
    std::vector<const Tensor*> pointers;
    for (const Tensor& row : rows) pointers.push_back(&row);
    data_ = transforms::detail::stack(pointers);
  }
  /// inputs (N, …) and targets (N, …)
  TensorDataset(Tensor inputs, Tensor targets) requires(kHasTarget)
      : data_(std::move(inputs)), target_(std::move(targets)) {
    check(data_), check(target_);
    GRADUS_CHECK(data_.size(0) == target_.size(0), ShapeError, "TensorDataset: ", data_.size(0), " inputs but ",
                 target_.size(0), " targets");
  }

  Example<Tensor, Target> get(size_t index) override {
    GRADUS_CHECK(index < *size(), IndexError, "sample ", index, " of a dataset of ", *size());
    if constexpr (kHasTarget) return {row(data_, index), row(target_, index)};
    else return {row(data_, index)};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(data_.size(0)); }
  std::vector<std::string> plan() const override { return {"TensorDataset, " + std::to_string(*size()) + " samples"}; }

 private:
  static void check(const Tensor& tensor) {
    GRADUS_CHECK(tensor.dim() > 0, ShapeError, "TensorDataset needs tensors of shape (N, …), got a scalar");
  }
  static Tensor row(const Tensor& tensor, size_t index) {
    return Tensor(tensor.array().select(0, static_cast<int64_t>(index)));
  }

  Tensor data_, target_;
};

TensorDataset(Tensor)->TensorDataset<example::NoTarget>;
TensorDataset(std::vector<Tensor>)->TensorDataset<example::NoTarget>;
TensorDataset(Tensor, Tensor)->TensorDataset<Tensor>;

}  // namespace gradus::data::datasets
