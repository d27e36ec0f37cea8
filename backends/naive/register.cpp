// Registers the backend "naive" in every program that links the library gradus_naive (core/registry.h).
#include <gradus/backends/naive/naive.h>
#include <gradus/core/registry.h>

extern "C" const bool gradus_naive_is_registered = gradus::detail::add_builtin_backend(
    gradus::BuiltinBackend::naive, [] { gradus::register_backend(std::make_unique<gradus::NaiveBackend>()); });
