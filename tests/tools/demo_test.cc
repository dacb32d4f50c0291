// The section of trained layers on the page of ttr demo.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/io/temp_folder.h"
#include "tools/demo_trained.h"
#include "ttr/error.h"

namespace ttr::tools {
namespace {

std::string Write(const test::TempFolder& folder, const std::string& text) {
  const std::string path = (folder.path() / "mqar-trained.json").string();
  std::ofstream(path) << text;
  return path;
}

TEST(Demo, DrawsAPanelForEachArchitectureAndNumberOfPairs) {
  const test::TempFolder folder;
  const report::Section section =
      TrainedSection(Write(folder,
                           R"({"title": "Recall of trained layers", "panels": [
  {"title": "strict, P = 64, d = 64", "series": [
    {"name": "RLS", "x": [256, 512], "y": [0.9712, 0.9702], "low": [0.9681, 0.9672],
     "high": [0.9743, 0.9732]}]},
  {"title": "gate, P = 128, d = 64", "series": [
    {"name": "RLS", "x": [512], "y": [0.9962]}, {"name": "softmax", "x": [512], "y": [1.0]}]}]})"));
  ASSERT_EQ(section.figures.size(), 1U);
  const std::string& svg = section.figures[0].svg;
  for (const char* text : {"strict, P = 64, d = 64", "gate, P = 128, d = 64", "RLS", "softmax"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(section.command, "python -m ttr.experiments mqar");
}

TEST(Demo, RefusesWhatIsNoChart) {
  const test::TempFolder folder;
  const std::string path = Write(folder, "method,pairs\nRLS,64\n");
  try {
    TrainedSection(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("must be a chart as JSON"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace ttr::tools
