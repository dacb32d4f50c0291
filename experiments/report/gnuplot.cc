#include "experiments/report/gnuplot.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "experiments/report/utf8.h"
#include "ttr/error.h"

extern char** environ;

namespace ttr::report {
namespace {

[[noreturn]] void Fail(const char* action, int error) {
  throw SystemError(std::string("cannot ") + action + ": " +
                    std::generic_category().message(error));
}

class Descriptor {
 public:
  explicit Descriptor(int file = -1) : file_(file) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }

  void Close() {
    if (file_ >= 0) close(file_);
    file_ = -1;
  }
  int get() const { return file_; }

 private:
  int file_;
};

struct Channel {
  Descriptor ours;
  Descriptor theirs;
};

// Sockets rather than pipes: a write to a gnuplot that has died is then an error code and not
// SIGPIPE, whatever the program does with that signal.
Channel OpenChannel() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) Fail("run gnuplot", errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

class Child {
 public:
  Child(const Channel& input, const Channel& output, const Channel& messages) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input.theirs.get(), 0);
    posix_spawn_file_actions_adddup2(&actions, output.theirs.get(), 1);
    posix_spawn_file_actions_adddup2(&actions, messages.theirs.get(), 2);
    std::string arguments[] = {"gnuplot", "-d", "-"};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), nullptr};
    // Its messages in one language, its numbers with a point.
    std::string locale = "LC_ALL=C.UTF-8";
    std::vector<char*> environment = {locale.data()};
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (!std::string_view(*entry).starts_with("LC_ALL=")) environment.push_back(*entry);
    }
    environment.push_back(nullptr);
    const int error = posix_spawnp(&id_, "gnuplot", &actions, nullptr, argv, environment.data());
    posix_spawn_file_actions_destroy(&actions);
    if (error == ENOENT) {
      throw SystemError("pictures need gnuplot, which is not installed (Debian: gnuplot-nox)");
    }
    if (error != 0) Fail("run gnuplot", error);
  }
  ~Child() {
    if (id_ <= 0) return;
    kill(id_, SIGTERM);  // Only on the way out of an exception: it waits for input.
    Wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int Wait() {
    int status = 0;
    while (waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
    return status;
  }

 private:
  pid_t id_ = -1;
};

// Reads what is there; at the end closes the descriptor.
void Receive(Descriptor& file, std::string& into) {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = read(file.get(), buffer.data(), buffer.size());
  if (count > 0) into.append(buffer.data(), static_cast<std::size_t>(count));
  if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) file.Close();
}

// Sends what goes through without waiting; when all is sent, or nobody listens, closes.
void Send(Descriptor& file, std::string_view& rest) {
  const ssize_t count = send(file.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count >= 0) rest.remove_prefix(static_cast<std::size_t>(count));
  const bool broken = count < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK;
  if (rest.empty() || broken) file.Close();
}

// gnuplot echoes the offending line and a caret before its reason: the last line says it all.
std::string LastLine(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "no message";
  const std::size_t begin = text.find_last_of('\n', end);
  const std::string line = text.substr(begin == std::string::npos ? 0 : begin + 1,
                                       end - (begin == std::string::npos ? 0 : begin + 1) + 1);
  return Printable(line.substr(std::min(line.find_first_not_of(" \t"), line.size())));
}

}  // namespace

std::string RunGnuplot(std::string_view script) {
  Channel input = OpenChannel();
  Channel output = OpenChannel();
  Channel messages = OpenChannel();
  std::string picture;
  std::string complaint;
  Child child(input, output, messages);
  for (Channel* channel : {&input, &output, &messages}) channel->theirs.Close();

  // All three at once: gnuplot may write before it has read everything. A descriptor of -1 is one
  // that poll skips.
  while (output.ours.get() >= 0 || messages.ours.get() >= 0) {
    pollfd waiting[] = {{input.ours.get(), POLLOUT, 0},
                        {output.ours.get(), POLLIN, 0},
                        {messages.ours.get(), POLLIN, 0}};
    if (poll(waiting, 3, -1) < 0) {
      if (errno == EINTR) continue;
      Fail("run gnuplot", errno);
    }
    if (waiting[0].revents != 0) Send(input.ours, script);
    if (waiting[1].revents != 0) Receive(output.ours, picture);
    if (waiting[2].revents != 0) Receive(messages.ours, complaint);
  }
  input.ours.Close();
  const int status = child.Wait();
  if (!WIFEXITED(status)) throw SystemError("gnuplot was ended by a signal");
  if (WEXITSTATUS(status) != 0) throw SystemError("gnuplot failed: " + LastLine(complaint));
  return picture;
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
