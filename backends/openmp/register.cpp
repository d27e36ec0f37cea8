// Registers the backend "openmp" in programs that link the target gradus_openmp (core/registry.h).
#include <gradus/backends/openmp/openmp.h>
#include <gradus/core/registry.h>

extern "C" const bool gradus_openmp_is_registered = gradus::detail::add_builtin_backend(
    gradus::BuiltinBackend::openmp, [] { gradus::register_backend(gradus::make_openmp_backend()); });
