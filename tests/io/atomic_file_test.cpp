// Saving with a fault at each of its system calls. Afterwards either the complete old file or the complete new one is
// in place, and the next save removes all temporary files.
#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string_view>

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

/// While it lives, `fault` decides which system calls of files that are written fail (io::FileFault).
class FaultBy {
 public:
  using Fault = std::function<int(std::string_view call, size_t* bytes)>;
  explicit FaultBy(Fault fault) {
    fault_ = std::move(fault);
    io::file_fault = [](const char* call, size_t* bytes) { return fault_(call, bytes); };
  }
  ~FaultBy() { io::file_fault = nullptr; }
  FaultBy(const FaultBy&) = delete;
  FaultBy& operator=(const FaultBy&) = delete;

 private:
  static inline Fault fault_;
};

/// Runs `body` in another process and returns its exit code, which is the result of `body`, or 99 if it throws.
template <class Body>
int exit_code_of(const Body& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      _exit(body());
    } catch (...) { _exit(99); }
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
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

TEST_CASE("the error of a save names the file or the directory, and the cause of the call that failed", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("weights");
  save(path, "the old text");
  REQUIRE(chmod(path.c_str(), 0640) == 0);
  const auto error_at = [&](std::string_view failing, int number, int error) {
    int count = 0;
    const FaultBy fault([&](std::string_view call, size_t*) {
      if (call == "close") errno = EBADF;  // must not hide the error before it
      return call == failing && count++ == number ? error : 0;
    });
    try {
      save(path, "the new text");
    } catch (const IoError& failure) { return std::string(failure.what()); }
    return std::string();
  };
  const std::string write = "cannot write '" + path + "': ";
  CHECK_THAT(error_at("open", 0, EACCES), contains(write + "Permission denied"));
  CHECK_THAT(error_at("write", 1, EIO), contains(write + "Input/output error"));
  CHECK_THAT(error_at("mode", 0, EPERM), contains(write + "Operation not permitted"));
  CHECK_THAT(error_at("sync", 0, EIO), contains(write + "Input/output error"));
  CHECK_THAT(error_at("rename", 0, EXDEV), contains(write + "Invalid cross-device link"));
  const std::string flush = "cannot flush directory '" + directory.path().string() + "': ";
  CHECK_THAT(error_at("open", 1, EMFILE), contains(flush + "Too many open files"));
  CHECK_THAT(error_at("sync", 1, EIO), contains(flush + "Input/output error"));
  CHECK(error_at("sync", 1, EINVAL).empty());  // file systems that cannot flush directories

  const FaultBy writes_nothing([](std::string_view, size_t* bytes) {
    if (bytes) *bytes = 0;
    return 0;
  });
  CHECK_THROWS_WITH(save(path, "the new text"), contains(write + "No space left on device"));
}

TEST_CASE("a save that may not set the mode of its file succeeds if the file has this mode", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("weights");
  save(path, "old");
  for (const mode_t mode : {0600, 0640}) {  // new temporary files have the mode 0600
    REQUIRE(chmod(path.c_str(), mode) == 0);
    const FaultBy fault([](std::string_view call, size_t*) { return call == "mode" ? EPERM : 0; });
    if (mode == 0600) CHECK_NOTHROW(save(path, "new"));
    else CHECK_THROWS_AS(save(path, "newer"), IoError);
    CHECK(content(path) == "new");
  }
}

