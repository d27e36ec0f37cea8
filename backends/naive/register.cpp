// Registers the backend "naive" in programs that link this room (core/registry.h).
#include <gradus/backends/naive/naive.h>
#include <gradus/core/registry.h>

extern "C" const bool gradus_naive_is_registered = gradus::detail::add_builtin_backend(
    gradus::BuiltinBackend::naive, [] { gradus::register_backend(std::make_unique<gradus::NaiveBackend>()); });
