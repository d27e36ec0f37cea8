#include <gradus/optim/number_visitor.h>

#include <algorithm>
#include <cmath>

#include <gradus/core/ops/ops.h>

namespace gradus::optim {

void NumberVisitor::operator()(const std::string& name, bool& value) {
  double number = value;
  (*this)(name, number);
  value = number != 0;
}

void NumberVisitor::operator()(const std::string& name, int64_t& value) {
  double number = static_cast<double>(value);
  (*this)(name, number);
  GRADUS_CHECK(number >= 0 && number <= 0x1p53 && number == std::floor(number), ValueError, "'", name,
               "' must be a count, is ", number);
  value = static_cast<int64_t>(number);
}

void NumberVisitor::operator()(const std::string& name, Betas& value) {
  (*this)(name + ".0", std::get<0>(value));
  (*this)(name + ".1", std::get<1>(value));
}

std::string detail::take_option_name(std::string_view& members) {
  const size_t end = std::min(members.find("_,"), members.size() - 1);
  const std::string name(members.substr(0, end));
  members.remove_prefix(std::min(end + 3, members.size()));
  return name;
}

void NumberWriter::operator()(const std::string& name, double& value) {
  state_.append(prefix_ + name, Tensor(ops::full({}, value, DType::f64)));
}

const Tensor& StateReader::get(const std::string& key) {
  const Tensor* tensor = state_.find(key);
  GRADUS_CHECK(tensor, ValueError, "the state has no '", key, "'");
  GRADUS_CHECK(tensor->defined(), ValueError, "'", key, "' is undefined");
  ++used_;
  return *tensor;
}

double StateReader::number(const std::string& key) {
  const Tensor& tensor = get(key);
  GRADUS_CHECK(tensor.numel() == 1, ValueError, "'", key, "' must be one number, has shape ", tensor.sizes());
  return ops::item(tensor.array()).to_double();
}

void StateReader::check_all_used(const char* owner) const {
  GRADUS_CHECK(used_ == state_.size(), ValueError, "the state has ", state_.size() - used_, " entries that this ",
               owner, " does not know: it comes from another one");
}

void NumberReader::operator()(const std::string& name, double& value) {
  const std::string key = prefix_ + name;
  if (!may_lack_ || reader_.contains(key)) value = reader_.number(key);
}

}  // namespace gradus::optim
