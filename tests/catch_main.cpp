// The main function of every test executable, compiled once. Version 3 of Catch2 brings its own.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#endif
#include <gradus/tests/catch.h>

std::string gradus::test::source_path(const std::string& name) { return std::string(GRADUS_SOURCE_DIR "/") + name; }
