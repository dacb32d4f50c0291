// Runs the built command `ttr` and looks at what a user would see.
#pragma once

#include <string>
#include <vector>

#include "tests/experiments/report_support.h"

namespace ttr::test {

using report::ReadAll;
using report::TemporaryFolder;

struct Outcome {
  int code = -1;  // 128 + signal where one ended it
  std::string out;
  std::string err;
};

// PREFIX ttr ARGUMENTS < input; a prefix is {"env", "NAME=VALUE"} or {"timeout", "2"}.
Outcome Ttr(const std::vector<std::string>& arguments, const std::string& input = "",
            const std::vector<std::string>& prefix = {});

// Empty if the outcome is a refusal as users are promised one: the code, one line on standard error
// that holds `text`, nothing on standard output. Else what is wrong with it.
std::string NoRefusal(const Outcome& outcome, int code, const std::string& text);

// Lines of a table without quotes.
std::vector<std::vector<std::string>> Fields(const std::string& text);

void Write(const std::filesystem::path& path, const std::string& content);

}  // namespace ttr::test
