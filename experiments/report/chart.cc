#include "experiments/report/chart.h"

#include "experiments/report/atomic_file.h"
#include "experiments/report/chart_layout.h"
#include "experiments/report/chart_script.h"
#include "experiments/report/gnuplot.h"
#include "experiments/report/svg.h"

namespace ttr::report {

std::string RenderSvg(const Chart& chart, Format format) {
  const std::string script = GnuplotScript(LayOut(chart, format), Picture::kSvg);
  return FinishSvg(RunGnuplot(script), chart.title, chart.subtitle);
}

std::string RenderPng(const Chart& chart) {
  return RunGnuplot(GnuplotScript(LayOut(chart, Format::kWide), Picture::kPng));
}

void SaveChart(const Chart& chart, const std::filesystem::path& stem) {
  // Not replace_extension: a stem may hold a point, as in "decay.95".
  AtomicFile svg(stem.string() + ".svg");
  AtomicFile png(stem.string() + ".png");
  svg.Write(RenderSvg(chart));
  png.Write(RenderPng(chart));
  svg.Prepare();
  png.Prepare();
  svg.Commit();
  png.Commit();
}

}  // namespace ttr::report
