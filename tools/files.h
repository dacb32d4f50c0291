// What a command reads and what it writes: no file may be both.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttr::tools {

// The files of one call, named as the command line names them, before the first is opened. What is
// written is held against all that was named as read before it. A file that would be replaced while
// it is read, or by what was made from it, is an Error that names both, and stays as it is. Files
// count, not their paths: links, relative paths and a redirected standard input are seen through.
class Files {
 public:
  // `op` is the subcommand, for messages.
  explicit Files(std::string op) : op_(std::move(op)) {}

  // "-" is standard input; an empty path is none.
  void Reads(const std::string& name, const std::string& path);
  // A recipe as the command takes it: @FILE is read.
  void ReadsRecipe(const std::string& name, const std::string& recipe);

  // "-" is standard output; an empty path is none.
  void Writes(const std::string& name, const std::string& path);
  // PREFIX.svg and PREFIX.png.
  void WritesPictures(const std::string& name, const std::string& prefix);
  // A folder that receives files, of which `receives` knows the names; an empty path is none.
  void WritesInto(const std::string& name, const std::string& folder,
                  const std::function<bool(std::string_view)>& receives);

 private:
  struct File {
    std::string name;
    std::filesystem::path path;
  };

  void CheckNotRead(const std::string& name, const std::filesystem::path& path) const;

  std::string op_;
  std::vector<File> read_;
  std::vector<File> written_;
};

// Is it a table or a picture, by its ending?
bool IsReport(std::string_view file);

}  // namespace ttr::tools
