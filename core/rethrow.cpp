#include <gradus/core/rethrow.h>

#include <gradus/core/error.h>

namespace gradus {
namespace {

// Rethrows `error` with `prefix` if it is a Kind.
template <class Kind>
void rethrow_if(const std::exception& error, const std::string& prefix) {
  if (dynamic_cast<const Kind*>(&error)) throw Kind(prefix + error.what());
}

}  // namespace

void rethrow_with_prefix(const std::string& prefix) {
  try {
    throw;
  } catch (const std::exception& error) {
    rethrow_if<IoError>(error, prefix);
    rethrow_if<ValueError>(error, prefix);
    rethrow_if<IndexError>(error, prefix);
    rethrow_if<ShapeError>(error, prefix);
    rethrow_if<DTypeError>(error, prefix);
    rethrow_if<DeviceError>(error, prefix);
    rethrow_if<AutogradError>(error, prefix);
    rethrow_if<OutOfMemoryError>(error, prefix);
    rethrow_if<CommError>(error, prefix);
    throw Error(prefix + error.what());
  }
}

}  // namespace gradus
