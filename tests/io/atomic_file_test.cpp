// Saving with a fault at each of its system calls. Afterwards either the complete old file or the complete new one is
// in place, and the next save removes all temporary files.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

/// Writes in several pieces, as tensors are saved.
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
  const std::vector<std::string> first = calls_of_a_save(directory.file("a"));
  CHECK(first == std::vector<std::string>{"list", "open", "lock", "write", "write", "write", "sync", "rename", "close",
                                          "open", "sync", "close"});
  CHECK(calls_of_a_save(directory.file("a")) == std::vector<std::string>{"list", "open", "lock", "write", "write",
                                                                         "write", "mode", "sync", "rename", "close",
                                                                         "open", "sync", "close"});
}

TEST_CASE("a save that fails at any system call leaves the old file or the new one", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("weights");
  const int error = GENERATE(EIO, ENOSPC, EINVAL, ENOLCK, FileFaults::kShort);
  const bool first_save = GENERATE(false, true);
  if (!first_save) {
    save(path, "the old text");
    REQUIRE(chmod(path.c_str(), 0640) == 0);  // not the mode of temporary files
  }
  const int calls = static_cast<int>(calls_of_a_save(path).size());
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
    CHECK(directory.count() == (exists ? 1 : 0));  // a process that survives removes its temporary file
    CHECK(open_descriptors() == descriptors);
    save(path, "the next text");
    CHECK(content(path) == "the next text");
    CHECK(directory.count() == 1);
  }
  // Fault points: open, three writes, two flushes, rename, opening the directory, and, if there is an old file, setting
  // its mode. EINVAL from flushing a directory is not an error.
  CHECK(failures == (error == FileFaults::kShort ? 0 : (error == EINVAL ? 7 : 8) + (first_save ? 0 : 1)));
}

TEST_CASE("a process that dies at any system call of a save leaves the old file or the new one", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("weights");
  save(path, "the old text");
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
    const bool renamed = at > 8;
    CHECK(content(path) == (renamed ? "the new text" : "the old text"));
    left_over += directory.count() - 1;
    save(path, "the next text");
    CHECK(content(path) == "the next text");
    CHECK(directory.count() == 1);
  }
  CHECK(left_over == 7);  // one for each system call from the second (open) to rename
}

TEST_CASE("interrupted system calls are restarted", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  for (int at = 0; at < 13; ++at) {
    const FileFaults faults(at, EINTR);
    save(path, "text " + std::to_string(at));
    CHECK(content(path) == "text " + std::to_string(at));
  }
  CHECK(directory.count() == 1);
}

TEST_CASE("a save removes only leftovers of its own name whose process has died", "[io]") {
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

  // Two concurrent writers of one name in one process.
  io::AtomicFile first(directory.file("w")), second(directory.file("w"));
  first.write("first", 5);
  second.write("second", 6);
  second.commit();
  first.commit();
  CHECK(content(directory.file("w")) == "first");
  CHECK(directory.count() == 7 + 1);
}

TEST_CASE("a save keeps the permissions, owner and group of the file that it replaces", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("weights");
  const mode_t umask_before = umask(022);
  struct stat status;
  save(path, "new");
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0644);
  for (const mode_t mode : {0600, 0640, 0664, 0444, 0755}) {
    REQUIRE(chmod(path.c_str(), mode) == 0);
    save(path, "newer");
    REQUIRE(stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == mode);
  }
  umask(umask_before);
  // Other users cannot read a private file while it is written.
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  io::AtomicFile file(path);
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    CHECK((entry.status().permissions() & std::filesystem::perms(077)) == std::filesystem::perms::none);

  if (geteuid() != 0) return;  // other users cannot change the owner of a file
  REQUIRE(chown(path.c_str(), 1234, 4321) == 0);
  save(path, "newest");
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_uid == 1234 && status.st_gid == 4321));
}

TEST_CASE("a save follows symbolic links and leaves them", "[io]") {
  namespace fs = std::filesystem;
  const TemporaryDirectory directory, elsewhere;
  const std::string target = elsewhere.file("weights"), link = directory.file("latest");
  fs::create_symlink(target, link);
  save(link, "into the void");  // the target does not exist yet
  CHECK(fs::is_symlink(link));
  CHECK(content(target) == "into the void");

  fs::create_directory(directory.path() / "below");
  fs::create_symlink("../latest", directory.path() / "below/link");  // relative to the link's folder
  save(directory.file("below/link"), "by two links");
  CHECK(fs::is_symlink(directory.path() / "below/link"));
  CHECK(fs::is_symlink(link));
  CHECK(content(target) == "by two links");
  CHECK(directory.count() == 2);
  CHECK(elsewhere.count() == 1);

  fs::create_symlink("b", directory.file("a"));
  fs::create_symlink("a", directory.file("b"));
  CHECK_THROWS_WITH(save(directory.file("a"), "round"), contains("/a'") && contains("symbolic links"));
  CHECK(fs::is_symlink(directory.file("a")));
}

TEST_CASE("a save rejects a path that is not a regular file and leaves it unchanged", "[io]") {
  namespace fs = std::filesystem;
  const TemporaryDirectory directory;
  REQUIRE(mkfifo(directory.file("pipe").c_str(), 0600) == 0);
  fs::create_directory(directory.file("folder"));
  fs::create_symlink("/dev/null", directory.file("device"));
  fs::create_symlink("pipe", directory.file("link"));
  for (const char* name : {"pipe", "folder", "device", "link"})
    CHECK_THROWS_WITH(save(directory.file(name), "text"), contains(name) && contains("not a regular file"));
  CHECK(fs::is_fifo(directory.file("pipe")));
  CHECK(fs::is_symlink(directory.file("device")));
  CHECK(fs::is_symlink(directory.file("link")));
  CHECK(directory.count() == 4);
}
