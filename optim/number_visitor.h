// How options and counters get into state dicts and back: a class shows its numbers by name, once for both directions.
#pragma once

#include <string>
#include <string_view>
#include <tuple>

#include <gradus/autograd/tensor.h>
#include <gradus/core/ordered_dict.h>

namespace gradus::optim {

/// Numbers by name, as safetensors files hold them.
using StateDict = OrderedDict<std::string, Tensor>;

/// Visits numbers by their names, and may change them.
class NumberVisitor {
 public:
  using Betas = std::tuple<double, double>;
  virtual ~NumberVisitor() = default;
  virtual void operator()(const std::string& name, double& value) = 0;
  void operator()(const std::string& name, bool& value);  ///< as 0 or 1
  void operator()(const std::string& name,
                  int64_t& value);                         ///< not negative; another number from a file is a ValueError
  void operator()(const std::string& name, Betas& value);  ///< as name.0 and name.1
};

/// Calls function(name, value) for each number.
template <class Function>
class NumberFunction final : public NumberVisitor {
 public:
  explicit NumberFunction(Function function) : function_(std::move(function)) {}
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override { function_(name, value); }

 private:
  Function function_;
};

namespace detail {
/// Takes the first name off the list that GRADUS_FIELDS makes of members ("lr_, betas_"), without its underscore.
std::string take_option_name(std::string_view& members);
}  // namespace detail

/// Shows the members of an object that GRADUS_FIELDS lists.
template <class Object>
void visit_fields(Object& object, NumberVisitor& visitor) {
  std::string_view members = Object::field_names();
  object.with_fields([&](auto&... fields) { (visitor(detail::take_option_name(members), fields), ...); });
}

/// Appends numbers to a state dict as float64 scalars.
class NumberWriter final : public NumberVisitor {
 public:
  explicit NumberWriter(StateDict& state, std::string prefix = "") : state_(state), prefix_(std::move(prefix)) {}
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override;

 private:
  StateDict& state_;
  std::string prefix_;
};

/// Finds entries of a state dict and counts them. Its errors are ValueErrors that name the entry.
class StateReader {
 public:
  explicit StateReader(const StateDict& state) : state_(state) {}
  bool contains(const std::string& key) const { return state_.contains(key); }
  const Tensor& get(const std::string& key);
  double number(const std::string& key);
  /// Call this at the end: an entry that was not read belongs to something else.
  void check_all_used(const char* owner) const;

 private:
  const StateDict& state_;
  size_t used_ = 0;
};

/// Reads numbers from a state dict. A number that it lacks is an error or, with `may_lack`, keeps its value.
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
