// The parameters of a net, or of a part of it, as one line of memory, of which every rank owns an equal part, its
// shard: what an optimizer updates on this rank (Rajbhandari et al., "ZeRO: memory optimizations toward training
// trillion parameter models", 2020).
//
//   whole   | weight | bias |   weight 2    | bias 2 | 0 0 |
//   owner   |   rank 0    |   rank 1    |     rank 2       |
//
// The whole line is there between gather() and release(), and the parameters are views of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/sharding/sharded_checkpoint.h>

namespace gradus::dist {

struct FlatParameterOptions {
  bool keep_whole = false;                    ///< release() does nothing: the line stays
  std::optional<DType> dtype = std::nullopt;  ///< of the line and of gradients; the shard keeps the parameters' own
  std::optional<Device> home = std::nullopt;  ///< where the shard lies; none: where the parameters do
  bool strict = false;                        ///< CollectiveOptions::strict
};

class FlatParameter {
 public:
  /// A parameter in the line.
  struct Place {
    int64_t begin;
    Shape shape;
    Strides strides;
  };

  /// Parameters of one dtype on one device, with the same values on all ranks, which call this alike. At the end the
  /// parameters are released. Others are a ValueError.
  FlatParameter(const OrderedDict<std::string, Tensor>& parameters, std::shared_ptr<ProcessGroup> group,
                FlatParameterOptions options = {});
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;
  /// The parameters own memory again: the last values that this rank had, NaN where they were released.
  ~FlatParameter();

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<Tensor>& parameters() const { return parameters_; }
  const std::vector<Place>& places() const { return places_; }
  /// Elements of the line without the padding at its end, and of a shard.
  int64_t numel() const { return numel_; }
  int64_t shard_numel() const { return shard_.numel(); }
  /// This rank's part, a leaf of one dimension.
  const Tensor& shard() const { return shard_; }

  // ---- Collectives: all ranks call these in the same order. ----
  /// The parameters get the values of all shards, unless they have them. begin_gather() does not wait.
  void begin_gather();
  void gather();
  /// The parameters' memory goes; until gather() they are NaN and take no memory.
  void release();

  /// A ValueError that names a parameter whose numbers somebody else has moved or replaced: gather() would lose them.
  void check_places() const;

  /// Backward adds the parameters' gradients to a line of zeros from here on; those that are there are taken along.
  void bind_gradients();
  bool has_bound_gradients() const { return gradients_.defined(); }
  /// Averages that line over the ranks and adds this rank's part to the shard's gradient. begin_reduce() does not wait,
  /// finish_reduce() drops the line.
  void begin_reduce();
  void finish_reduce();

  /// How the shards, and what is like them, divide the line, for checkpoints.
  Cut cut() const;
  /// What this rank owns of a parameter: `count` elements from its element `first` on, which are at `begin` in the
  /// shard.
  struct OwnPart {
    size_t parameter;
    int64_t first, begin, count;
  };
  std::vector<OwnPart> own_parts() const;
  /// The elements of parameter i, or of an array like it, in the order of the line.
  Array in_line(size_t i, const Array& x) const;
  /// A line like the shards' of all ranks: `part` of each, one behind the other, cut into the parameters' shapes.
  std::vector<Array> gather_like(const Array& part) const;
  /// This rank's part of such arrays.
  Array part_like(const std::vector<Array>& arrays) const;

 private:
  class Keeper;
  Array view_of(const Array& line, const Place& place) const;
  Array empty_line(DType dtype) const { return Array::empty({shard_numel() * group_->size()}, dtype, device_); }
  Array own_part(const Array& line) const;
  void point_parameters();
  void point(size_t i, const Array& x);

  const std::shared_ptr<ProcessGroup> group_;
  const FlatParameterOptions options_;
  const std::vector<std::string> names_;
  const std::vector<Tensor> parameters_;
  std::vector<Array> pointed_;  // by parameter: what its numbers were made; undefined before the first time
  std::vector<Place> places_;
  std::vector<Ref<Keeper>> keepers_;
  int64_t numel_ = 0;
  Device device_;
  DType dtype_;
  Tensor shard_;
  uint32_t gathered_version_ = 0;  // of the shard
  Array whole_, gradients_, reduced_, nan_;
  ProcessGroup::WorkPtr gathering_, reducing_;
};

}  // namespace gradus::dist