TEST_CASE("a save takes another temporary file if it cannot have the first for itself", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("weights");
  const auto calls_with = [&](std::string_view failing, const std::function<int()>& fault_of_first) {
    std::vector<std::string> calls;
    {
      bool first = true;
      const FaultBy fault([&](std::string_view call, size_t*) {
        calls.emplace_back(call);
        return call == failing && std::exchange(first, false) ? fault_of_first() : 0;
      });
      save(path, "text");
    }
    CHECK(content(path) == "text");
    CHECK(directory.count() == 1);
    std::filesystem::remove(path);
    return std::vector<std::string>(calls.begin(), std::ranges::find(calls, "write"));
  };
  using Calls = std::vector<std::string>;
  const Calls retries = {"list", "open", "lock", "unlink", "close", "open", "lock"};
  CHECK(calls_with("lock", [] { return EWOULDBLOCK; }) == retries);
  CHECK(calls_with("lock", [&] {  // another process removes it as a leftover
          for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
            std::filesystem::remove(entry);
          return 0;
        }) == retries);
  CHECK(calls_with("open", [] { return EEXIST; }) == Calls{"list", "open", "open", "lock"});
  CHECK(calls_with("lock", [] { return ENOLCK; }) == Calls{"list", "open", "lock"});  // no locks on this file system
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

  // Leftovers stay if they cannot be listed, opened or locked, and then the next save removes them.
  for (const std::string_view failing : {"list", "open", "lock"}) {
    INFO(failing);
    touch("w.12-0.tmp");
    bool first = true;
    {
      const FaultBy fault([&](std::string_view call, size_t*) {
        return call == failing && std::exchange(first, false) ? EWOULDBLOCK : 0;
      });
      save(directory.file("w"), "text");
    }
    CHECK(std::filesystem::exists(directory.file("w.12-0.tmp")));
    save(directory.file("w"), "text");
    CHECK_FALSE(std::filesystem::exists(directory.file("w.12-0.tmp")));
  }
  std::filesystem::create_symlink(directory.file("w"), directory.file("w.1-1.tmp"));  // not a file of a save
  save(directory.file("w"), "text");
  CHECK(std::filesystem::is_symlink(directory.file("w.1-1.tmp")));
  std::filesystem::remove(directory.file("w.1-1.tmp"));
  std::filesystem::remove(directory.file("w.5-5.tmp"));

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

TEST_CASE("a save by another user keeps the file's group, or takes the group's permissions away if it cannot", "[io]") {
  if (geteuid() != 0) return;  // only the administrator can become other users
  const TemporaryDirectory directory;
  REQUIRE(chmod(directory.path().c_str(), 0777) == 0);
  const std::string path = directory.file("weights");
  const auto saved_by = [&](gid_t group_of_user) {
    save(path, "old");
    REQUIRE(chown(path.c_str(), 1234, 4321) == 0);
    REQUIRE(chmod(path.c_str(), 0674) == 0);
    CHECK(exit_code_of([&] {
            if (setgroups(1, &group_of_user) != 0 || setgid(5678) != 0 || setuid(5678) != 0) return 1;
            save(path, "new");
            return 0;
          }) == 0);
    struct stat status;
    REQUIRE(stat(path.c_str(), &status) == 0);
    CHECK(content(path) == "new");
    CHECK(status.st_uid == 5678);
    std::filesystem::remove(path);
    return std::pair(status.st_gid, status.st_mode & 0777);
  };
  CHECK(saved_by(4321) == std::pair(gid_t{4321}, mode_t{0674}));
  CHECK(saved_by(5678) == std::pair(gid_t{5678}, mode_t{0644}));  // the group has the permissions of everybody
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

  const auto chain_of = [&](int links) {  // the first link of a chain of `links` links to the target
    for (int i = 0; i < links; ++i)
      fs::create_symlink(i == 0 ? target : "chain" + std::to_string(i - 1),
                         directory.file("chain" + std::to_string(i)));
    return directory.file("chain" + std::to_string(links - 1));
  };
  save(chain_of(40), "by forty links");
  CHECK(content(target) == "by forty links");
  fs::create_symlink("chain39", directory.file("chain40"));
  CHECK_THROWS_WITH(save(directory.file("chain40"), "too many"), contains("/chain40'") && contains("symbolic links"));

  fs::create_symlink("b", directory.file("a"));
  fs::create_symlink("a", directory.file("b"));
  CHECK_THROWS_WITH(save(directory.file("a"), "round"), contains("/a'") && contains("symbolic links"));
  CHECK(fs::is_symlink(directory.file("a")));
}

TEST_CASE("a save writes a file of the current directory", "[io]") {
  const TemporaryDirectory directory;
  CHECK(exit_code_of([&] {
          if (chdir(directory.path().c_str()) != 0) return 1;
          close(open("weights.12-0.tmp", O_CREAT | O_WRONLY, 0600));
          save("weights", "here");
          return std::filesystem::exists("weights.12-0.tmp") ? 2 : 0;
        }) == 0);
  CHECK(content(directory.file("weights")) == "here");
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
