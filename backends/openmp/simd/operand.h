// Operands in the type and layout that a kernel takes.
#pragma once

#include <type_traits>

#include <gradus/core/array/array.h>
#include <gradus/core/backend.h>

namespace gradus::openmp_detail {

/// What a kernel reads (a View) or writes (a MutableView): the given view, or, if `copies`, a copy of it in `dtype` and
/// `format`. What was written to a copy is brought to its place by finish().
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
