// The parameters of a net, or of a part of it, in one block of memory (the line). Every rank owns an equal part of the
// line, its shard, which is what an optimizer updates on this rank (Rajbhandari et al., "ZeRO: memory optimizations
// toward training trillion parameter models", 2020).
//
//   whole   | weight | bias |   weight 2    | bias 2 | 0 0 |
//   owner   |   rank 0    |   rank 1    |     rank 2       |
//
// The whole line exists between gather() and release(), and the parameters are views of it.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/distributed/sharding/sharded_module.h>

namespace gradus::dist {

struct FlatParameterOptions {
  bool keep_whole = false;                    ///< release() does nothing, so the whole line stays
  std::optional<DType> dtype = std::nullopt;  ///< dtype of the line and of gradients; the shard keeps the parameters'
  std::optional<Device> home = std::nullopt;  ///< device of the shard; default: that of the parameters
  bool strict = false;                        ///< CollectiveOptions::strict
};

class FlatParameter : NoCopy {
 public:
  /// The place of a parameter in the line.
  struct Place {
    int64_t begin;
    Shape shape;
    Strides strides;
  };

  /// All ranks must call this with the same parameters and values. Throws a ValueError unless all parameters have one
  /// dtype and device. The constructor ends with a release(): without keep_whole the parameters are NaN until gather().
  FlatParameter(const OrderedDict<std::string, Tensor>& parameters, GroupPtr group, FlatParameterOptions options = {});
  /// Gives each parameter separate memory again. It contains the last values on this rank, or NaN if the parameters are
  /// released.
  ~FlatParameter();

  const GroupPtr& group() const { return group_; }
  const std::vector<std::string>& names() const { return names_; }
  const TensorList& parameters() const { return parameters_; }
  const std::vector<Place>& places() const { return places_; }
  /// Number of elements of a shard.
  int64_t shard_numel() const { return shard_.numel(); }
  /// This rank's shard, a leaf of one dimension.
  const Tensor& shard() const { return shard_; }

  // ---- Collectives: all ranks call these in the same order. ----
  /// Give the parameters the values of all shards, unless they have them already. begin_gather() does not wait.
  void begin_gather();
  void gather();
  /// Frees the memory of the parameters. Until gather() they are NaN and take no memory.
  void release();

  /// Throws a ValueError that names a parameter whose data was moved or replaced from outside: gather() would lose it.
  void check_places() const;

  /// Makes a line for gradients, to which backward adds the gradients of the parameters from now on. At first it
  /// contains the gradients that exist already, and zeros elsewhere.
  void bind_gradients();
  bool has_bound_gradients() const { return gradients_.defined(); }
  /// Average the line of gradients over the ranks and add this rank's part to the gradient of the shard. begin_reduce()
  /// does not wait; finish_reduce() waits and frees the line.
  void begin_reduce();
  void finish_reduce();

  /// How the line, and every array with its layout, is divided into shards. Used for checkpoints.
  Cut cut() const;
  /// The part of a parameter that this rank owns: the elements [first, first + count) of the parameter. They are stored
  /// in the shard from element `begin` on.
  struct OwnPart {
    size_t parameter;
    int64_t first, begin, count;
  };
  std::vector<OwnPart> own_parts() const;
  /// Returns the elements of x in the order in which the line stores the elements of parameter i, whose shape x has.
  Array in_line(size_t i, const Array& x) const;
  /// Gathers from each rank a `part` with the layout of a shard, and returns the result as arrays with the parameters'
  /// shapes.
  std::vector<Array> gather_like(const Array& part) const;
  /// The inverse of gather_like(): this rank's part, with the layout of a shard, of arrays with the parameters' shapes.
  Array part_like(const std::vector<Array>& arrays) const;

 private:
  class Keeper;
  Array view_of(const Array& line, const Place& place) const;
  Array empty_line(DType dtype) const { return Array::empty({shard_numel() * group_->size()}, dtype, device_); }
  void point_parameters();
  void point(size_t i, const Array& x);

  const GroupPtr group_;
  const FlatParameterOptions options_;
  const std::vector<std::string> names_;
  const TensorList parameters_;
  std::vector<Array> pointed_;  // for each parameter, the data that point() gave it; undefined before the first call
  std::vector<Place> places_;
  std::vector<Ref<Keeper>> keepers_;
  int64_t numel_ = 0;
  Device device_;
  DType dtype_;
  Tensor shard_;
  uint32_t gathered_version_ = 0;  // version of the shard at the last gather()
  Array whole_, gradients_, reduced_, nan_;
  ProcessGroup::WorkPtr gathering_, reducing_;
};

}  // namespace gradus::dist
