// The primitives that not every backend has.
#include <gradus/core/backend.h>

namespace gradus {
namespace {

[[noreturn]] void no_kernel(const Backend& backend, const char* kernel) {
  GRADUS_FAIL(DeviceError, "backend '", backend.name(), "' has no kernel '", kernel,
              "'; choose another backend, or move the tensors to the cpu");
}

}  // namespace

void Backend::scan(ScanOp, const View&, int, bool, const MutableView&) { no_kernel(*this, "scan"); }
void Backend::sort(const View&, int, bool, const MutableView&, const MutableView&) { no_kernel(*this, "sort"); }
void Backend::gather(const View&, int, const View&, const MutableView&) { no_kernel(*this, "gather"); }
void Backend::scatter(const View&, int, const View&, bool, const MutableView&) { no_kernel(*this, "scatter"); }
void Backend::nonzero(const View&, const MutableView&) { no_kernel(*this, "nonzero"); }

}  // namespace gradus
