// A dataset type that hides the type of the dataset it holds.
#pragma once

#include <gradus/data/dataset.h>

namespace gradus::data::datasets {

/// Holds a dataset of any type with this batch type; copies copy the dataset. For pipelines that are chosen at run
/// time:
///
///   data::datasets::AnyDataset<> train = digits;
///   if (augment) train = train.map(data::transforms::RandomAffine(10));
template <class Batch = std::vector<Example<>>>
class AnyDataset : public BatchDataset<AnyDataset<Batch>, Batch> {
 public:
  template <class Inner>
  requires(!std::is_same_v<std::remove_cvref_t<Inner>, AnyDataset>)
      AnyDataset(Inner dataset)  // NOLINT(google-explicit-constructor)
      : held_(std::make_unique<Model<Inner>>(std::move(dataset))) {}
  AnyDataset(const AnyDataset& other) : held_(other.held_->clone()) {}
  AnyDataset(AnyDataset&&) noexcept = default;
  AnyDataset& operator=(AnyDataset other) noexcept {
    held_ = std::move(other.held_);
    return *this;
  }

  Batch get_batch(const std::vector<size_t>& indices) override { return held_->get_batch(indices); }
  /// Returns one stacked batch, in one operation if the inner dataset supports it.
  Example<> get_stacked(const std::vector<size_t>& indices) requires(std::is_same_v<Batch, std::vector<Example<>>>) {
    return held_->get_stacked(indices);
  }
  std::optional<size_t> size() const override { return held_->size(); }
  uint64_t stage() const override { return held_->stage(); }
  std::vector<std::string> plan() const override { return held_->plan(); }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual std::unique_ptr<Concept> clone() const = 0;
    virtual Batch get_batch(const std::vector<size_t>& indices) = 0;
    virtual Example<> get_stacked(const std::vector<size_t>& indices) = 0;
    virtual std::optional<size_t> size() const = 0;
    virtual uint64_t stage() const = 0;
    virtual std::vector<std::string> plan() const = 0;
  };
  template <class Inner>
  struct Model final : Concept {
    explicit Model(Inner dataset_) : dataset(std::move(dataset_)) {}
    std::unique_ptr<Concept> clone() const override { return std::make_unique<Model>(dataset); }
    Batch get_batch(const std::vector<size_t>& indices) override { return dataset.get_batch(indices); }
    Example<> get_stacked(const std::vector<size_t>& indices) override {
      if constexpr (StackedDataset<Inner>) return dataset.get_stacked(indices);
      else if constexpr (std::is_same_v<Batch, std::vector<Example<>>>) {
        transforms::Stack<> stack;
        return detail::stacked(dataset, stack, indices);
      } else return {};
    }
    std::optional<size_t> size() const override { return dataset.size(); }
    uint64_t stage() const override { return dataset.stage(); }
    std::vector<std::string> plan() const override { return dataset.plan(); }
    Inner dataset;
  };

  std::unique_ptr<Concept> held_;
};

template <class Inner>
AnyDataset(Inner) -> AnyDataset<typename Inner::BatchType>;

}  // namespace gradus::data::datasets
