#include "tools/files.h"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "ttr/error.h"

namespace ttr::tools {
namespace {

namespace fs = std::filesystem;

// Where a file is that is not there yet: its folder may be spelled in many ways.
fs::path Place(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  const fs::path place = fs::weakly_canonical(whole, error);
  return error ? whole : place;
}

// Only regular files are replaced; a terminal or /dev/null may be both read and written.
bool IsSameFile(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::exists(a, error) && fs::exists(b, error)) {
    return fs::is_regular_file(a, error) && fs::equivalent(a, b, error);
  }
  return Place(a) == Place(b);
}

}  // namespace

void Files::Reads(const std::string& name, const std::string& path) {
  if (path.empty()) return;
  read_.push_back({name, path == "-" ? fs::path("/dev/stdin") : fs::path(path)});
}

void Files::ReadsRecipe(const std::string& name, const std::string& recipe) {
  if (recipe.starts_with("@")) Reads(name, recipe.substr(1));
}

void Files::Writes(const std::string& name, const std::string& path) {
  if (path.empty() || path == "-") return;
  CheckNotRead(name, path);
  for (const File& other : written_) {
    if (!IsSameFile(other.path, path)) continue;
    throw Error(op_, name, "another file than that of " + other.name, path);
  }
  written_.push_back({name, path});
}

void Files::WritesPictures(const std::string& name, const std::string& prefix) {
  if (prefix.empty()) return;
  for (const char* ending : {".svg", ".png"}) Writes(name, prefix + ending);
}

void Files::WritesInto(const std::string& name, const std::string& folder,
                       const std::function<bool(std::string_view)>& receives) {
  if (folder.empty()) return;
  std::error_code error;
  // An input that is not there fails by itself, and so does a folder that is none.
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (receives(entry->path().filename().string())) CheckNotRead(name, entry->path());
  }
}

void Files::CheckNotRead(const std::string& name, const fs::path& path) const {
  for (const File& input : read_) {
    if (!IsSameFile(input.path, path)) continue;
    const std::string read = input.path == "/dev/stdin" ? "standard input" : input.path.string();
    throw Error(op_, name, "another file than what " + input.name + " reads",
                path == input.path ? path.string() : path.string() + ", the same file as " + read);
  }
}

bool IsReport(std::string_view file) {
  constexpr std::string_view kEndings[] = {".csv", ".json", ".md", ".svg", ".png", ".html"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return file.ends_with(ending); });
}

}  // namespace ttr::tools
