// Converts options and counters to state dicts and back. A class lists its numbers by name once, for both directions.
#pragma once

#include <string>
#include <string_view>
#include <tuple>

#include <gradus/autograd/tensor.h>
#include <gradus/core/ordered_dict.h>

namespace gradus::optim {

/// Named tensors, as in safetensors files.
using StateDict = OrderedDict<std::string, Tensor>;

/// Visits named numbers and may change them.
class NumberVisitor {
 public:
  using Betas = std::tuple<double, double>;
  virtual ~NumberVisitor() = default;
  virtual void operator()(const std::string& name, double& value) = 0;
  void operator()(const std::string& name, bool& value);     ///< visited as 0 or 1
  void operator()(const std::string& name, int64_t& value);  ///< a count; anything else in a file is a ValueError
  void operator()(const std::string& name, Betas& value);    ///< visited as name.0 and name.1
};

/// Appends the numbers to a state dict as float64 scalars.
class NumberWriter final : public NumberVisitor {
 public:
  explicit NumberWriter(StateDict& state, std::string prefix = "") : state_(state), prefix_(std::move(prefix)) {}
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override;

 private:
  StateDict& state_;
  std::string prefix_;
};

/// Finds entries of a state dict and counts the entries used. Its errors are ValueErrors that name the entry.
class StateReader {
 public:
  explicit StateReader(const StateDict& state) : state_(state) {}
  bool contains(const std::string& key) const { return state_.contains(key); }
  const Tensor& get(const std::string& key);
  double number(const std::string& key);
  /// Call it at the end: throws if entries were not used, because the state then belongs to another object.
  void check_all_used(const char* owner) const;

 private:
  const StateDict& state_;
  size_t used_ = 0;
};

/// Reads the numbers from a state dict. A missing entry is an error, or with `may_lack` leaves its number unchanged.
class NumberReader final : public NumberVisitor {
 public:
  explicit NumberReader(StateReader& reader, std::string prefix = "", bool may_lack = false)
      : reader_(reader), prefix_(std::move(prefix)), may_lack_(may_lack) {}
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override;

 private:
  StateReader& reader_;
  std::string prefix_;
  bool may_lack_;
};

}  // namespace gradus::optim
