#include "tools/paper.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "experiments/paper/paper.h"
#include "experiments/report/table.h"
#include "tools/command.h"

namespace ttr::tools {
namespace {

using experiments::PaperEntry;
using experiments::PaperSection;
using nlohmann::ordered_json;

ordered_json EntryJson(const PaperSection& section, const PaperEntry& entry) {
  return {{"section", section.title}, {"place", entry.place},       {"says", entry.says},
          {"recipe", entry.recipe},   {"computed", entry.computed}, {"identity", entry.identity},
          {"test", entry.test},       {"command", entry.command},   {"document", entry.document},
          {"differs", entry.differs}};
}

}  // namespace

ordered_json PaperJson() {
  ordered_json json = ordered_json::array();
  for (const PaperSection& section : experiments::Paper()) {
    for (const PaperEntry& entry : section.entries) json.push_back(EntryJson(section, entry));
  }
  return json;
}

void PrintPaper() {
  for (const PaperSection& section : experiments::Paper()) {
    report::Table table;
    table.AddText("place").AddText("recipe").AddText("what stands there; what differs");
    for (const PaperEntry& entry : section.entries) {
      std::string text(entry.says);
      if (!entry.differs.empty()) text += "; " + std::string(entry.differs);
      table.AddRow({entry.place, entry.recipe, text});
    }
    fmt::print("{}\n{}\n", section.title,
               table.ToText({.width = TerminalWidth(), .wrap_last = true, .indent = 0}));
  }
  fmt::print("What shows it: docs/paper.md, or ttr zoo --paper --json.\n");
}

}  // namespace ttr::tools
