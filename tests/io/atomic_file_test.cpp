// Saving, with a fault at each of its system calls: the old file or the new one is there, whole, and nothing stays
// behind after the next save.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <gradus/tests/file_faults.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;

namespace {

std::string content(const std::string& path) {
  const io::Bytes bytes = io::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

/// Writes in several pieces, as savers of tensors do.
void save(const std::string& path, const std::string& text) {
  io::AtomicFile file(path);
  for (size_t i = 0; i < text.size(); i += 4) file.write(text.data() + i, std::min<size_t>(4, text.size() - i));
  file.commit();
}

std::vector<std::string> calls_of_a_save(const std::string& path) {
  const FileFaults faults;
  save(path, "0123456789");
  return FileFaults::calls();
}

}  // namespace

TEST_CASE("a save flushes the file, renames it, then flushes the directory", "[io]") {
  const TemporaryDirectory directory;
  CHECK(calls_of_a_save(directory.file("a")) == std::vector<std::string>{"list", "open", "lock", "write", "write",
                                                                         "write", "sync", "rename", "close", "open",
                                                                         "sync", "close"});
}

TEST_CASE("a save that fails at any system call leaves the old file or the new one", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("weights");
  const int calls = static_cast<int>(calls_of_a_save(path).size());
  const int error = GENERATE(EIO, ENOSPC, EINVAL, ENOLCK, FileFaults::kShort);
  const bool first_save = GENERATE(false, true);
  const size_t descriptors = open_descriptors();
  int failures = 0;
  for (int at = 0; at < calls; ++at) {
    INFO("call " << at << ", error " << error << (first_save ? ", the first save" : ""));
    if (first_save) std::filesystem::remove(path);
    else save(path, "the old text");
    std::string failed_call;
    bool thrown = false;
    {
      const FileFaults faults(at, error);
      try {
        save(path, "the new text");
      } catch (const IoError& failure) {
        thrown = true;
        CHECK_THAT(failure.what(), contains(directory.path().string()));
      }
      failed_call = FileFaults::calls()[static_cast<size_t>(at)];
    }
    failures += thrown;
    const bool exists = std::filesystem::exists(path);
    if (exists) CHECK((content(path) == "the new text" || (thrown && !first_save && content(path) == "the old text")));
    else CHECK((thrown && first_save));
    CHECK(directory.count() == (exists ? 1 : 0));  // a process that lives cleans up after itself
    CHECK(open_descriptors() == descriptors);
    save(path, "the next text");
    CHECK(content(path) == "the next text");
    CHECK(directory.count() == 1);
  }
  // open, three writes, the two flushes, rename and opening the directory; some directories cannot be flushed (EINVAL).
  CHECK(failures == (error == FileFaults::kShort ? 0 : error == EINVAL ? 7 : 8));
}

TEST_CASE("a process that dies at any system call of a save leaves the old file or the new one", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("weights");
  const std::vector<std::string> calls = calls_of_a_save(path);
  size_t left_over = 0;
  for (size_t at = 0; at < calls.size(); ++at) {
    INFO("before call " << at << ", " << calls[at]);
    save(path, "the old text");
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const FileFaults faults(static_cast<int>(at), FileFaults::kDie);
      save(path, "the new text");
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == FileFaults::kExitCode);
    const bool renamed = at > 7;
    CHECK(content(path) == (renamed ? "the new text" : "the old text"));
    left_over += directory.count() - 1;
    save(path, "the next text");
    CHECK(content(path) == "the next text");
    CHECK(directory.count() == 1);
  }
  CHECK(left_over == 6);  // from open, which came second, to rename
}

TEST_CASE("interrupted system calls begin anew", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  for (int at = 0; at < 12; ++at) {
    const FileFaults faults(at, EINTR);
    save(path, "text " + std::to_string(at));
    CHECK(content(path) == "text " + std::to_string(at));
  }
  CHECK(directory.count() == 1);
}

TEST_CASE("a save removes leftovers of its own name alone, and of the dead alone", "[io]") {
  const TemporaryDirectory directory;
  const auto touch = [&](const std::string& name) {
    close(open(directory.file(name).c_str(), O_CREAT | O_WRONLY, 0600));
  };
  for (const char* name : {"w.12-0.tmp", "w.999999-31.tmp"}) touch(name);
  for (const char* name : {"w.tmp", "w.1-2.tmp.bak", "w.-1.tmp", "w.1-.tmp", "w.a-1.tmp", "ww.1-2.tmp", "w.b.1-2.tmp"})
    touch(name);
  const int living = open(directory.file("w.5-5.tmp").c_str(), O_CREAT | O_WRONLY, 0600);
  REQUIRE(flock(living, LOCK_EX) == 0);
  save(directory.file("w"), "text");
  CHECK(directory.count() == 7 + 1 + 1);
  CHECK(std::filesystem::exists(directory.file("w.5-5.tmp")));
  close(living);

  // Two writers of one name at a time, in one process.
  io::AtomicFile first(directory.file("w")), second(directory.file("w"));
  first.write("first", 5);
  second.write("second", 6);
  second.commit();
  first.commit();
  CHECK(content(directory.file("w")) == "first");
  CHECK(directory.count() == 7 + 1);
}
