#include <gradus/layers/module/any_module.h>

#include <gradus/core/platform/process.h>

namespace gradus::nn {

void AnyValue::fail_cast(const std::type_info& wanted) const {
  GRADUS_FAIL(ValueError, "a value was requested as ", platform::demangled(wanted), ", but it is ",
              platform::demangled(type_info()));
}

namespace detail {

void fail_cast(const Module& module, const std::type_info& wanted) {
  GRADUS_FAIL(ValueError, "this module is a ", module.name(), ", not a ", platform::demangled(wanted));
}

void fail_argument(size_t i, const std::type_info& wanted, const std::type_info& given) {
  GRADUS_FAIL(ValueError, "argument ", i, " of forward is ", platform::demangled(wanted), ", got ",
              platform::demangled(given), ": values in an AnyModule are not converted");
}

void fail_argument_count(const Module& module, size_t most, size_t given) {
  GRADUS_FAIL(ValueError, "forward of ", module.name(), " takes ", most,
              " arguments (fewer where parameters have defaults), ", "got ", given);
}

}  // namespace detail

Tensor AnyModule::operator()(const Tensor& x) const { return forward(x); }

AnyValue AnyModule::forward_any(std::span<AnyValue> values) const {
  GRADUS_CHECK(module_, ValueError, "cannot call forward of an empty AnyModule");
  if (any_forward_) return any_forward_(*module_, values);
  if (values.size() != 1) detail::fail_argument_count(*module_, 1, values.size());
  return AnyValue(tensor_forward_(*module_, detail::argument<const Tensor&>(values, 0)));
}

const std::shared_ptr<Module>& AnyModule::ptr() const {
  GRADUS_CHECK(module_, ValueError, "this AnyModule is empty");
  return module_;
}

const std::type_info& AnyModule::type_info() const {
  const Module& module = *ptr();
  return typeid(module);
}

}  // namespace gradus::nn
