#include "experiments/report/gnuplot.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "experiments/report/utf8.h"
#include "ttr/error.h"

namespace ttr::report {
namespace {

[[noreturn]] void Fail(int error) {
  throw SystemError("cannot run gnuplot: " + std::generic_category().message(error));
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// A file without a name, gone when it is closed.
File TemporaryFile(std::string_view content = "") {
  File file(std::tmpfile(), &std::fclose);
  if (file == nullptr) Fail(errno);
  const std::size_t written = std::fwrite(content.data(), 1, content.size(), file.get());
  if (written != content.size() || std::fflush(file.get()) != 0) Fail(errno);
  std::rewind(file.get());
  return file;
}

std::string Content(const File& file) {
  std::rewind(file.get());
  std::string out;
  char buffer[1 << 14];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file.get())) {
    out.append(buffer, count);
  }
  return out;
}

// How gnuplot ended, as waitpid says it.
int Run(const File& script, const File& picture, const File& messages) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, fileno(script.get()), 0);
  posix_spawn_file_actions_adddup2(&files, fileno(picture.get()), 1);
  posix_spawn_file_actions_adddup2(&files, fileno(messages.get()), 2);
  std::string words[] = {"gnuplot", "-d", "-"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t id = -1;
  const int error = posix_spawnp(&id, "gnuplot", &files, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  if (error == ENOENT) {
    throw SystemError("pictures need gnuplot, which is not installed (Debian: gnuplot-nox)");
  }
  if (error != 0) Fail(error);
  int status = 0;
  while (waitpid(id, &status, 0) < 0) {
    if (errno != EINTR) Fail(errno);
  }
  return status;
}

// gnuplot echoes the offending line and a caret before its reason: the last line says it all.
std::string LastLine(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "no message";
  const std::string lines = text.substr(0, end + 1);
  const std::string line = lines.substr(lines.find_last_of('\n') + 1);
  return Printable(line.substr(line.find_first_not_of(" \t")));
}

}  // namespace

std::string RunGnuplot(std::string_view script) {
  // Files rather than pipes: nobody waits for anybody, and a gnuplot that dies early raises no
  // signal.
  const File input = TemporaryFile(script), picture = TemporaryFile(), messages = TemporaryFile();
  const int status = Run(input, picture, messages);
  if (!WIFEXITED(status)) throw SystemError("gnuplot was ended by a signal");
  if (WEXITSTATUS(status) != 0) throw SystemError("gnuplot failed: " + LastLine(Content(messages)));
  return Content(picture);
}

std::string GnuplotQuoted(std::string_view text) {
  std::string out = "'";
  for (const char c : ValidText(text)) {
    if (c == '\n' || c == '\t') {
      out += ' ';
    } else {
      out.append(c == '\'' ? 2 : 1, c);
    }
  }
  return out + "'";
}

}  // namespace ttr::report
