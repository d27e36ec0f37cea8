// Converts operands to the type and layout of a kernel.
#pragma once

#include <type_traits>

#include <gradus/core/array/array.h>
#include <gradus/core/backend.h>

namespace gradus::openmp_detail {

/// An operand that a kernel reads (View) or writes (MutableView): the given view or, if `copies` is true, a copy in
/// `dtype` and `format`. finish() copies a result from the copy to the given view.
template <class AnyView>
class Operand {
 public:
  Operand(Backend& backend, const AnyView& given, bool copies, DType dtype, MemoryFormat format)
      : backend_(backend), given_(given) {
    if (!copies) return;
    copy_ = Array::empty(given.shape, dtype, {}, format);
    if constexpr (std::is_same_v<AnyView, View>) backend.copy(given, copy_);
  }
  AnyView view() const { return copy_.defined() ? AnyView(copy_) : given_; }
  void finish() const {
    if (copy_.defined()) backend_.copy(copy_, given_);
  }

 private:
  Backend& backend_;
  const AnyView given_;
  Array copy_;
};
using Input = Operand<View>;
using Output = Operand<MutableView>;

}  // namespace gradus::openmp_detail
