#include "tools/demo_trained.h"

#include <iterator>
#include <string>

#include "experiments/data/input.h"
#include "experiments/report/chart_json.h"

namespace ttr::tools {

report::Section TrainedSection(const std::filesystem::path& chart) {
  experiments::Input input(chart.string());
  const std::string text(std::istreambuf_iterator<char>(input.stream()), {});
  report::Section section;
  section.title = "Associative recall, trained";
  section.text = {
      "One layer, a convolution of length two that makes the keys, and an embedding: the paper's "
      "third figure. `strict` is the paper's architecture; `gate` adds a write gate, which learns "
      "what is worth writing."};
  section.figures.push_back(report::MakeFigure(report::ChartFromJson(text)));
  section.command = "python -m ttr.experiments mqar";
  return section;
}

}  // namespace ttr::tools
