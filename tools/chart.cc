// ttr chart: a chart described as JSON, drawn as SVG.
#include <fmt/core.h>

#include <iterator>
#include <memory>
#include <string>

#include "experiments/data/input.h"
#include "experiments/report/chart_json.h"
#include "tools/command.h"

namespace ttr::tools {

void AddChart(Command ttr) {
  Command command = ttr.AddCommand(
      "chart", "draws a chart that is described as JSON, as SVG",
      "  ttr chart figure.json > figure.svg\n"
      "What the JSON says: docs/experiments.md. python -m ttr.experiments draws so.");
  const auto path = std::make_shared<std::string>("-");
  command.AddOption("FILE", *path, "the description; - is standard input").ShowDefault();
  command.OnRun([path] {
    experiments::Input input(*path);
    const std::string text(std::istreambuf_iterator<char>(input.stream()), {});
    fmt::print("{}", report::RenderSvg(report::ChartFromJson(text)));
  });
}

}  // namespace ttr::tools
