// The map of the paper, as the command prints it and as docs/paper.md.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ttr::tools {

void PrintPaper();
nlohmann::ordered_json PaperJson();

// The whole document.
std::string PaperMarkdown();

}  // namespace ttr::tools
