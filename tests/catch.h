// Catch2 under one name: Debian 12 ships version 2 (one header), Ubuntu 24.04 version 3 (a library). Tests include this
// file and write TEST_CASE, SECTION, REQUIRE, CHECK, GENERATE and TEMPLATE_TEST_CASE, which both have.
#pragma once

#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/catch_tostring.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

namespace gradus {
class Array;
class Tensor;
}  // namespace gradus

// What a failed CHECK prints. Catch2 lays out all that it gets, in a time that grows with the square of its length, so
// no more than the beginning of many numbers is given to it.
namespace Catch {

template <>
struct StringMaker<gradus::Tensor> {
  static std::string convert(const gradus::Tensor& x);  // catch_main.cpp
};
template <>
struct StringMaker<gradus::Array> {
  static std::string convert(const gradus::Array& x);
};

template <class T, class Allocator>
struct is_range<std::vector<T, Allocator>> : std::false_type {};  // so that the next is no second way
template <class T, class Allocator>
struct StringMaker<std::vector<T, Allocator>> {
  static std::string convert(const std::vector<T, Allocator>& x) {
    constexpr size_t kMost = 64;
    std::string text = "{ ";
    for (size_t i = 0; i < x.size() && i < kMost; ++i)
      text += (i == 0 ? "" : ", ") + ::Catch::Detail::stringify(static_cast<T>(x[i]));
    return text + (x.size() > kMost ? ", ... (" + std::to_string(x.size()) + " elements) }" : " }");
  }
};

}  // namespace Catch

namespace gradus::test {

/// Matches text that contains `part`: CHECK_THROWS_WITH(f(), contains("shape")).
inline auto contains(const std::string& part) {
#if __has_include(<catch2/catch_all.hpp>)
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}

/// Notes that the running test case is skipped for want of something that not every build and machine has, and returns
/// true:
///   if (!cuda::is_available() && skip("1 CUDA device")) return;
/// Such a case does not count as passed, and scripts/test_summary.py, which knows all wants, refuses it where there is
/// what it wants.
bool skip(const std::string& want);

/// Random numbers for operands; like manual_seed()'s they begin anew in every test case.
std::mt19937& engine();

/// The file of that name, relative to the root of the source tree: source_path("tests/golden/conv2d.npy").
std::string source_path(const std::string& name);

}  // namespace gradus::test
