// The main function of every test executable, compiled once. Version 3 of Catch2 brings its own.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#endif
#include <gradus/core/cudnn.h>
#include <gradus/tests/catch.h>

// Backends are compared in full precision, and cuDNN runs all that it can; what it does otherwise has tests of its own.
[[maybe_unused]] static const bool switched =
    (gradus::cudnn::set_allow_tf32(false), gradus::cudnn::set_small_convolutions(true), true);

std::string gradus::test::source_path(const std::string& name) { return std::string(GRADUS_SOURCE_DIR "/") + name; }

// Sanitizers ask for their options here: a failed allocation is for the allocator under test to report.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
