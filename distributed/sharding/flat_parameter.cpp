#include <gradus/distributed/sharding/flat_parameter.h>

#include <algorithm>
#include <limits>

#include <gradus/autograd/node.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>
#include <gradus/distributed/parallel/reducer.h>

namespace gradus::dist {
namespace {

/// Alignment, in bytes, of parameters and shards in their common block of memory (the "line" of flat_parameter.h), for
/// vector instructions and cache lines.
constexpr int64_t kAlignment = 64;

}  // namespace

/// Backward may need a parameter that was released after forward. Instead of its values, autograd saves a Keeper, which
/// gathers the parameter again.
class FlatParameter::Keeper final : public SavedKeeper {
 public:
  Keeper(FlatParameter* flat, const Tensor& parameter) : flat_(flat), parameter_(parameter) {}
  void leave() {
    flat_ = nullptr;
    parameter_ = Tensor();
  }
  /// Returns the version of the shard that forward used, by which give() finds out whether the parameter has changed.
  std::optional<size_t> take(const Array&, const Tensor&) override {
    return flat_ == nullptr ? std::nullopt : std::optional<size_t>(flat_->gathered_version_);
  }
  Kept give(size_t version) override {
    GRADUS_CHECK(flat_, AutogradError, "backward needs a parameter of a sharded net that no longer exists");
    flat_->gather();
    GRADUS_CHECK(version == flat_->gathered_version_, AutogradError,
                 "a sharded parameter that forward used was changed afterwards, perhaps by an optimizer step: call "
                 "backward() before that");
    return {parameter_.array(), parameter_};
  }
  void drop(size_t) override {}

 private:
  FlatParameter* flat_;
  Tensor parameter_;
};

FlatParameter::FlatParameter(const OrderedDict<std::string, Tensor>& parameters, GroupPtr group,
                             FlatParameterOptions options)
    : group_(std::move(group)), options_(std::move(options)), names_(parameters.keys()),
      parameters_(parameters.values()), pointed_(parameters_.size()) {
  const OpContext context("FlatParameter");
  GRADUS_CHECK(!parameters_.empty(), ValueError, "there are no parameters");
  const Array& first = parameters_[0].array();
  device_ = first.device();
  dtype_ = options_.dtype.value_or(first.dtype());
  const int64_t unit = kAlignment / static_cast<int64_t>(std::min(size_of(dtype_), size_of(first.dtype())));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Array& x = parameters_[i].array();
    GRADUS_CHECK(x.dtype() == first.dtype() && x.device() == device_, ValueError, "'", names_[0], "' is of ",
                 first.dtype(), " on ", device_, ", '", names_[i], "' of ", x.dtype(), " on ", x.device(),
                 ": they cannot share a line of memory");
    places_.push_back({round_up(numel_, unit), x.shape(), x.is_dense() ? x.strides() : contiguous_strides(x.shape())});
    numel_ = places_.back().begin + x.numel();
  }
  const int64_t count = round_up(ceil_div(numel_, group_->size()), unit);
  const Array line = ops::zeros({count * group_->size()}, first.dtype(), device_);
  for (size_t i = 0; i < parameters_.size(); ++i) ops::copy_into(view_of(line, places_[i]), parameters_[i].array());

  const Device home = options_.home.value_or(device_);
  if (options_.keep_whole) whole_ = ops::cast(line, dtype_);
  // If the whole line stays, and has the dtype and device that the shard must have, the shard is a view of it.
  const bool is_part = options_.keep_whole && dtype_ == first.dtype() && home == device_;
  const Array part = line.slice(0, group_->rank() * count, (group_->rank() + 1) * count);
  shard_ = Tensor(is_part ? slice_like(whole_, group_->rank() * count, part) : ops::clone(ops::to_device(part, home)));
  shard_.set_requires_grad(true);
  gathered_version_ = shard_.array().version();
  for (const Tensor& parameter : parameters_) {
    keepers_.push_back(make_ref<Keeper>(this, parameter));
    parameter.impl()->need_meta().keeper = Ref<SavedKeeper>(keepers_.back().get());
  }
  nan_ = ops::full({}, std::numeric_limits<double>::quiet_NaN(), dtype_, device_);
  if (options_.keep_whole) point_parameters();
  else release();
}

FlatParameter::~FlatParameter() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    keepers_[i]->leave();
    parameters_[i].impl()->meta->keeper = nullptr;
    parameters_[i].set_data(Tensor(ops::clone(parameters_[i].array())));
  }
}

Array FlatParameter::view_of(const Array& line, const Place& place) const {
  const size_t element = size_of(line.dtype());
  const auto bytes = static_cast<size_t>(numel_of(place.shape)) * element;
  return Array(line.storage().slice(static_cast<size_t>(place.begin) * element, bytes), 0, place.shape, place.strides,
               line.dtype());
}

void FlatParameter::point_parameters() {
  check_places();
  for (size_t i = 0; i < parameters_.size(); ++i) point(i, view_of(whole_, places_[i]));
}

