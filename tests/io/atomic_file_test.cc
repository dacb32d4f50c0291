#include "ttr/util/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/io/temp_folder.h"
#include "ttr/error.h"

namespace ttr {
namespace {

namespace fs = std::filesystem;
using test::FullDisk;
using test::ReadBytes;
using test::TempFolder;
using test::WriteBytes;

TEST(AtomicFile, AppearsWhenCommitted) {
  const TempFolder folder;
  const fs::path path = folder / "a";
  AtomicFile file(path);
  file.Write("one ");
  file.Write("two", 3);
  EXPECT_FALSE(fs::exists(path));
  file.Prepare();
  EXPECT_FALSE(fs::exists(path));
  file.Commit();
  EXPECT_EQ(ReadBytes(path), "one two");
  EXPECT_EQ(folder.files(), 1);
}

TEST(AtomicFile, KeepsTheOrderOfSmallAndLargePieces) {
  const TempFolder folder;
  const std::string large(200'000, 'x');
  AtomicFile file(folder / "a");
  file.Write("begin");
  file.Write(large);
  std::string all = "begin" + large;
  for (int i = 0; i < 50'000; ++i) {
    const std::string piece = std::to_string(i);
    file.Write(piece);
    all += piece;
  }
  file.Commit();
  EXPECT_EQ(ReadBytes(folder / "a"), all);
}

TEST(AtomicFile, LeavesTheOldFileWhenNotCommitted) {
  const TempFolder folder;
  WriteBytes(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.Write("new");
  }
  EXPECT_EQ(ReadBytes(folder / "a"), "old");
  EXPECT_EQ(folder.files(), 1);
}

TEST(AtomicFile, LeavesTheOldFileWhenTheProcessDies) {
  const TempFolder folder;
  WriteBytes(folder / "a", "old");
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(folder / "a");
    file.Write(std::string(100'000, 'x'));
    file.Prepare();
    _exit(0);  // no destructor
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(ReadBytes(folder / "a"), "old");
}

TEST(AtomicFile, FullDiskIsASystemError) {
  const TempFolder folder;
  WriteBytes(folder / "a", "old");
  {
    const FullDisk full(1000);
    EXPECT_THROW(
        {
          AtomicFile file(folder / "a");
          file.Write(std::string(100'000, 'x'));
          file.Commit();
        },
        SystemError);
  }
  EXPECT_EQ(ReadBytes(folder / "a"), "old");
  EXPECT_EQ(folder.files(), 1);
}

TEST(AtomicFile, SystemErrorsNameFileAndReason) {
  const TempFolder folder;
  const auto message = [](const fs::path& path) {
    try {
      AtomicFile file(path);
      file.Write("x");
      file.Commit();
    } catch (const SystemError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message(folder / "none" / "a"),
            "cannot write " + (folder / "none" / "a").string() + ": No such file or directory");
  EXPECT_EQ(message(folder.path()), "cannot write " + folder.path().string() + ": Is a directory");
  if (fs::exists("/dev/full")) {
    EXPECT_EQ(message("/dev/full"), "cannot write /dev/full: No space left on device");
  }
  if (geteuid() != 0) {  // root may write everywhere
    WriteBytes(folder / "locked", "old");
    fs::permissions(folder / "locked", fs::perms::owner_read);
    EXPECT_EQ(message(folder / "locked"),
              "cannot write " + (folder / "locked").string() + ": Permission denied");
    EXPECT_EQ(ReadBytes(folder / "locked"), "old");
  }
}

TEST(AtomicFile, FollowsLinksAndKeepsModes) {
  const TempFolder folder;
  fs::create_directory(folder / "real");
  WriteBytes(folder / "real" / "a", "old");
  fs::permissions(folder / "real" / "a", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(folder / "real" / "a", folder / "link");
  AtomicFile file(folder / "link");
  file.Write("new");
  file.Commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(ReadBytes(folder / "real" / "a"), "new");
  EXPECT_EQ(fs::status(folder / "real" / "a").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST(AtomicFile, WritesWhereADanglingLinkLeads) {
  const TempFolder folder;
  fs::create_directory(folder / "real");
  fs::create_symlink(fs::path("real") / "a", folder / "link");  // from the folder of the link
  fs::create_symlink(folder / "link", folder / "further");
  AtomicFile file(folder / "further");
  file.Write("new");
  file.Commit();
  EXPECT_TRUE(fs::is_symlink(folder / "further"));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(ReadBytes(folder / "real" / "a"), "new");
}

TEST(AtomicFile, LeavesLinksThatLeadNowhere) {
  const TempFolder folder;
  fs::create_symlink(folder / "none" / "a", folder / "lost");
  fs::create_symlink("two", folder / "one");
  fs::create_symlink("one", folder / "two");
  for (const char* const name : {"lost", "one"}) {
    EXPECT_THROW(
        {
          AtomicFile file(folder / name);
          file.Write("new");
          file.Commit();
        },
        SystemError)
        << name;
    EXPECT_TRUE(fs::is_symlink(folder / name)) << name;
  }
}

TEST(AtomicFile, LongNames) {
  const TempFolder folder;
  const std::string name(255, 'n');  // as long as file systems allow
  AtomicFile file(folder / name);
  file.Write("x");
  file.Commit();
  EXPECT_EQ(ReadBytes(folder / name), "x");
}

TEST(AtomicFile, RemovesTemporariesOnDemand) {
  const TempFolder folder;
  AtomicFile file(folder / "a");
  AtomicFile other(folder / "b");
  EXPECT_EQ(folder.files(), 2);
  AtomicFile::RemoveTemporaries();
  EXPECT_EQ(folder.files(), 0);
  EXPECT_THROW(file.Commit(), SystemError);
  EXPECT_EQ(folder.files(), 0);
}

TEST(AtomicFile, ManyAtOnce) {
  const TempFolder folder;
  std::vector<std::unique_ptr<AtomicFile>> files;
  for (int i = 0; i < 100; ++i) {
    files.push_back(std::make_unique<AtomicFile>(folder / std::to_string(i)));
    files.back()->Write(std::to_string(i));
  }
  for (auto& file : files) file->Prepare();
  for (auto& file : files) file->Commit();
  EXPECT_EQ(folder.files(), 100);
  EXPECT_EQ(ReadBytes(folder / "73"), "73");
}

}  // namespace
}  // namespace ttr
