#include <thread>
#include <vector>

#include <gradus/core/array/intrusive.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

struct Counted : RefCounted {
  explicit Counted(int* alive) : alive(alive) { ++*alive; }
  virtual ~Counted() { --*alive; }
  int* alive;
};
struct Derived final : Counted {
  using Counted::Counted;
};

struct Pooled : RefCounted {
  int* destroyed;
  static void destroy(Pooled* object) {
    ++*object->destroyed;
    delete object;
  }
};

}  // namespace

TEST_CASE("the last Ref deletes the object") {
  int alive = 0;
  {
    Ref<Counted> a = make_ref<Derived>(&alive);
    Ref<Counted> b = a, c;
    CHECK(a->use_count() == 2);
    c = std::move(b);
    CHECK_FALSE(static_cast<bool>(b));
    CHECK(a == c);
    c = nullptr;
    a = *&a;
    CHECK(a->use_count() == 1);
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
}

TEST_CASE("a type may have its own destroy function") {
  int destroyed = 0;
  Ref<Pooled> object(new Pooled);
  object->destroyed = &destroyed;
  object = nullptr;
  CHECK(destroyed == 1);
}

TEST_CASE("lock does not revive an object whose count is zero") {
  int alive = 0;
  const Ref<Counted> a = make_ref<Counted>(&alive);
  CHECK(Ref<Counted>::lock(a.get()) == a);
  CHECK(a->use_count() == 1);
  Counted never_owned(&alive);
  CHECK_FALSE(static_cast<bool>(Ref<Counted>::lock(&never_owned)));
}

TEST_CASE("reference counts are correct with several threads") {
  int alive = 0;
  {
    const Ref<Counted> shared = make_ref<Counted>(&alive);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([shared] {
        for (int i = 0; i < 10000; ++i) { const Ref<Counted> copy = shared; }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(shared->use_count() == 1);
  }
  CHECK(alive == 0);
}
