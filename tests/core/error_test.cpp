#include <functional>
#include <stdexcept>
#include <thread>
#include <typeindex>

#include <gradus/core/array/dtype.h>
#include <gradus/core/array/shape.h>
#include <gradus/core/error.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return "nothing thrown";
}

std::string path_of(const void* module) { return *static_cast<const std::string*>(module); }

}  // namespace

TEST_CASE("a failed check throws the given type with all parts of its message") {
  CHECK_THROWS_AS([] { GRADUS_CHECK(false, IoError, "x"); }(), IoError);
  CHECK_THROWS_AS([] { GRADUS_FAIL(ValueError, "x"); }(), Error);
  CHECK_NOTHROW([] { GRADUS_CHECK(true, IoError, "x"); }());
  const std::string text = message_of([] {
    GRADUS_FAIL(ShapeError, "got ", Shape{2, 3}, " of ", DType::f16, ", ", 1.5, ' ', true, " ", uint8_t{7}, " ",
                std::string("end"));
  });
  CHECK(text == "got (2, 3) of float16, 1.5 true 7 end");
}

TEST_CASE("long parts of a message are shortened") {
  const std::string name = "weights " + std::string(100'000, 'x') + " end";
  CHECK(message_of([&] { GRADUS_FAIL(IoError, "no '", name, "'"); }) ==
        "no 'weights " + std::string(242, 'x') + "[... 100012 bytes ...]" + std::string(96, 'x') + " end'");
  CHECK(message_of([&] { GRADUS_FAIL(IoError, name.c_str()); }).size() < 400);
  CHECK(message_of([] { GRADUS_FAIL(IoError, std::string(400, 'x')); }) == std::string(400, 'x'));
  CHECK(message_of([&] {
          const OpContext context(name.c_str());
          GRADUS_FAIL(IoError, "x");
        }).size() < 400);
  // A part that is itself a Message, such as a list of names, is not shortened; only each long text in it is.
  detail::Message list;
  for (int i = 0; i < 300; ++i) list << "'name', ";
  CHECK(message_of([&] { GRADUS_FAIL(IoError, list); }).size() == 300 * 8);
  // Of a text without beginnings of characters, nothing can be shown.
  CHECK(message_of([] { GRADUS_FAIL(IoError, std::string(401, '\x80')); }) == "[... 401 bytes ...]");
  const std::string longer(500, '\x80');  // what follows a part in memory is not read
  CHECK(message_of([&] { GRADUS_FAIL(IoError, std::string_view(longer).substr(0, 401)); }) == "[... 401 bytes ...]");
  // UTF-8 characters are not split.
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "\u00e4";
  for (const char* before : {"", "x"}) {
    const std::string text = message_of([&] { GRADUS_FAIL(IoError, before + umlauts); });
    size_t bytes = 0;
    for (char c : text) bytes += (c & 0x80) != 0;
    CHECK(bytes % 2 == 0);
    CHECK_THAT(text, test::contains("\u00e4[... "));
    CHECK_THAT(text, test::contains(" ...]\u00e4"));
  }
}

TEST_CASE("a passing check evaluates no message part") {
  int evaluated = 0;
  auto part = [&] { return ++evaluated; };
  GRADUS_CHECK(true, ValueError, part());
  CHECK(evaluated == 0);
  CHECK_THROWS_AS([&] { GRADUS_CHECK(false, ValueError, part()); }(), ValueError);
  CHECK(evaluated == 1);
}

TEST_CASE("messages name the outermost op, the module path, and the user's line") {
  auto fail = [] { GRADUS_FAIL(ShapeError, "weight expects 3 channels"); };
  const int line = __LINE__ + 2;
  {
    OpContext outer("conv2d", SourceLocation::current());
    OpContext inner("matmul");
    const std::string where = " (at error_test.cpp:" + std::to_string(line) + ")";
    CHECK(message_of(fail) == "[conv2d] weight expects 3 channels" + where);
    const std::string path = "features.3";
    ModuleFrame frame(&path, path_of);
    CHECK(message_of(fail) == "[conv2d] layer 'features.3': weight expects 3 channels");
    std::thread([&] { CHECK(message_of(fail) == "weight expects 3 channels"); }).join();
  }
  CHECK(message_of(fail) == "weight expects 3 channels");
  OpContext unknown_place("matmul");
  CHECK(message_of(fail) == "[matmul] weight expects 3 channels");
}

TEST_CASE("an error that is rethrown with a prefix keeps its type, and any other exception becomes an Error") {
  const auto rethrown = [](const auto& thrown) {
    try {
      try {
        throw thrown;
      } catch (...) { rethrow_with_prefix("loading 'x': "); }
    } catch (const std::exception& error) {
      CHECK(std::string(error.what()) == std::string("loading 'x': ") + thrown.what());
      return std::type_index(typeid(error));
    }
    return std::type_index(typeid(void));
  };
  const auto keeps_type = [&](const auto& thrown) { return rethrown(thrown) == std::type_index(typeid(thrown)); };
  CHECK(keeps_type(Error("a")));
  CHECK(keeps_type(IoError("b")));
  CHECK(keeps_type(ValueError("c")));
  CHECK(keeps_type(IndexError("d")));
  CHECK(keeps_type(ShapeError("e")));
  CHECK(keeps_type(DTypeError("f")));
  CHECK(keeps_type(DeviceError("g")));
  CHECK(keeps_type(AutogradError("h")));
  CHECK(keeps_type(OutOfMemoryError("i")));
  CHECK(keeps_type(CommError("j")));
  CHECK(rethrown(std::runtime_error("k")) == std::type_index(typeid(Error)));
}