void FlatParameter::point(size_t i, const Array& x) {
  parameters_[i].set_data(Tensor(x));
  pointed_[i] = x;
}

void FlatParameter::check_places() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Array &x = parameters_[i].array(), &placed = pointed_[i];
    GRADUS_CHECK(!placed.defined() || (x.data() == placed.data() && x.dtype() == placed.dtype()), ValueError,
                 "the numbers of the parameter '", names_[i],
                 "' were moved or replaced after the net was sharded, now ", x.dtype(), " on ", x.device(),
                 ": shard it after that");
  }
}

void FlatParameter::begin_gather() {
  if (gathering_ || (whole_.defined() && gathered_version_ == shard_.array().version())) return;
  if (!whole_.defined()) whole_ = empty_line(dtype_);
  const Array part = whole_.slice(0, group_->rank() * shard_numel(), (group_->rank() + 1) * shard_numel());
  if (part.data() != shard_.array().data()) ops::copy_into(part, ops::to_device(shard_.array(), device_));
  gathering_ = group_->all_gather(part, whole_, {.async = true});
}

void FlatParameter::gather() {
  begin_gather();
  if (!gathering_) return;
  std::exchange(gathering_, nullptr)->wait();
  gathered_version_ = shard_.array().version();
  point_parameters();
}

void FlatParameter::release() {
  if (options_.keep_whole) return;
  if (gathering_) std::exchange(gathering_, nullptr)->wait();
  check_places();
  whole_ = Array();
  for (size_t i = 0; i < parameters_.size(); ++i) point(i, nan_.expand(places_[i].shape));
}

void FlatParameter::bind_gradients() {
  gradients_ = empty_line(dtype_);
  ops::fill(gradients_, 0);
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].bind_grad(view_of(gradients_, places_[i]));
}

void FlatParameter::begin_reduce() {
  reduced_ = Array::empty({shard_numel()}, dtype_, device_);
  reducing_ = group_->reduce_scatter(gradients_, reduced_, ReduceKind::avg, {.async = true, .strict = options_.strict});
}

void FlatParameter::finish_reduce() {
  if (!reducing_) return;
  std::exchange(reducing_, nullptr)->wait();
  gradients_ = Array();
  for (const Tensor& parameter : parameters_) {
    parameter.mutable_grad() = Tensor();
    parameter.set_data(parameter.data());  // undoes bind_grad(), whose line has been freed
  }
  const Array part = ops::cast(ops::to_device(std::exchange(reduced_, Array()), shard_.device()), shard_.dtype());
  Tensor& gradient = shard_.mutable_grad();
  if (!gradient.defined()) gradient = Tensor(part);
  else ops::binary(BinaryOp::add, gradient.array(), part, &gradient.array());
}

Cut FlatParameter::cut() const {
  detail::Message layout;
  for (size_t i = 0; i < names_.size(); ++i)
    layout << (i == 0 ? "'" : ", '") << names_[i] << "' of shape " << places_[i].shape << " and strides "
           << places_[i].strides << " at " << places_[i].begin;
  return {.size = numel_, .length = shard_numel(), .layout = std::move(layout).take()};
}

std::vector<FlatParameter::OwnPart> FlatParameter::own_parts() const {
  const int64_t first = group_->rank() * shard_numel();
  std::vector<OwnPart> parts;
  for (size_t i = 0; i < places_.size(); ++i) {
    const int64_t begin = std::max(first, places_[i].begin);
    const int64_t end = std::min(first + shard_numel(), places_[i].begin + numel_of(places_[i].shape));
    if (begin < end) parts.push_back({i, begin - places_[i].begin, begin - first, end - begin});
  }
  return parts;
}

Array FlatParameter::in_line(size_t i, const Array& x) const {
  if (x.strides() == places_[i].strides) return as_line(x);
  const Array ordered = Array::empty_strided(places_[i].shape, places_[i].strides, x.dtype(), x.device());
  ops::copy_into(ordered, x);
  return as_line(ordered);
}

Array FlatParameter::part_like(const std::vector<Array>& arrays) const {
  const Array part = ops::zeros({shard_numel()}, shard_.dtype(), shard_.device());
  for (const OwnPart& own : own_parts()) {
    if (!arrays[own.parameter].defined()) continue;
    const Array x = in_line(own.parameter, arrays[own.parameter]).slice(0, own.first, own.first + own.count);
    ops::copy_into(part.slice(0, own.begin, own.begin + own.count), ops::to_device(x, part.device()));
  }
  return part;
}

std::vector<Array> FlatParameter::gather_like(const Array& part) const {
  const Array line = empty_line(part.dtype());
  group_->all_gather(ops::to_device(part, device_), line);
  std::vector<Array> arrays;
  for (const Place& place : places_) arrays.push_back(view_of(line, place));
  return arrays;
}

}  // namespace gradus::dist
